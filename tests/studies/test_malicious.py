"""The study of malicious parties: its jobs, one training, and verdicts that follow from the results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.attacks.knowledge import Auxiliary
from cutlayer.attacks.malicious.backdoor import Backdoor
from cutlayer.attacks.malicious.hijack import Hijack
from cutlayer.config.guard import Alarm
from cutlayer.config.phases import Phase
from cutlayer.data.encoded import ColumnSpec
from cutlayer.jobs.check import check_job
from cutlayer_published.attacks import sdar
from studies.claims import Kind
from studies.malicious import training, urvfl
from studies.malicious.adapted import BlurredHijack, EarlyBackdoor
from studies.malicious.page import malicious_page
from studies.malicious.settings import (
    ADULT,
    CIFAR,
    FIRST_FRESH,
    HALVES,
    TIMES_FRESH,
    Setting,
    fresh_settings,
    job_of,
    settings_of,
    tables_of,
)
from studies.malicious.study import MaliciousStudy
from studies.malicious.training import _first, trained
from studies.malicious.urvfl import Pilot
from studies.page import Table
from studies.results import Results, TrialResult
from tests.studies.written_pages import page_of

SETTINGS = [
    (group, setting) for group in (ADULT, *HALVES) for setting in (*settings_of(group, 1), *fresh_settings(group))
]


@pytest.mark.parametrize(("group", "setting"), SETTINGS, ids=lambda each: getattr(each, "name", each))
def test_jobs_are_valid_and_guarded(group: str, setting: Setting) -> None:
    job = job_of(group, setting, 1)
    check_job(job)
    guards = [party.guard for party in job.parties.values() if party.guard]
    if Phase.RELEASE in job.phases_of(job.passives[0]):
        assert not guards
        return
    assert len(guards) == (1 if "dp_embedding" in setting.features else len(job.parties))
    assert {guard.on_alarm for guard in guards} == {"warn"}


def test_names_of_settings_are_unique_and_few_seeds_are_probed() -> None:
    names = [setting.name for setting in (*settings_of(ADULT, 1), *fresh_settings(ADULT))]
    assert len(names) == len(set(names))
    assert len(settings_of(ADULT, 11)) < len(settings_of(ADULT, 1))


@pytest.mark.parametrize("name", ["hijack", "URVFL", "honest", "honest; once", "probing; none", "backdoor", "fresh"])
def test_a_training_is_measured(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urvfl, "FIRST_STEPS", 10)
    monkeypatch.setattr(sdar, "PASSES", 4)  # it reads less than the other attack in any case
    monkeypatch.setattr(training, "FIRST", (3, 4, 8))
    setting = next(each for each in (*settings_of(ADULT, 1), *fresh_settings(ADULT)) if each.name == name)
    job = job_of(ADULT, setting, 1)
    job = job.model_copy(update={"train": job.train.model_copy(update={"epochs": 2, "batch_size": 96})})
    rows = 1200 if name == "hijack" else 800  # its alarm takes twelve steps
    tables = {party: table.slice(0, rows) for party, table in tables_of(ADULT, Path()).items()}
    values = trained(job, setting, tables, tmp_path / "work")
    measured = values["measured"]
    assert 0.4 < values["metric"] <= 1
    assert not (tmp_path / "work").exists()
    if name == "hijack":
        assert measured["passive_alarm"] <= measured["steps"]
        assert 0 < measured["r2_alarm"] < measured["r2"] < 1
    elif name == "URVFL":
        assert measured["r2_decoder"] < measured["r2"] < 1
    elif name == "honest":
        first = measured["r2_first"]
        assert 0 < first["4"] < first["8"] < measured["r2"]
        assert measured["r2_sdar"] < measured["r2"]
    elif name == "honest; once":
        assert 0.5 < measured["r2"] <= 1
    elif name == "fresh":
        assert (measured["alarms"], set(measured)) == ([], {"steps", "alarms", "active_alarm", "passive_alarm"})
    elif name == "backdoor":
        assert 0 <= measured["success of 1"] <= 1
        assert 0 <= measured["success of 2"] <= 1
    else:
        assert measured["leak of employer"] > 0.9
        assert measured["together"] > 0.9
        assert measured["active_alarm"] == measured["steps"] + 1


def test_a_blurred_hijack_bends_honest_gradients_and_leaves_false_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    false = honest.clone()
    false[:4] = 2.0
    monkeypatch.setattr(Hijack, "gradients", lambda *_: {"right": false})
    rows = torch.arange(40)
    sent = BlurredHijack(lambda _: {}, blur=0.15).gradients(rows, {"right": honest}, {"right": honest})["right"]
    assert torch.equal(sent[:4], false[:4])
    torch.testing.assert_close(sent.norm(dim=1), false.norm(dim=1))
    along = torch.nn.functional.cosine_similarity(sent[4:], honest[4:]).square()
    torch.testing.assert_close(along, torch.full((36,), 0.85))


def test_gradients_of_urvfl_lead_to_embeddings_that_its_decoder_reads_as_rows_of_their_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("FIRST_STEPS", 40), ("LR", 1e-2), ("HIDDEN", 32)):
        monkeypatch.setattr(urvfl, name, value)
    torch.manual_seed(0)
    labels = torch.arange(240) % 2
    numbers = torch.randn(240, 2) * 0.3 + 2.0 * labels[:, None] - 1.0
    known = Auxiliary(
        ColumnSpec((), 2, number_names=("a", "b")), torch.arange(240), torch.zeros(240, 0, dtype=torch.int32), numbers
    )
    for linear in (False, True):
        own = torch.randn(64, 4)
        classes = torch.arange(64) % 2
        pilot = Pilot(known, labels, 2, own, linear)
        for _ in range(25):
            gradient = pilot.gradient(own, classes)
            own = own - 0.5 * gradient / gradient.norm(dim=1, keepdim=True).clamp_min(1e-9)
        read = pilot.rebuilt(own).mean(dim=1) > 0
        assert (read == (classes == 1)).float().mean() > 0.9


def test_an_early_backdoor_sends_its_trigger_in_the_first_epoch_too() -> None:
    rows, honest = torch.arange(6), torch.zeros(6, 8)
    sent = [kind(lambda: torch.tensor([2, 4])).embedding(0, rows, honest) for kind in (Backdoor, EarlyBackdoor)]
    assert torch.equal(sent[0], honest)
    assert sent[1].abs().sum(dim=1).gt(0).tolist() == [row in (2, 4) for row in range(6)]


def test_steps_until_an_alarm_count_whole_epochs() -> None:
    alarms = [Alarm(party="bank", peer=peer, epoch=3, step=step, detail="") for peer, step in (("a", 9), ("b", 4))]
    assert _first(alarms, 10) == 24
    assert _first([], 10) is None


def result(group: str, setting: Setting, seed: int, gain: float, alarms: bool) -> TrialResult:
    honest = setting.name.startswith(("honest", "fresh"))
    own = 0.0 if honest else gain
    alarm = 15 if alarms and not honest else None
    values: dict[str, Any] = {"steps": 20, "alarms": [], "active_alarm": alarm, "passive_alarm": alarm}
    if setting.reads == "features":
        values |= {"r2": 0.5 + own + 0.001 * seed} | ({"r2_alarm": 0.2} if alarm else {})
        values |= {"r2_first": {"3": 0.1, "14": 0.18, "16": 0.2}, "r2_sdar": 0.1} if honest else {}
    elif setting.reads == "labels":
        values |= {"leak of census_office": 0.6, "leak of employer": 0.6 + own, "together": 0.6 + 0.001 * seed}
    elif setting.reads == "predictions":
        values |= {"success of 1": 0.2 + own + 0.001 * seed, "success of 2": 0.3 + own}
    return TrialResult(group, setting.name, seed, 0.9, 1.0, {}, {}, values)


def results_of(gain: float, *, seeds: int = 20, alarms: bool = True) -> list[TrialResult]:
    own = [
        result(group, setting, seed, gain, alarms)
        for seed in range(1, seeds + 1)
        for group in (ADULT, *HALVES)
        for setting in settings_of(group, seed)
    ]
    fresh = [
        result(group, setting, seed, gain, alarms)
        for seed in range(FIRST_FRESH, FIRST_FRESH + TIMES_FRESH * seeds)
        for group in (ADULT, *HALVES)
        for setting in fresh_settings(group)
    ]
    return own + fresh


def verdicts(results: list[TrialResult]) -> dict[str, Kind]:
    return {claim.text: claim.verdict.kind for claim in malicious_page(Results(results)).claims}


def test_verdicts_follow_from_the_gains_and_the_alarms() -> None:
    strong, none = verdicts(results_of(0.1)), verdicts(results_of(0.0, alarms=False))
    for group in (ADULT, *HALVES):
        gains = f"{group}: a hijack rebuilds more than `inversion` (R²)"
        seen = f"{group}: the partner's guard sees the hijack, in 19 of 20 trainings"
        hidden = f"{group}: a hijack that knows the guard (`hidden hijack`) gains nothing (below 0.01)"
        assert (strong[gains], strong[seen], strong[hidden]) == (Kind.HOLDS, Kind.HOLDS, Kind.FAILS)
        assert (none[seen], none[hidden]) == (Kind.FAILS, Kind.HOLDS)
        assert none[gains] is not Kind.HOLDS
    probes = "label owner with max_norm: no probe gains 0.03 of leak; here the largest gain"
    assert (strong[probes], none[probes]) == (Kind.FAILS, Kind.HOLDS)


def test_a_hijack_is_compared_with_the_honest_training_at_the_step_of_its_alarm() -> None:
    text = f"{ADULT}: until the alarm a hijack has gained less than half of its gain (excess of R²)"
    claim = next(claim for claim in malicious_page(Results(results_of(0.1))).claims if claim.text == text)
    assert claim.ours.startswith("−0.040")  # 0.2 - 0.19 - 0.1 / 2
    assert claim.verdict.kind is Kind.HOLDS


def test_each_honest_training_counts_once() -> None:
    """What is read of a training does not make it another one, and the rate is that of fresh trainings alone."""
    page = malicious_page(Results(results_of(0.1)))
    rate = next(claim for claim in page.claims if claim.text.startswith("Fresh"))
    trainings = {(each.group, each.setting, each.seed) for each in results_of(0.1) if each.setting.startswith("honest")}
    repeated = {key for key in trainings if "backdoor" in key[1] or key[1].endswith("; none") or "once" in key[1]}
    assert (rate.ours, rate.verdict.kind) == ("0 of 1300", Kind.HOLDS)
    (table,) = (each for each in page.sections[-2].blocks if isinstance(each, Table))
    assert sum(int(row[1]) for row in table.rows) == len(trainings - repeated) + 1300


def test_trainings_whose_alarms_are_not_known_count_for_no_guard() -> None:
    """What was read of them counts."""
    unknown = {"alarms", "active_alarm", "passive_alarm", "r2_alarm"}
    few = [
        each
        if each.seed < 4 or each.seed > 276
        else replace(each, measured={key: value for key, value in each.measured.items() if key not in unknown})
        for each in results_of(0.1)
    ]
    all_known, known = verdicts(results_of(0.1)), verdicts(few)
    seen = f"{CIFAR}: the partner's guard sees the hijack, in 19 of 20 trainings"
    gains = f"{CIFAR}: a hijack rebuilds more than `inversion` (R²)"
    assert (all_known[seen], known[seen]) == (Kind.HOLDS, Kind.OPEN)
    assert known[gains] is Kind.HOLDS
    rate = next(claim for claim in malicious_page(Results(few)).claims if claim.text.startswith("Fresh"))
    assert (rate.ours, rate.verdict.kind) == ("0 of 52", Kind.OPEN)


def test_few_seeds_settle_no_share_of_trainings_and_few_trainings_no_rate() -> None:
    few = verdicts(results_of(0.1, seeds=3))
    assert few[f"{CIFAR}: the partner's guard sees the hijack, in 19 of 20 trainings"] is Kind.OPEN
    rate = next(text for text in few if text.startswith("Fresh honest trainings"))
    assert few[rate] is Kind.OPEN


def test_the_page_is_written(tmp_path: Path) -> None:
    page = page_of(MaliciousStudy(), results_of(0.1, seeds=2), tmp_path / "out")
    assert "## False alarms" in page
    assert "| hijack | 0.601" in page
