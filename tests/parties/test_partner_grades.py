"""Grades where columns of the label owner's table refer to each partner's rows: which row's drawn label a row has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from cutlayer.audit.empirical import label_game
from cutlayer.audit.guarantees.grades import grade_votes
from cutlayer.channel import Kind
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.label_rows import label_rows
from cutlayer.parties.phases import labels as labels_phase
from cutlayer.training.keys import Keys
from tests.parties.interruptions import halves, left_at_renames
from tests.parties.processes import lay_out
from tests.parties.runs import ACTIVE, KEY, record, run
from tests.parties.stars import LAND, TELCO, graded_star, raw_graded_star, star
from tests.parties.threads import run_apart

GIVEN, JOB = star(0, 900), graded_star()
SECRET = bytes(range(16))


def ids_of(rows: int) -> Any:
    return np.random.default_rng(1).integers(256, size=(rows, 16), dtype=np.uint8)


def test_each_row_has_the_label_of_a_training_row_that_refers_to_it_or_of_any() -> None:
    draw = np.random.default_rng(0)
    numbers = draw.integers(-1, 60, size=200)
    training = np.flatnonzero(draw.random(200) < 0.7)
    own = np.flatnonzero(draw.random(60) < 0.8)
    rows, refers = label_rows(numbers, ids_of(60), ids_of(200), training, own, SECRET)
    known = set(numbers[training].tolist())
    assert refers.tolist() == [each in known for each in own.tolist()]
    assert 0 < (~refers).sum() < len(own) / 3
    assert set(rows.tolist()) <= set(training.tolist())
    assert (numbers[rows[refers]] == own[refers]).all()
    assert (numbers[rows[~refers]] != own[~refers]).all()
    again, _ = label_rows(numbers, ids_of(60), ids_of(200), training, own, SECRET)
    assert again.tolist() == rows.tolist()
    assert label_rows(numbers, ids_of(60), ids_of(200), training, own, SECRET[::-1])[0].tolist() != rows.tolist()


def test_of_rows_that_refer_to_one_each_is_drawn_as_often() -> None:
    """Within 4 standard deviations of a third; a choice of the first row is 50 away."""
    numbers = np.repeat(np.arange(3000), 3)
    rows, refers = label_rows(numbers, ids_of(3000), ids_of(9000), np.arange(9000), np.arange(3000), SECRET)
    assert refers.all()
    counts = np.bincount(rows % 3)
    assert np.abs(counts - 1000).max() < 4 * (3000 * 2 / 9) ** 0.5


def test_rows_that_no_training_row_refers_to_have_labels_of_all() -> None:
    numbers = np.full(4000, -1)
    rows, refers = label_rows(numbers, ids_of(4000), ids_of(4000), np.arange(0, 4000, 2), np.arange(4000), SECRET)
    assert not refers.any()
    assert (rows % 2 == 0).all()
    halves_ = np.bincount((rows >= 2000).astype(int))
    assert np.abs(halves_ - 2000).max() < 4 * (4000 / 4) ** 0.5


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run: its folder, what it returned and sent, and the rows whose labels it chose."""
    folder, chosen, choose = tmp_path_factory.mktemp("whole"), list[int](), labels_phase.label_rows

    def noting(*given: Any) -> Any:
        rows, refers = choose(*given)
        chosen.extend(rows.tolist())
        return rows, refers

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(labels_phase, "label_rows", noting)
        messages = record(patched)
        trained = run(JOB, GIVEN, folder)
    return folder, trained, messages, chosen


def sent(messages: Any, name: str) -> Tensor:
    parts = [each.tensors["labels"] for each in messages if each.kind is Kind.LABELS and each.receiver == name]
    return torch.cat(parts).long()


def test_one_label_and_one_grade_of_each_row_of_a_partner_cross(whole: Any) -> None:
    _, trained, messages, _ = whole
    for name in (TELCO, LAND):
        released = [each for each in messages if each.kind is Kind.RELEASE and each.sender == name]
        common = trained.passives[name].alignment.links[0].run
        assert sum(each.tensors["embedding"].shape[0] for each in released) == common
        train = sum(len(each.tensors["embedding"]) for each in released if each.step == 0)
        assert 0 < len(sent(messages, name)) == train < common
    (evidence,) = (each for each in trained.active.evidence if each.protection == "label_dp")
    assert evidence.metrics["rows"] == len(trained.active.split.train)


def test_a_pilot_sends_the_labels_of_all_rows(whole: Any, tmp_path: Path) -> None:
    """Those that a partner does not release train its model too, by labels of rows that refer to them."""
    with pytest.MonkeyPatch.context() as patched:
        messages = record(patched)
        run(JOB, GIVEN, tmp_path, pilot=40)
    for name in (TELCO, LAND):
        assert torch.equal(sent(messages, name), sent(whole[2], name))


def test_it_adds_to_the_label_owners_columns(tmp_path: Path) -> None:
    active = run(JOB, star(0, 4000), tmp_path).active
    assert active.metrics["auc"] > active.task.evaluate(active.logits_without[TELCO, LAND], active.labels)["auc"] + 0.02


