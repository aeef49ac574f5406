"""From scores to leak AUC: per batch and pooled against scikit-learn, and an interval that covers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, roc_auc_score

from cutlayer.attacks.label.base import Scores
from cutlayer.audit.leak import Leak, leak_interval, leak_of

PARTS = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 2**31 - 1)), min_size=1, max_size=5)


def scores_of(parts: list[tuple[int, int]], rounded: int = 1) -> tuple[Scores, torch.Tensor]:
    """Scores of a few batches over shuffled row numbers, with ties, and a truth for all rows."""
    total = sum(size for size, _ in parts)
    rows = torch.randperm(total + 10, generator=torch.Generator().manual_seed(parts[0][1]))[:total]
    draws = [np.random.default_rng(seed) for _, seed in parts]
    values = [torch.from_numpy(d.normal(size=n).round(rounded)) for (n, _), d in zip(parts, draws, strict=True)]
    batch = torch.cat([torch.full((size,), number) for number, (size, _) in enumerate(parts)])
    truth = torch.from_numpy(np.random.default_rng(parts[0][1]).random(total + 10) < 0.4)
    together = torch.cat(values)
    return Scores(rows, together, batch, together > 0.5, {"absolute": together.abs()}), truth


@settings(deadline=None)
@given(PARTS)
def test_leak_aucs_are_scikit_learns(parts: list[tuple[int, int]]) -> None:
    scores, truth = scores_of(parts)
    leak = leak_of(scores, truth)
    actual = truth[scores.rows].numpy()
    values, batch = scores.values.numpy(), scores.batch.numpy()
    batches = [batch == number for number in range(len(parts))]
    both = [part for part in batches if 0 < actual[part].sum() < part.sum()]
    expected = np.mean([roc_auc_score(actual[part], values[part]) for part in both]) if both else math.nan
    assert leak.batch_auc == pytest.approx(expected, nan_ok=True)
    assert leak.batches == len(both)
    assert (leak.rows, leak.positives) == (len(actual), actual.sum())
    pooled = 0 < actual.sum() < len(actual)
    assert leak.pooled_auc == pytest.approx(roc_auc_score(actual, values) if pooled else math.nan, nan_ok=True)
    assert scores.hard is not None
    hard = scores.hard.numpy()
    assert leak.hard_accuracy == pytest.approx(accuracy_score(actual, hard))
    assert leak.hard_auc == pytest.approx(roc_auc_score(actual, hard) if pooled else math.nan, nan_ok=True)
    if pooled:
        assert leak.other_aucs["absolute"] == pytest.approx(roc_auc_score(actual, np.abs(values)))


def test_batches_that_disagree_average_per_batch_and_mix_when_pooled() -> None:
    """Each batch is ranked perfectly, yet the second one's scores all lie above the first one's."""
    truth = torch.tensor([False, True, False, True])
    scores = Scores(torch.arange(4), torch.tensor([0.0, 1.0, 10.0, 11.0]).double(), torch.tensor([0, 0, 1, 1]))
    leak = leak_of(scores, truth)
    assert leak.batch_auc == 1.0
    assert leak.pooled_auc == 0.75
    assert leak.hard_auc is None
    assert leak.hard_accuracy is None


def test_one_class_alone_has_no_auc() -> None:
    scores = Scores(torch.arange(3), torch.arange(3).double(), torch.zeros(3, dtype=torch.int64))
    leak = leak_of(scores, torch.zeros(3, dtype=torch.bool))
    assert math.isnan(leak.batch_auc)
    assert leak.batches == 0
    assert all(math.isnan(bound) for bound in leak_interval(scores, torch.zeros(3, dtype=torch.bool)))


def made(positives: int, negatives: int, shift: float, seed: int) -> tuple[Scores, torch.Tensor]:
    """One batch of normal scores, the positive ones shifted."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.arange(positives + negatives) < positives
    values = torch.randn(len(truth), generator=draw).double() + shift * truth
    return Scores(torch.arange(len(truth)), values, torch.zeros(len(truth), dtype=torch.int64)), truth


def test_the_interval_covers_the_true_auc_as_often_as_it_says() -> None:
    actual = float(torch.special.ndtr(torch.tensor(0.8 / math.sqrt(2))))
    covered = 0
    for seed in range(200):
        scores, truth = made(60, 90, 0.8, seed)
        low, high = leak_interval(scores, truth)
        assert low <= leak_of(scores, truth).value <= high
        covered += low <= actual <= high
    assert 176 <= covered <= 199  # 95 % of 200, four standard deviations either way


def test_inverted_scores_have_the_same_leak_and_interval() -> None:
    scores, truth = made(60, 90, 0.8, 3)
    inverted = Scores(scores.rows, -scores.values, scores.batch)
    assert leak_of(inverted, truth).batch_auc == pytest.approx(1 - leak_of(scores, truth).batch_auc)
    assert leak_of(inverted, truth).value == pytest.approx(leak_of(scores, truth).value)
    assert leak_interval(inverted, truth) == pytest.approx(leak_interval(scores, truth), abs=0.02)


def test_the_interval_of_a_leak_at_chance_begins_at_chance() -> None:
    scores, truth = made(60, 90, 0.0, 3)
    low, high = leak_interval(scores, truth)
    assert low == 0.5
    assert 0.5 < high < 0.7


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_the_interval_of_a_mean_begins_at_chance_if_it_includes_it(kind: str) -> None:
    """The mean of three folded leaks at chance is above that of the first: moving an end that was cut would hide it."""
    scores, truth = made(60, 90, 0.0, 3)
    truth = truth if kind == "classes" else torch.randn(150, generator=torch.Generator().manual_seed(1))
    low, high = leak_interval(scores, truth)
    moved = leak_interval(scores, truth, shift=0.01)
    assert (low, moved[0]) == (0.5, 0.5)
    assert moved[1] == pytest.approx(high + 0.01)
    assert leak_interval(scores, truth, shift=0.6) == pytest.approx((1.0, 1.0), abs=0.05)


def test_more_batches_make_a_narrower_interval() -> None:
    single, truth = made(40, 60, 0.5, 0)
    many = Scores(single.rows.repeat(8), single.values.repeat(8), torch.arange(8).repeat_interleave(100))
    one, eight = (leak_interval(scores, truth) for scores in (single, many))
    assert (eight[1] - eight[0]) == pytest.approx((one[1] - one[0]) / math.sqrt(8), rel=0.2)


def test_a_higher_level_makes_a_wider_interval() -> None:
    scores, truth = made(40, 60, 0.5, 0)
    wide, narrow = (leak_interval(scores, truth, level=level) for level in (0.99, 0.5))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


@pytest.mark.parametrize("positives", [1, 2])
def test_an_interval_of_few_rows_warns_of_nothing(positives: int) -> None:
    """A single positive has no spread of its own."""
    scores, truth = made(positives, 2, 0.5, 0)
    low, high = leak_interval(scores, truth)
    assert 0 <= low <= high <= 1


def test_a_leak_is_plain_values() -> None:
    scores, truth = scores_of([(20, 1), (20, 2)])
    leak = leak_of(scores, truth)
    assert isinstance(leak, Leak)
    assert {type(value) for value in vars(leak).values()} <= {float, int, dict, type(None)}
