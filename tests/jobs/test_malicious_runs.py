"""Malicious attacks of an audit: one more training for each, its gain in all views, and nothing where none is asked."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError
from cutlayer.jobs.audit import audit_again
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.guards.guard import AlarmWarning
from cutlayer.report.build import build_report
from cutlayer.report.card.build import build_card
from cutlayer.report.sections.malicious import malicious_section, malicious_sentences
from cutlayer.results.malicious import MaliciousResult
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.malicious_runs import attacked_jobs
from tests.parties.runs import ACTIVE, KEY, PASSIVES, raw_job, tables

TELCO, SHOP = PASSIVES[:2]


def job_of(
    bank: dict[str, Any] | None = None, telco: dict[str, Any] | None = None, passives: int = 1, **changes: Any
) -> Job:
    """A job whose parties ask for the malicious attacks on their own secrets."""
    raw = raw_job(passives=passives, bottom={"kind": "mlp", "hidden": [8, 3]}, epochs=3, **changes)
    audit = {"attacks": ["norm", "spectral"], "layers": False, "rows": 320, "malicious": ["probing"]}
    own = {"attacks": [], "rows": 320, "malicious": ["hijack", "chosen_labels"]}
    raw["parties"][ACTIVE] |= {"audit": audit} | (bank or {})
    raw["parties"][TELCO] |= {"audit": own} | (telco or {})
    return validated(Job, raw, "")


def run(job: Job, out: Path) -> RunFolder:
    given = tables(passives=len(job.passives), rows=400)
    return execute(job, out / "run", Options(Keys(out, KEY), tables=given), Progress())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    guard = {"guard": {"on_alarm": "stop"}}  # which must not stop a training that measures the attack
    with warnings.catch_warnings():
        warnings.simplefilter("error", AlarmWarning)  # nobody is attacked: the training is a simulation
        yield run(job_of(guard), tmp_path_factory.mktemp("attacked"))


@pytest.fixture(scope="module")
def partners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    """Two partners, who pool what they get."""
    asked = {"attacks": ["norm", "mean_gradient"], "layers": False, "malicious": ["probing", "backdoor"]}
    bank = {"guard": {"on_alarm": "stop"}, "audit": asked}
    with warnings.catch_warnings():
        warnings.simplefilter("error", AlarmWarning)  # nobody is attacked: the training is a simulation
        yield run(job_of(bank, {"audit": {"attacks": []}}, passives=2), tmp_path_factory.mktemp("partners"))


def results(folder: RunFolder) -> dict[tuple[str, str], MaliciousResult]:
    return {(result.attack, result.party): result for result in folder.audit.malicious}


def test_a_hijack_rebuilds_more_than_a_curious_party(folder: RunFolder) -> None:
    hijack = results(folder)["hijack", TELCO]
    assert (hijack.attacker, hijack.party, hijack.secret, hijack.alarm) == (ACTIVE, TELCO, "features", "")
    assert hijack.gain is not None
    assert hijack.gain > 0.03
    assert hijack.value == max(
        result.value for result in folder.audit.features if result.run == hijack.run and result.value is not None
    )


def test_probing_reads_every_label_of_an_undefended_run(folder: RunFolder) -> None:
    probing = results(folder)["probing", TELCO]
    assert (probing.attacker, probing.party, probing.secret) == (TELCO, TELCO, "labels")
    assert probing.value is not None
    assert probing.value > 0.95
    assert probing.alarm == "epoch 2, step 1"


def test_partners_that_probe_pool_what_they_get(partners: RunFolder) -> None:
    together = results(partners)["probing", f"{TELCO}+{SHOP}"]
    assert together.attacker == f"{TELCO} and {SHOP}"
    assert together.alarm == "epoch 2, step 1"


def test_a_backdoor_decides_predictions_that_a_curious_party_does_not(partners: RunFolder) -> None:
    """By each partner's trigger alone and by both; the guard of the label owner sees it."""
    backdoors = {party: result for (attack, party), result in results(partners).items() if attack == "backdoor"}
    assert backdoors.keys() == {TELCO, SHOP, f"{TELCO}+{SHOP}"}
    both = backdoors[f"{TELCO}+{SHOP}"]
    assert (both.secret, both.metric) == ("predictions", "success")
    assert both.value is not None
    assert both.curious is not None
    assert both.value > 0.9
    assert both.curious < both.value - 0.3
    assert both.alarm != "none"
    assert both.low is not None
    assert 0 <= both.low <= both.value


