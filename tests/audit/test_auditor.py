"""The auditor: the same figures live and replayed, the worst epoch, and what it does where an attack cannot run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from cutlayer.attacks import resolve
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.audit.auditor import AttackTarget, Auditor, LeakSeries
from cutlayer.audit.leak import Leak, leak_interval, leak_of
from cutlayer.channel.transcript import Step, read_epochs, unsynced_epoch
from cutlayer.problem.task import Task
from tests.audit.steps import ACTIVE, PASSIVE, step, telling

BINARY = Task("binary", ("no", "yes"))
TRUTH = (torch.arange(400) % 5 == 0).long()
ROWS = torch.randperm(400, generator=torch.Generator().manual_seed(0))
EPOCHS = {
    epoch: [telling(epoch, number, ROWS[200 * number : 200 * (number + 1)], TRUTH, strength) for number in range(2)]
    for epoch, strength in enumerate((0.5, 3.0, 0.0))
}
NAMES = ("norm", "direction", "spectral")


def auditor(names: Sequence[str] = NAMES, task: Task = BINARY, truth: torch.Tensor = TRUTH) -> Auditor:
    return Auditor(task, truth, torch.arange(400), resolve(names, task.kind).labels, ACTIVE, seed=1)


def fed(steps: dict[int, list[Step]] = EPOCHS) -> Auditor:
    made = auditor()
    for epoch, some in steps.items():
        made.take(epoch, {ACTIVE: some})
    return made


def test_every_link_and_layer_has_its_cells() -> None:
    assert sorted(key.label for key in fed().series) == [
        f"{ACTIVE}/layer:layer/spectral",
        f"{PASSIVE}/embedding/spectral",
        f"{PASSIVE}/gradient/direction",
        f"{PASSIVE}/gradient/norm",
        f"{PASSIVE}/gradient/spectral",
    ]


def test_what_an_epoch_returns_is_its_leak_without_the_layers() -> None:
    made = auditor()
    found = made.take(1, {ACTIVE: EPOCHS[1]})
    assert found.keys() == {key.label for key in made.series if key.target is not Target.LAYER}
    assert all(found[key.label] == series.leaks[1].value for key, series in made.series.items() if not key.layer)
    assert found[f"{PASSIVE}/gradient/norm"] > 0.95


def test_the_worst_epoch_is_kept_with_its_scores() -> None:
    for key, series in fed().series.items():
        aucs = {epoch: leak.value for epoch, leak in series.leaks.items()}
        assert series.worst_epoch == max(aucs, key=aucs.__getitem__), key
        assert key.attack != "norm" or series.worst_epoch == 1
        assert series.worst == series.leaks[series.worst_epoch]
        assert series.worst_scores is not None
        assert leak_of(series.worst_scores, TRUTH == 1) == series.worst


def test_the_interval_is_of_the_worst_epoch() -> None:
    made = fed()
    key = AttackTarget(PASSIVE, Target.GRADIENT, "spectral")
    scores = made.series[key].worst_scores
    assert scores is not None
    assert made.interval(key) == leak_interval(scores, TRUTH == 1)


def test_replayed_from_disk_every_figure_is_the_same(tmp_path: Path) -> None:
    for epoch, steps in EPOCHS.items():
        unsynced_epoch(tmp_path, epoch, steps).finish()
    live, again = fed(), fed(dict(read_epochs(tmp_path)))
    assert live.series.keys() == again.series.keys()
    for key, series in live.series.items():
        assert again.series[key].leaks == series.leaks
        assert again.series[key].worst_epoch == series.worst_epoch
        assert again.interval(key) == live.interval(key)


def test_taking_an_epoch_twice_changes_nothing() -> None:
    once, twice = fed(), fed()
    twice.take(1, {ACTIVE: EPOCHS[1]})
    assert {key: series.leaks for key, series in twice.series.items()} == {
        key: series.leaks for key, series in once.series.items()
    }


def test_other_parties_add_their_layers_and_no_links() -> None:
    made = auditor()
    made.take(0, {ACTIVE: EPOCHS[0], PASSIVE: [step(0, 0, ROWS[:50], layers=("a", "b"))]})
    layers = [(key.party, key.layer, key.index) for key in sorted(made.series) if key.target is Target.LAYER]
    assert layers == [(ACTIVE, "layer", 0), (PASSIVE, "a", 0), (PASSIVE, "b", 1)]


def leak(auc: float) -> Leak:
    return Leak(batch_auc=auc, pooled_auc=auc, rows=1, positives=1, batches=1)


@pytest.mark.parametrize(
    ("aucs", "worst"),
    [
        ([0.6, 0.7, 0.65], 1),
        ([0.6, 0.2, 0.7], 1),
        ([0.6, 0.4], 0),
        ([math.nan, 0.5], 1),
        ([0.5, math.nan], 0),
        ([math.nan, math.nan], 0),
        ([0.5, 0.5], 0),
    ],
)
def test_the_worst_is_the_farthest_from_chance_and_the_first_of_equals(aucs: list[float], worst: int) -> None:
    series = LeakSeries()
    scores = [Scores(torch.tensor([n]), torch.zeros(1), torch.zeros(1)) for n in range(len(aucs))]
    for epoch, auc in enumerate(aucs):
        series.add(epoch, leak(auc), scores[epoch])
    assert series.worst_epoch == worst
    assert series.worst_scores is scores[worst]
    assert list(series.leaks) == list(range(len(aucs)))


def test_gradients_that_are_not_numbers_are_left_out_and_said() -> None:
    """Training that diverges in one step leaves the others to be attacked; where all are lost, the reason is kept."""
    good, bad = EPOCHS[1]
    broken = Step(1, 1, bad.rows, bad.embeddings, {PASSIVE: torch.full_like(bad.gradients[PASSIVE], math.nan)}, {})
    half, none = auditor(["norm"]), auditor(["norm"])
    half.take(1, {ACTIVE: [good, broken]})
    [series] = half.series.values()
    assert series.worst.rows == 200
    assert half.skipped == {}
    assert none.take(1, {ACTIVE: [broken]}) == {}
    assert none.series == {}
    assert [skipped.label for skipped in none.results("this run", ()).skipped] == [f"{PASSIVE}/gradient/norm"]


def test_a_step_of_one_class_has_no_auc_but_is_counted() -> None:
    rows = torch.nonzero(TRUTH == 0).flatten()[:50]
    made = auditor(["norm"])
    found = made.take(0, {ACTIVE: [step(0, 0, rows)]})
    [auc] = found.values()
    assert math.isnan(auc)
    [key] = made.series
    assert made.series[key].worst.rows == 50
    assert all(math.isnan(bound) for bound in made.interval(key))


def test_without_steps_nothing_is_found() -> None:
    made = auditor()
    assert made.take(0, {ACTIVE: []}) == {}
    assert made.take(0, {}) == {}
    assert made.series == {}


def test_the_known_rows_are_never_scored() -> None:
    made = auditor(["direction"])
    made.take(1, {ACTIVE: EPOCHS[1]})
    [series] = made.series.values()
    assert series.worst_scores is not None
    assert series.worst.rows == 400 - 2
    assert len(series.worst_scores.rows.unique()) == 398
