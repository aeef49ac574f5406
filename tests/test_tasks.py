"""Losses against formulas, metrics against scikit-learn, and the scale of a regression."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.utils.class_weight import compute_class_weight

from cutlayer.errors import Diverged
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss

BINARY = Task("binary", ("no", "yes"))
THREE = Task("multiclass", ("a", "b", "c"))
seeds = st.integers(0, 10_000)


def logits_of(rows: int, outputs: int, seed: int, scale: float = 3.0) -> torch.Tensor:
    return scale * torch.randn(rows, outputs, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None)
@given(seeds, st.integers(1, 20))
def test_binary_loss_is_the_mean_log_likelihood(seed: int, rows: int) -> None:
    logits = logits_of(rows, 1, seed).double()
    labels = torch.randint(2, (rows,), generator=torch.Generator().manual_seed(seed))
    p = 1 / (1 + torch.exp(-logits[:, 0]))
    expected = -(labels * p.log() + (1 - labels) * (1 - p).log()).mean()
    torch.testing.assert_close(BINARY.loss(logits, labels), expected)


@settings(deadline=None)
@given(seeds, st.integers(1, 20))
def test_multiclass_loss_is_the_mean_log_likelihood(seed: int, rows: int) -> None:
    logits = logits_of(rows, 3, seed).double()
    labels = torch.randint(3, (rows,), generator=torch.Generator().manual_seed(seed))
    p = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    torch.testing.assert_close(THREE.loss(logits, labels), -p[torch.arange(rows), labels].log().mean())


@settings(deadline=None)
@given(seeds, st.floats(-1e4, 1e4), st.floats(0.01, 1e3))
def test_regression_loss_is_the_mean_square_of_scaled_residuals(seed: int, center: float, scale: float) -> None:
    task = Task("regression", (), center, scale)
    logits = logits_of(11, 1, seed).double()
    targets = center + scale * logits_of(11, 1, seed + 1)[:, 0].double()
    expected = sum((float(x) - (float(y) - center) / scale) ** 2 for x, y in zip(logits[:, 0], targets, strict=True))
    assert float(task.loss(logits, targets)) == pytest.approx(expected / 11)


@pytest.mark.parametrize("rows", [7, 93, 1000])
def test_equal_logits_have_an_auc_of_a_half(rows: int) -> None:
    """Whatever a vectorised sigmoid makes of them: some values get other last bits at the end of the rows."""
    labels = torch.arange(rows) % 2
    values = torch.linspace(-3, 3, 500, dtype=torch.float64)
    assert {BINARY.evaluate(value.expand(rows, 1), labels)["auc"] for value in values} == {0.5}


@pytest.mark.parametrize("logit", [-200.0, 200.0])
def test_a_sure_and_wrong_prediction_has_a_finite_loss(logit: float) -> None:
    wrong = torch.tensor([0 if logit > 0 else 1])
    assert float(BINARY.loss(torch.tensor([[logit]]), wrong)) == pytest.approx(200.0)
    three = torch.tensor([[logit, 0.0, -logit]])
    assert float(THREE.loss(three, three.argmin(dim=1))) == pytest.approx(400.0)


@settings(deadline=None)
@given(seeds)
def test_binary_metrics_are_scikit_learns(seed: int) -> None:
    logits = logits_of(40, 1, seed)
    labels = torch.arange(40) % 3 // 2
    positive = torch.sigmoid(logits.double())[:, 0].numpy()
    found = BINARY.evaluate(logits, labels)
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(labels, positive), rel=1e-12)
    assert found["log_loss"] == pytest.approx(metrics.log_loss(labels, positive))
    assert found["accuracy"] == metrics.accuracy_score(labels, positive > 0.5)


@settings(deadline=None)
@given(seeds)
def test_multiclass_metrics_are_scikit_learns(seed: int) -> None:
    logits = logits_of(40, 3, seed)
    labels = torch.arange(40) % 3
    shares = torch.softmax(logits.double(), dim=1).numpy()
    found = THREE.evaluate(logits, labels)
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(labels, shares, multi_class="ovr"))
    assert found["log_loss"] == pytest.approx(metrics.log_loss(labels, shares))
    assert found["accuracy"] == metrics.accuracy_score(labels, shares.argmax(axis=1))


@settings(deadline=None)
@given(seeds)
def test_regression_metrics_are_scikit_learns_in_the_targets_own_unit(seed: int) -> None:
    task = Task("regression", (), 50.0, 8.0)
    logits = logits_of(30, 1, seed)
    targets = 50 + 8 * logits_of(30, 1, seed + 1)[:, 0]
    predicted = (logits[:, 0].double() * 8 + 50).numpy()
    found = task.evaluate(logits, targets)
    assert found["r2"] == pytest.approx(metrics.r2_score(targets, predicted))
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(targets, predicted))


def test_the_scale_is_that_of_the_training_targets() -> None:
    training = torch.tensor([10.0, 14.0, 12.0, 20.0])
    task = Task.fitted("regression", (), training)
    assert task.center == 14.0
    assert task.scale == pytest.approx(np.std([10, 14, 12, 20]))
    scaled = (training - task.center) / task.scale
    assert float(task.loss(scaled[:, None], training)) == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(task.predict(scaled[:, None]), training)
    assert float(task.loss(torch.zeros(4, 1), training)) == pytest.approx(1.0)


def test_equal_targets_have_a_scale_of_one() -> None:
    task = Task.fitted("regression", (), torch.full((5,), 3.0))
    assert (task.center, task.scale) == (3.0, 1.0)


def test_large_targets_are_centred_without_losing_their_spread() -> None:
    training = torch.tensor([1e7, 1e7 + 2, 1e7 + 4])
    task = Task.fitted("regression", (), training)
    assert task.scale == pytest.approx(math.sqrt(8 / 3))
    assert task.center == 1e7 + 2


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_classes_have_no_scale(kind: str) -> None:
    task = Task.fitted(kind, ("a", "b"), torch.tensor([0, 1, 1]))  # type: ignore[arg-type]
    assert (task.center, task.scale) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("task", "outputs", "metric", "chance"),
    [
        (BINARY, 1, "auc", 0.5),
        (THREE, 3, "accuracy", 1 / 3),
        (Task("multiclass", ("a", "b")), 2, "accuracy", 0.5),
        (Task("regression"), 1, "r2", 0.0),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_what_a_task_says_of_itself(task: Task, outputs: int, metric: str, chance: float) -> None:
    assert (task.outputs, task.metric) == (outputs, metric)
    assert task.chance == pytest.approx(chance)
    labels = torch.arange(12) % max(len(task.classes), 2)
    found = task.evaluate(torch.zeros(12, outputs), labels.float() if task.kind == "regression" else labels)
    assert metric in found


def test_probabilities_sum_to_one() -> None:
    binary, three = BINARY.predict(logits_of(20, 1, 0)), THREE.predict(logits_of(20, 3, 0))
    assert binary.shape == (20, 2)
    assert three.shape == (20, 3)
    for shares in (binary, three):
        torch.testing.assert_close(shares.sum(dim=1), torch.ones(20))


@pytest.mark.parametrize("task", [BINARY, THREE])
def test_one_class_alone_has_no_auc_and_no_warning(task: Task) -> None:
    found = task.evaluate(logits_of(6, task.outputs, 0), torch.zeros(6, dtype=torch.int64))
    assert math.isnan(found["auc"])
    assert math.isfinite(found["log_loss"])
    assert 0 <= found["accuracy"] <= 1


def test_a_class_that_is_missing_leaves_no_multiclass_auc() -> None:
    found = THREE.evaluate(logits_of(6, 3, 0), torch.tensor([0, 1, 0, 1, 0, 1]))
    assert math.isnan(found["auc"])
    assert math.isfinite(found["log_loss"])


def test_one_row_has_no_r2_and_no_warning() -> None:
    found = Task("regression").evaluate(torch.zeros(1, 1), torch.tensor([2.0]))
    assert math.isnan(found["r2"])
    assert found["mae"] == 2.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("task", [BINARY, THREE, Task("regression")], ids=lambda task: task.kind)
def test_outputs_that_are_no_numbers_are_told_as_divergence(task: Task, bad: float) -> None:
    logits = logits_of(6, task.outputs, 0)
    logits[2, -1] = bad
    with pytest.raises(Diverged, match=r"lower train\.optimizer\.lr"):
        task.evaluate(logits, torch.arange(6) % 2)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_balanced_classes_have_the_same_part_in_the_loss(kind: str) -> None:
    """As scikit-learn's `class_weight="balanced"`; and with equally frequent classes nothing changes."""
    task = Task(kind, ("a", "b") if kind == "binary" else ("a", "b", "c"))  # type: ignore[arg-type]
    labels = torch.tensor([0] * 12 + [1] * 3 + ([2] * 6 if kind == "multiclass" else []))
    weighted = TrainingLoss(task).balanced(labels)
    assert weighted.class_weights is not None
    expected = compute_class_weight("balanced", classes=np.arange(len(task.classes)), y=labels.numpy())
    assert weighted.class_weights.numpy() == pytest.approx(expected)
    logits = torch.randn(len(labels), task.outputs, generator=torch.Generator().manual_seed(0))
    parts = [float(task.loss(logits[labels == code], labels[labels == code])) for code in range(len(task.classes))]
    assert float(weighted(logits, labels)) == pytest.approx(sum(parts) / len(parts), rel=1e-5)
    even = labels.unique().repeat(4)
    assert float(TrainingLoss(task).balanced(even)(logits[: len(even)], even)) == pytest.approx(
        float(task.loss(logits[: len(even)], even)), rel=1e-5
    )


def test_a_class_without_a_training_row_weighs_nothing() -> None:
    weights = TrainingLoss(THREE).balanced(torch.tensor([0, 0, 2])).class_weights
    assert weights is not None
    assert weights.tolist() == [0.75, 0.0, 1.5]