def test_no_message_depends_on_the_label_of_a_row_that_is_not_chosen(whole: Any, tmp_path: Path) -> None:
    """Labels of held-out rows, and of training rows of which none was sent, can be any."""
    folder, trained, messages, chosen = whole
    positions = trained.active  # the common order is that of the digests, which the run's record has
    order = _order(folder)
    free = np.setdiff1d(np.arange(len(GIVEN[ACTIVE])), np.unique(chosen))
    assert len(free) > len(positions.split.test)
    flipped = GIVEN[ACTIVE]["label"].to_pylist()
    for row in order[free].tolist():
        flipped[row] = {"bad": "good", "good": "bad"}[flipped[row]]
    changed = {**GIVEN, ACTIVE: GIVEN[ACTIVE].set_column(5, "label", pa.array(flipped))}
    with pytest.MonkeyPatch.context() as patched:
        again = record(patched)
        run(JOB, changed, tmp_path / "changed")
    for name in (TELCO, LAND):
        assert torch.equal(sent(again, name), sent(messages, name))


def _order(folder: Path) -> Any:
    from cutlayer.parties.agreement.partners import Partners
    from cutlayer.parties.session.checkpoint import Checkpoints

    found = Partners.load(Checkpoints(folder / "checkpoint" / ACTIVE, ACTIVE, JOB.digest()))
    assert found is not None
    return found.positions


def test_a_run_that_dies_at_any_file_is_resumed_to_the_same_end(whole: Any, tmp_path: Path) -> None:
    left = left_at_renames(tmp_path / "run", lambda: run(JOB, GIVEN, tmp_path / "run"), range(0, 100, 24))
    assert len(left) >= 2
    for folder in left.values():
        assert torch.equal(run(JOB, GIVEN, folder, resume=True).active.logits, whole[1].active.logits)


def test_organisations_with_private_set_intersection_have_the_same_run(whole: Any, tmp_path: Path) -> None:
    sites = lay_out(tmp_path, raw_graded_star(), GIVEN)
    run_apart(sites)
    for name, site in sites.items():
        one = JOB.model_copy(update={"parties": {name: JOB.parties[name]}})
        mine, other = halves(site.run, one)[name], halves(whole[0], JOB)[name]
        assert [key for key, value in other.items() if not bool((mine[key] == value).all())] == []


def test_the_audit_has_the_labels_that_each_partner_was_sent(tmp_path: Path) -> None:
    made = raw_graded_star()
    made["parties"][ACTIVE]["audit"] = {"attacks": ["sent_labels"], "collusion": True}
    job = graded_star(made)
    summary = execute(job, tmp_path, Options(Keys(tmp_path / "keys", KEY), tables=star(0, 1500)), Progress()).summary
    assert summary.data.held.keys() == {TELCO, LAND}
    leaks = {leak.party: leak.leak for leak in _leaks(tmp_path)}
    assert {TELCO, LAND} <= leaks.keys()
    assert all(0.5 < value < 0.95 for value in leaks.values())


def _leaks(folder: Path) -> Any:
    from cutlayer.results.run import RunKind
    from cutlayer.training.folder import RunFolder

    return [leak for leak in RunFolder(folder).audit.runs[RunKind.THIS_RUN].leaks if leak.attack == "sent_labels"]


@pytest.mark.parametrize(("epsilon", "classes"), [(1.0, 2), (2.0, 4)])
def test_the_label_of_all_rows_that_refer_to_one_stays_under_epsilon(epsilon: float, classes: int) -> None:
    """Of three rows, whose labels are a fair coin for all, one draw is sent."""
    votes = grade_votes("labels", {"label_dp": {"eps": epsilon}}, {}, classes, 4000, KEY, 3, referring=True)
    assert 0.6 * epsilon < label_game(*votes).lower_bound < epsilon


def test_the_undefended_baseline_is_refused_since_it_trains_by_steps() -> None:
    made = raw_graded_star() | {"compare": ["undefended"]}
    with pytest.raises(ConfigError, match="expected no compare: undefended with parties"):
        check_job(graded_star(made))


@pytest.mark.parametrize("epsilon", ["1.0", None])
def test_an_epsilon_that_is_no_number_is_refused_as_such(epsilon: Any) -> None:
    made = raw_graded_star()
    made["parties"][ACTIVE]["privacy"]["label_dp"]["eps"] = epsilon
    with pytest.raises(ConfigError, match=r"label_dp.eps: expected a number, got"):
        check_job(graded_star(made))


def test_too_few_labels_are_refused_by_those_that_refer_to_a_row(tmp_path: Path) -> None:
    made = raw_graded_star()
    made["model"]["bottom"][LAND]["least_rows"] = 100
    with pytest.raises(ConfigError, match=r"drawn labels worth 100 rows or more to shop, got about \d+ by"):
        run(graded_star(made), GIVEN, tmp_path)
