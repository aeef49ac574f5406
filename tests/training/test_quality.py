"""Ranking, calibration and errors of a model on held-out rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import auc, precision_score, recall_score, roc_auc_score, roc_curve

from cutlayer.problem.task import Task
from cutlayer.results.quality import Quality
from cutlayer.training.quality import CALIBRATION_BINS, quality

BINARY = Task("binary", ("no", "yes"))


def test_a_perfect_order_has_the_best_values() -> None:
    labels = torch.tensor([0, 0, 0, 1, 1])
    found = quality(BINARY, torch.tensor([-3.0, -2.0, -1.0, 1.0, 2.0])[:, None], labels, positive_share=0.1)
    assert {name: found.metrics[name] for name in ("gini", "ks", "average_precision")} == {
        "gini": 1.0,
        "ks": 1.0,
        "average_precision": 1.0,
    }
    assert found.confusions[0].counts == ((3, 0), (0, 2))
    assert found.confusions[0].threshold == 0.5
    # From 0.1 on also the rows at -2 and -1 are predicted to be positive.
    assert (found.confusions[1].threshold, found.confusions[1].counts) == (0.1, ((1, 2), (0, 2)))


def test_the_measures_of_a_worked_example() -> None:
    """Scores .9, .8, .7, .6 with labels 1, 0, 1, 0: computed by hand."""
    scores = torch.tensor([0.9, 0.8, 0.7, 0.6], dtype=torch.float64)
    found = quality(BINARY, torch.logit(scores)[:, None], torch.tensor([1, 0, 1, 0])).metrics
    assert found["gini"] == pytest.approx(2 * 0.75 - 1)
    assert found["ks"] == pytest.approx(0.5)
    assert found["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["brier"] == pytest.approx((0.01 + 0.64 + 0.09 + 0.36) / 4)


def test_drawn_labels_are_calibrated_and_overconfident_ones_are_not() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20_000, 1, generator=draw)
    labels = (torch.rand(20_000, generator=draw) < torch.sigmoid(logits[:, 0])).long()
    right, wrong = quality(BINARY, logits, labels), quality(BINARY, 4 * logits, labels)
    assert sum(group.rows for group in right.bins) == 20_000
    assert len(right.bins) == CALIBRATION_BINS
    assert all(abs(group.predicted - group.observed) < 0.05 for group in right.bins)
    assert right.metrics["calibration_error"] is not None
    assert right.metrics["calibration_error"] < 0.02 < 0.1 < (wrong.metrics["calibration_error"] or 0)
    assert right.metrics["gini"] == pytest.approx(wrong.metrics["gini"])


def test_equal_predictions_share_a_group() -> None:
    found = quality(BINARY, torch.zeros(50, 1), torch.arange(50) % 2)
    assert [(group.predicted, group.observed, group.rows) for group in found.bins] == [(0.5, 0.5, 50)]


def test_a_single_class_has_no_ranking_and_no_rows_have_nothing() -> None:
    assert quality(BINARY, torch.zeros(5, 1), torch.zeros(5).long()).metrics.keys() == {"calibration_error"}
    assert quality(BINARY, torch.zeros(0, 1), torch.zeros(0).long()) == Quality()


def test_several_classes_have_a_matrix_of_the_likeliest_class() -> None:
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 2.0, 0.0]])
    found = quality(Task("multiclass", ("a", "b", "c")), logits, torch.tensor([0, 1, 2]))
    assert found.confusions[0].counts == ((1, 0, 0), (0, 1, 0), (0, 1, 0))
    confidence = math.exp(2) / (math.exp(2) + 2)
    assert found.metrics["calibration_error"] == pytest.approx(abs(2 / 3 - confidence))


def test_a_regression_has_its_error_and_its_groups() -> None:
    truth = torch.arange(100).float()
    found = quality(Task("regression", (), center=1.0, scale=2.0), ((truth - 1) / 2)[:, None] + 0.5, truth)
    assert found.metrics == {"rmse": pytest.approx(1.0)}
    assert [group.rows for group in found.bins] == [10] * CALIBRATION_BINS
    assert np.allclose([group.predicted - group.observed for group in found.bins], 1.0)
    assert not found.confusions


def test_survival_is_calibrated_where_its_hazards_are_right() -> None:
    """Of rows whose hazards differ as much as here, all at one hazard have too high a baseline at first."""
    draw = np.random.default_rng(0)
    log_hazard = draw.normal(size=20_000)
    died, censored = draw.exponential(np.exp(-log_hazard)), draw.uniform(0.1, 3.0, 20_000)
    labels = torch.from_numpy(np.stack([np.minimum(died, censored), died <= censored], axis=1))
    before = Task.fitted("regression", (), labels, "survival")
    logits = torch.from_numpy(log_hazard - math.log(before.scale))[:, None]
    task = before.with_baseline(logits, labels)
    found = quality(task, logits, labels)
    assert len(found.bins) == CALIBRATION_BINS, "groups by the hazard, which no outcome is in"
    assert all(group.predicted == pytest.approx(group.observed, abs=0.08) for group in found.bins)
    times = np.array(task.hazard.quartiles)
    alive, assumed = (each.further_values(each.predicted(logits)).mean(axis=0) for each in (task, before))
    truth = np.exp(-np.outer(np.exp(log_hazard), times)).mean(axis=0)
    assert alive == pytest.approx(truth, abs=0.01)
    assert np.abs(assumed - truth).max() > 0.05
    plain = Task("regression", (), center=1.0)
    assert plain.with_baseline(logits, labels) is plain


def test_the_positive_class_is_the_one_that_the_job_names() -> None:
    """The same model and rows, measured as a model of the other class."""
    logits = torch.tensor([-3.0, -2.0, 0.5, -1.0, 1.0])[:, None]
    labels = torch.tensor([0, 0, 0, 1, 1])
    named = quality(BINARY.with_positive("no", "bank"), logits, labels, positive_share=0.6)
    other = quality(BINARY, -logits, 1 - labels, positive_share=0.6)
    assert named.metrics == pytest.approx(dict(other.metrics))
    for group, same in zip(named.bins, other.bins, strict=True):
        assert (group.observed, group.rows) == (same.observed, same.rows)
        assert group.predicted == pytest.approx(same.predicted)
    for here, there in zip(named.confusions, other.confusions, strict=True):
        assert here.counts == tuple(row[::-1] for row in there.counts[::-1])  # the rows and columns keep their classes
    assert named.metrics["average_precision"] != quality(BINARY, logits, labels).metrics["average_precision"]


def test_thresholds_are_those_of_scikit_learn() -> None:
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(1000, 1, generator=draw)
    labels = (torch.rand(1000, generator=draw) < torch.sigmoid(2 * logits[:, 0] - 1)).long()
    found, scores, truth = quality(BINARY, logits, labels), torch.sigmoid(logits.double())[:, 0].numpy(), labels.numpy()
    assert [point.rate for point in found.thresholds] == [0.01, 0.05, 0.1, 0.2]
    for point in (*found.thresholds, *found.curve[::20]):
        chosen = scores >= point.threshold
        assert point.rate == pytest.approx(chosen.mean())
        assert point.precision == pytest.approx(precision_score(truth, chosen))
        assert point.recall == pytest.approx(recall_score(truth, chosen))
        assert point.lift == pytest.approx(point.precision / truth.mean())
    false, true, _ = roc_curve(truth, scores)
    heights = np.interp([point.false_positive_rate for point in found.curve], false, true)
    area = auc(
        [0, *(point.false_positive_rate for point in found.curve)], [0, *(point.recall for point in found.curve)]
    )
    assert area == pytest.approx(roc_auc_score(truth, scores), abs=0.005)
    assert all(point.recall <= height + 1e-9 for point, height in zip(found.curve, heights, strict=True))


def test_a_threshold_never_selects_more_rows_than_can_be_treated() -> None:
    """Half the rows share the largest score: no threshold selects a fifth of them."""
    logits, labels = torch.tensor([3.0] * 50 + [-1.0] * 50)[:, None], torch.arange(100) % 2
    found = quality(BINARY, logits, labels)
    assert found.thresholds == ()
    assert [point.rate for point in found.curve] == [0.5, 1.0]


def test_the_class_that_is_called_positive_is_the_one_that_thresholds_select() -> None:
    task = Task("binary", ("no", "yes"), positive=0)
    found = quality(task, torch.linspace(-3, 3, 100)[:, None], (torch.arange(100) >= 60).long())
    assert [point.precision for point in found.thresholds] == [1.0] * 4
    assert found.thresholds[-1].recall == pytest.approx(20 / 60)
