"""Attacks that know a few values of a regression, against ridge regressions and neighbours written out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Target
from cutlayer.attacks.label.few_labels import PENALTIES, FewLabels, fit_and_score, inputs_of
from cutlayer.attacks.label.history import HistoryView
from cutlayer.attacks.label.strong_probe import NEIGHBOURS, StrongProbe
from cutlayer.audit.known_labels import leaks_by_variant
from cutlayer.channel.row_history import FollowedEpoch
from cutlayer.errors import NotApplicable
from cutlayer.kernels.statistics.concordance import concordance
from cutlayer.kernels.statistics.normal_scores import normal_scores
from cutlayer.problem.task import Task

ROWS, WIDTH, PARTY = 900, 6, "telco"
TASK = Task("regression")


def view_of(embeddings: Tensor | None, gradients: Tensor | None = None) -> HistoryView:
    messages = [{} if matrix is None else {PARTY: matrix} for matrix in (embeddings, gradients)]
    epoch = FollowedEpoch(0, torch.arange(ROWS), torch.zeros(ROWS, dtype=torch.int64), *messages)
    return HistoryView(PARTY, TASK, [epoch], target=Target.EMBEDDING if gradients is None else Target.GRADIENT)


def planted(seed: int = 0, noise: float = 0.2) -> tuple[Tensor, Tensor]:
    """Embeddings, and values with heavy tails of which one direction has the order."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, WIDTH, generator=draw)
    return x, (2 * (x[:, 1] + noise * torch.randn(ROWS, generator=draw))).exp()


