"""The audit of all passive parties together, in runs: what it has, what it adds, and where it is left out."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from cutlayer.audit.history import partners
from cutlayer.config import Job, validated
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.report.build import build_report
from cutlayer.report.card.build import build_card
from cutlayer.report.html import render_html
from cutlayer.report.terminal import print_report
from cutlayer.results.audit import RunAudit
from cutlayer.results.leaks import Attacker
from cutlayer.results.report import Report
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from tests.parties.runs import ACTIVE, KEY, make_job, raw_job, tables
from tests.report.reading import answers

TOGETHER = "telco+shop"
ONE_SIDED = "inference of the columns of telco, shop by parties that collude"


def finish(folder: Path, passives: int = 2, **audit: object) -> RunFolder:
    raw = raw_job(passives=passives, audit={"rows": 64, "depth": "quick"}, epochs=2)
    raw["parties"][ACTIVE]["audit"] = {**raw["parties"][ACTIVE]["audit"], **audit}
    job = validated(Job, raw, "")
    return execute(job, folder / "run", Options(Keys(folder, KEY), tables=tables(passives=passives)), Progress())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return finish(tmp_path_factory.mktemp("together"), fail_above={"label_auc": 0.6})


@pytest.fixture(scope="module")
def audit(finished: RunFolder) -> RunAudit:
    return finished.audit.runs["this run"]


@pytest.fixture(scope="module")
def report(finished: RunFolder) -> Report:
    return build_report(finished.path)


def answer(report: Report, question: str) -> str:
    return next(answer.text for answer in answers(report) if answer.question == question)


def test_all_attacks_on_the_whole_run_read_what_both_have(audit: RunAudit) -> None:
    by_party = {
        party: {leak.label.split("/", 1)[1] for leak in audit.leaks if leak.party == party and leak.whole_run}
        for party in ("telco", "shop", TOGETHER)
    }
    spared = {attack.label.split("/", 1)[1] for attack in audit.unneeded if attack.party == TOGETHER}
    assert by_party[TOGETHER] | spared >= by_party["telco"] | by_party["shop"]
    assert by_party[TOGETHER] >= {"embedding/directions", "embedding/few_labels"}
    together = [leak for leak in audit.leaks if leak.party == TOGETHER]
    assert {leak.together for leak in together} == {("telco", "shop")}
    assert all(leak.together == () for leak in audit.leaks if leak.party != TOGETHER)
    assert all(leak.whole_run and leak.rows <= (leak.rows_recorded or 0) for leak in together)


def test_their_own_columns_are_all_of_theirs(audit: RunAudit) -> None:
    own = {baseline.party: baseline.own_columns or 0.0 for baseline in audit.baselines}
    assert own[TOGETHER] > max(own["telco"], own["shop"]) + 0.02, "each has columns that the label depends on"
    both = audit.baseline(TOGETHER)
    assert both is not None
    assert both.attacker == "telco and shop together"
    assert TOGETHER in {label.split("/")[0] for label in audit.excesses()}


def test_the_report_states_what_both_read(finished: RunFolder, report: Report) -> None:
    page = render_html(report)
    shown = io.StringIO()
    print_report(report, Console(file=shown, width=200))
    assert "telco and shop together" in shown.getvalue()
    assert "telco and shop together" in page
    assert "Parties together pool what they hold" in page
    assert TOGETHER + "<" not in page
    assert ONE_SIDED in answer(report, "Not measured")
    assert "pool what they hold" not in answer(report, "Not measured")
    card = build_card(finished.path)
    [learned] = [sentence for sentence in card.learns if sentence.startswith("telco and shop together")]
    assert "their own columns alone" in learned
    [strongest] = [each for each in card.evidence if each.together and each.strongest]
    assert strongest.attacker == "telco and shop together"
    assert strongest.naive_is == "what the own columns of telco and shop together reveal, without a message"
    assert f"No attack of this run tried: {ONE_SIDED}." in card.not_shown


def test_the_gate_is_that_of_the_worst_attacker(finished: RunFolder, audit: RunAudit) -> None:
    [gate] = finished.audit.gates
    assert gate.worst == max(leak.leak for leak in audit.leaks)


def test_it_can_be_switched_off(tmp_path: Path, audit: RunAudit) -> None:
    off = finish(tmp_path, collusion=False)
    alone = off.audit.runs["this run"]
    assert alone.leaks == tuple(leak for leak in audit.leaks if not leak.together)
    assert [baseline.party for baseline in alone.baselines] == ["telco", "shop"]
    stated = answer(build_report(off.path), "Not measured")
    assert "label inference by passive parties that pool what they hold" in stated


def test_a_single_party_has_nobody_to_collude_with(tmp_path: Path) -> None:
    single = finish(tmp_path, passives=1)
    assert {leak.party for leak in single.audit.runs["this run"].leaks} == {"telco"}
    assert "collusion of passive parties, of which this run has one" in answer(
        build_report(single.path), "Not measured"
    )


def test_who_attacks_together() -> None:
    assert partners(make_job(passives=1)) is None
    assert partners(make_job(passives=2, audit={"collusion": False})) is None
    three = partners(make_job(passives=3))
    assert three == Attacker(party="telco+shop+post", together=("telco", "shop", "post"))
    assert three is not None
    assert three.attacker == "telco, shop and post together"