def test_chosen_labels_are_read_as_a_hijack_is(folder: RunFolder) -> None:
    chosen = results(folder)["chosen_labels", TELCO]
    assert (chosen.attacker, chosen.secret, chosen.metric) == (ACTIVE, "features", "r2")
    assert chosen.curious == results(folder)["hijack", TELCO].curious


def test_this_run_has_no_alarm(folder: RunFolder) -> None:
    assert folder.summary.alarms == ()
    assert "CL117" not in {finding.code for finding in folder.audit.findings}


def test_what_is_asked_about_is_attacked_and_compared_in_both_runs(folder: RunFolder) -> None:
    """The party's audit names no attack: `inversion` reads both runs all the same, and the hijack's no other attack."""
    assert {(result.run, result.attack) for result in folder.audit.features} == {
        ("this run", "inversion"),
        ("hijack by malicious bank", "inversion"),
        ("chosen_labels by malicious bank", "inversion"),
    }
    assert not folder.audit.runs["hijack by malicious bank"].leaks


def test_the_same_rows_are_known_in_both_runs(folder: RunFolder) -> None:
    known = {(result.known, result.rows) for result in folder.audit.features if result.release.startswith("epoch 3")}
    assert len(known) == 1


def test_the_gain_is_in_every_view(folder: RunFolder) -> None:
    report = build_report(folder.path)
    section = malicious_section(report)
    assert section is not None
    assert len(report.malicious) == 3
    assert "bank, if malicious (hijack), reads R²" in " ".join(malicious_sentences(report))
    assert set(malicious_sentences(report)) <= set(build_card(folder.path).learns)


def test_a_repeated_audit_finds_the_same(folder: RunFolder) -> None:
    before = results(folder)
    audit_again(folder)
    assert results(folder) == before


def test_a_single_release_leaves_nothing_to_attack(tmp_path: Path) -> None:
    """No gradient comes back: no malicious training is run, and the report says why."""
    job = job_of(release="once")
    assert [*attacked_jobs(job)] == []
    run = execute(job, tmp_path / "run", Options(Keys(tmp_path, KEY), tables=tables()), Progress())
    assert run.audit.malicious == ()
    reasons = {skip.attack: skip.reason for skip in run.audit.runs["this run"].skipped}
    assert "no gradient comes back" in reasons["hijack"]
    assert "no gradient comes back" in reasons["probing"]


def test_the_attacker_has_no_protection_and_the_victim_keeps_its_own() -> None:
    job = job_of(
        {"privacy": {"label_dp": {"eps": 1.0}}},
        {"privacy": {"nopeek": {"weight": 0.1}}},
        early_stop={"patience": 1},
    )
    made = {run.attack: other for run, other in attacked_jobs(job)}
    assert [*made["hijack"].parties[ACTIVE].privacy] == []
    assert [*made["hijack"].parties[TELCO].privacy] == ["nopeek"]
    assert [*made["probing"].parties[ACTIVE].privacy] == ["label_dp"]
    assert [*made["probing"].parties[TELCO].privacy] == []
    assert made["hijack"].train.stops_early is None
    assert made["probing"].train == job.train


def test_nothing_is_trained_unless_it_is_asked_for() -> None:
    plain = {"audit": {"attacks": ["norm"]}}
    assert [*attacked_jobs(job_of(plain, plain | {"audit": {}}))] == []


@pytest.mark.parametrize(
    ("bank", "telco", "words"),
    [
        ({"audit": {"malicious": ["hijack"]}}, None, r"parties\.bank.*name it in a passive party's audit"),
        (None, {"audit": {"malicious": ["probing"]}}, r"parties\.telco.*name it in the active party's audit"),
        ({"audit": {"malicious": ["probing"], "every": "never"}}, None, "never"),
    ],
)
def test_an_attack_in_the_wrong_place_is_refused(
    bank: dict[str, Any] | None, telco: dict[str, Any] | None, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        check_job(job_of(bank, telco))