def knowing(values: Tensor, count: int) -> Knowledge:
    return Knowledge(known={row: float(values[row]) for row in range(0, ROWS, ROWS // count)})


def test_values_are_known_to_the_last_bit() -> None:
    """In float32 two large values would be one."""
    rows = torch.tensor([2, 3, 7, 9])
    indices, values = Knowledge(known={9: 2.0**30 + 1, 3: 2.0**30}).labels_among(rows)
    assert (indices.tolist(), values.tolist()) == ([1, 3], [2.0**30, 2.0**30 + 1])
    assert values.dtype == torch.float64
    assert Knowledge(known={9: 1, 3: 0}).labels_among(rows)[1].dtype == torch.int64
    assert Need.FEW_LABELS in Knowledge(known={3: -0.5}).held()


def test_the_score_is_a_ridge_regression_of_normal_scores() -> None:
    """Written out, with the penalty for which each known row is predicted best by a fit without it."""
    x, values = planted()
    knowledge = knowing(values, 30)
    scores = FewLabels()(view_of(x), knowledge)
    inputs, _ = inputs_of(view_of(x))
    known = np.array(list(knowledge.known))
    wanted = normal_scores(values[known]).numpy()

    def fitted(rows: np.ndarray, targets: np.ndarray, penalty: float) -> np.ndarray:
        mean = inputs[rows].mean(axis=0)
        moved = inputs[rows] - mean
        weights = np.linalg.solve(moved.T @ moved + penalty * np.eye(WIDTH), moved.T @ (targets - targets.mean()))
        return (inputs - mean) @ weights + targets.mean()

    def left_out(penalty: float) -> float:
        errors = []
        for own in range(len(known)):
            others = np.arange(len(known)) != own
            errors.append(wanted[own] - fitted(known[others], wanted[others], penalty)[known[own]])
        return float(np.square(errors).mean())

    best = min(PENALTIES, key=left_out)
    assert best not in (PENALTIES[0], PENALTIES[-1])
    np.testing.assert_allclose(scores.values.numpy(), fitted(known, wanted, best)[scores.rows], atol=1e-5)
    assert not set(scores.rows.tolist()) & knowledge.known.keys()
    assert concordance(scores.values, values[scores.rows]) > 0.9


def test_outliers_do_not_rule_the_fit() -> None:
    """The same values on their own scale: a ridge regression of the largest one, more or less."""
    x, values = planted(noise=0.5)
    knowledge = knowing(values**3, 40)
    scores = FewLabels()(view_of(x), knowledge)
    known = torch.tensor(list(knowledge.known))
    raw = np.linalg.lstsq(np.c_[x[known], np.ones(len(known))], (values**3)[known].numpy(), rcond=None)[0]
    plain = torch.from_numpy(x.numpy() @ raw[:-1])[scores.rows]
    actual = values[scores.rows]
    assert concordance(scores.values, actual) > concordance(plain, actual) + 0.02


def test_neighbours_are_weighted_by_the_inverse_distance() -> None:
    x, values = planted()
    knowledge = knowing(values, 60)
    scores = StrongProbe()(view_of(x), knowledge)
    inputs, _ = inputs_of(view_of(x))
    known = torch.tensor(list(knowledge.known))
    wanted = normal_scores(values[known])
    for number in (0, 100, 500):
        distances = torch.from_numpy(inputs[known] - inputs[scores.rows[number]]).square().sum(dim=1).sqrt()
        nearest = distances.argsort()[:NEIGHBOURS]
        weights = 1 / distances[nearest]
        assert float(scores.values[number]) == pytest.approx(float((weights * wanted[nearest]).sum() / weights.sum()))
    assert set(scores.also) == {"trees", "rbf"}


def test_what_is_not_linear_is_read_by_squares_and_by_the_strong_probe() -> None:
    """Values by the distance from the centre: no direction has anything of them."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(ROWS, 3, generator=draw)
    values = x.square().sum(dim=1)
    knowledge = knowing(values, 180)
    linear = {name: leak.value for name, leak in leaks_by_variant(FewLabels()(view_of(x), knowledge), values).items()}
    assert linear[""] < 0.6
    assert linear["squares"] > 0.95
    strong = leaks_by_variant(StrongProbe()(view_of(x), knowledge), values)
    assert all(leak.value > 0.75 for leak in strong.values())


def test_the_prediction_is_added_to_the_residual() -> None:
    """A model that has learned leaves a residual that says little of the value; the embedding has the rest."""
    draw = torch.Generator().manual_seed(4)
    x = torch.randn(ROWS, 3, generator=draw)
    values = x[:, 0] + 0.5 * torch.randn(ROWS, generator=draw)
    residual = (x[:, 0] - values)[:, None] * torch.tensor([1.0, -2.0, 0.5])
    knowledge = knowing(values, 100)
    leaks = {
        name: leak.value
        for name, leak in leaks_by_variant(FewLabels()(view_of(x, residual), knowledge), values).items()
    }
    assert leaks["both"] > 0.98
    assert leaks[""] < 0.7
    strong = leaks_by_variant(StrongProbe()(view_of(x, residual), knowledge), values)
    assert strong["both"].value > strong["trees"].value + 0.1
    alone = FewLabels()(view_of(None, residual), knowledge)
    assert "both" not in alone.also
    classes = replace(view_of(x, residual), task=Task("binary", ("0", "1")))
    assert "both" not in FewLabels()(classes, Knowledge(known={0: 1, 5: 0})).also


@pytest.mark.parametrize("attack", [FewLabels, StrongProbe])
def test_permuted_values_are_not_found(
    attack: type[FewLabels] | type[StrongProbe], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five permutations: the concordance of 700 rows has a standard deviation of 0.0126, its mean of five 0.006."""
    monkeypatch.setattr("cutlayer.attacks.label.strong_probe.TREES", 15)
    x, values = planted()
    found: dict[str, list[float]] = {}
    for draw in range(5):
        random = values[torch.randperm(ROWS, generator=torch.Generator().manual_seed(draw))]
        scores = attack()(view_of(x), knowing(random, 200))
        for name, values_of in {"": scores.values, **scores.also}.items():
            found.setdefault(name, []).append(concordance(values_of, random[scores.rows]))
    assert all(math.fsum(each) / 5 == pytest.approx(0.5, abs=0.02) for each in found.values())


def test_equal_values_are_scored_by_likeness() -> None:
    """Hours of work are 40 in most rows, so all that are known may be."""
    x, _ = planted()
    knowledge = Knowledge(known={3: 40.0, 8: 40.0})
    scores = FewLabels()(view_of(x), knowledge)
    inputs, _ = inputs_of(view_of(x))
    mean = inputs[[3, 8]].mean(axis=0)
    cosines = inputs @ mean / np.linalg.norm(inputs, axis=1) / np.linalg.norm(mean)
    np.testing.assert_allclose(scores.values.numpy(), cosines[scores.rows], atol=1e-5)
    with pytest.raises(NotApplicable, match="known rows of two labels"):
        StrongProbe()(view_of(x), knowledge)


def test_own_columns_are_read_as_they_are_stored() -> None:
    """Sparse and dense inputs give the same."""
    x, values = planted()
    hot = torch.where(x > 1, x, torch.zeros_like(x)).double().numpy()
    known = torch.arange(0, ROWS, 9)
    dense = fit_and_score((hot,), known, values[known].double(), TASK)
    for blocks in ((sparse.csr_matrix(hot),), (hot[:, :2], sparse.csr_matrix(hot[:, 2:]))):
        torch.testing.assert_close(fit_and_score(blocks, known, values[known].double(), TASK), dense)
