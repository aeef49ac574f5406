"""Metrics of rows that lie in files are those of the rows in memory, and need no memory for each row."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn import metrics

from cutlayer.problem.metrics.counted_groups import count_groups
from cutlayer.problem.metrics.held_out_metrics import Ranking
from cutlayer.problem.metrics.roc import roc_auc, tie_groups
from cutlayer.problem.task import Task
from cutlayer.storage import row_arrays
from cutlayer.training.quality import quality
from cutlayer.training.utility import chance_metrics, interval

BINARY, MULTICLASS = Task("binary", ("no", "yes")), Task("multiclass", ("a", "b", "c", "d"))


def binary(rows: int, *, ties: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(rows)
    logits = torch.randn(rows, 1, generator=draw)
    if ties:
        logits = (4 * logits).round() / 4
        logits[::40] = 50.0  # a probability of 1
    return logits, (torch.rand(rows, generator=draw) < torch.sigmoid(logits[:, 0])).long()


def multiclass(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(rows)
    logits = torch.randn(rows, 4, generator=draw)
    return logits, (logits + torch.randn(rows, 4, generator=draw)).argmax(dim=1)


def regression(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(rows)
    logits = torch.randn(rows, 1, generator=draw)
    return logits, 3 + 2 * (logits[:, 0] + torch.randn(rows, generator=draw))


CASES: Mapping[str, Callable[[], tuple[Task, torch.Tensor, torch.Tensor]]] = {
    "binary": lambda: (BINARY, *binary(700)),
    "binary with ties": lambda: (BINARY, *binary(700, ties=True)),
    "constant": lambda: (BINARY, torch.zeros(700, 1), binary(700)[1]),
    "one class": lambda: (BINARY, binary(700)[0], torch.ones(700, dtype=torch.int64)),
    "multiclass": lambda: (MULTICLASS, *multiclass(700)),
    "regression": lambda: (Task.fitted("regression", (), regression(700)[1]), *regression(700)),
}


def figures(task: Task, logits: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
    measured = {
        **task.evaluate(logits, labels),
        **{f"chance {k}": v for k, v in chance_metrics(task, labels, labels).items()},
    }
    return {**measured, "quality": quality(task, logits, labels, 0.3).model_dump()}


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_arrays, "LARGE_BYTES", 1)
    monkeypatch.setattr(row_arrays, "CHUNK_ROWS", 37)


@pytest.mark.filterwarnings("ignore:Only one class is present", "ignore:No positive class")
@pytest.mark.parametrize("case", CASES)
def test_metrics_do_not_depend_on_where_the_rows_lie(request: pytest.FixtureRequest, case: str) -> None:
    task, logits, labels = CASES[case]()
    in_memory = figures(task, logits, labels)
    request.getfixturevalue("in_files")
    in_file = figures(task, logits, labels)
    measured, expected = in_file.pop("quality"), in_memory.pop("quality")
    assert in_file == pytest.approx(in_memory, rel=1e-12, nan_ok=True)
    assert measured["confusions"] == expected["confusions"]
    assert measured["metrics"] == pytest.approx(expected["metrics"], rel=1e-12)
    for own, other in zip(measured["bins"], expected["bins"], strict=True):
        assert own == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_the_interval_of_an_auc_does_not_depend_on_where_the_rows_lie(
    request: pytest.FixtureRequest, ties: bool
) -> None:
    logits, labels = binary(3000, ties=ties)
    in_memory = interval(BINARY, logits, labels, seed=1)
    request.getfixturevalue("in_files")
    assert interval(BINARY, logits, labels, seed=1) == pytest.approx(in_memory, rel=1e-12)


@pytest.mark.usefixtures("in_files")
@pytest.mark.parametrize("case", ["multiclass", "regression"])
def test_rows_that_are_resampled_in_parts_have_the_same_interval_up_to_its_noise(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    task, logits, labels = CASES[case]()
    parts = interval(task, logits, labels, seed=1)
    monkeypatch.setattr(row_arrays, "CHUNK_ROWS", 700)
    whole = interval(task, logits, labels, seed=1)
    width = whole[1] - whole[0]
    assert parts == pytest.approx(whole, abs=width / 5)


@pytest.mark.usefixtures("in_files")
def test_groups_of_equal_scores_are_counted_over_any_number_of_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    cases: tuple[npt.NDArray[np.float64], ...] = (
        draw.normal(size=500),
        draw.integers(0, 4, 500) * 1.0,
        np.zeros(500),
        np.array([-np.inf, 0.0, -0.0]),
    )
    for scores in cases:
        positive = draw.random(len(scores)) < 0.3
        counts = count_groups(scores, positive)
        monkeypatch.setattr(row_arrays, "CHUNK_ROWS", 10**6)
        groups = tie_groups(scores, positive)
        monkeypatch.setattr(row_arrays, "CHUNK_ROWS", 37)
        np.testing.assert_array_equal(counts, np.column_stack([groups.positives, groups.negatives]))


@pytest.mark.parametrize("fixture", ["monkeypatch", "in_files"], ids=["in memory", "in files"])
def test_ranking_metrics_are_those_of_scikit_learn(request: pytest.FixtureRequest, fixture: str) -> None:
    request.getfixturevalue(fixture)
    logits, labels = binary(900, ties=True)
    scores, positive = BINARY.predicted(logits)[:, 1], labels.numpy() == 1
    ranking = Ranking.of(scores, positive)
    false, true, _ = metrics.roc_curve(positive, scores)
    assert roc_auc(scores, positive) == pytest.approx(metrics.roc_auc_score(positive, scores), rel=1e-12)
    assert ranking.ks() == pytest.approx(np.max(true - false), rel=1e-12)
    assert ranking.average_precision() == pytest.approx(metrics.average_precision_score(positive, scores), rel=1e-12)


@pytest.mark.parametrize("case", ["binary", "regression"])
def test_memory_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr(row_arrays, "LARGE_BYTES", 1 << 14)
    monkeypatch.setattr(row_arrays, "CHUNK_ROWS", 500)
    rows = 75_000
    task = BINARY if case == "binary" else Task("regression")
    logits, labels = binary(rows) if case == "binary" else regression(rows)
    tracemalloc.start()
    task.evaluate(logits, labels)
    quality(task, logits, labels, 0.3)
    if case == "binary":
        interval(task, logits, labels, seed=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * rows, "NumPy's own arrays in memory: less than one number of each row"
