"""Forward correction: its formula, its gradient, and predictions that are calibrated for the true labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from cutlayer.kernels.fits.forward_correction import forward_corrected_loss
from cutlayer.kernels.noise.randomized_response import randomized_response, transition_matrix
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss

SECRET = bytes(range(32))
EPS, ROWS = 2.0, 15_000
TRUE = {
    "binary": torch.tensor([[0.95, 0.05], [0.7, 0.3], [0.4, 0.6]]),
    "multiclass": torch.tensor([[0.9, 0.05, 0.03, 0.02], [0.4, 0.3, 0.2, 0.1], [0.1, 0.1, 0.2, 0.6]]),
}
"""Probabilities of the true classes in three groups of rows."""


def drawn_labels(truth: torch.Tensor, classes: int, eps: float) -> torch.Tensor:
    digests = np.random.default_rng(7).integers(0, 256, (len(truth), 16), dtype=np.uint8)
    return randomized_response(truth, torch.from_numpy(digests), classes, eps, SECRET, "label")


def fitted(kind: str, transition: torch.Tensor | None) -> torch.Tensor:
    """Probabilities of each group, fitted by `TrainingLoss` to labels that were drawn at `EPS`."""
    groups, classes = TRUE[kind].shape
    group = torch.arange(ROWS) % groups
    truth = torch.multinomial(TRUE[kind][group], 1, generator=torch.Generator().manual_seed(3)).squeeze(1)
    labels = drawn_labels(truth, classes, EPS)
    task = Task(kind, tuple("abcd"[:classes]))  # type: ignore[arg-type]
    mean_loss = TrainingLoss(task, transition)
    logits = torch.zeros(groups, task.outputs, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = mean_loss(logits[group], labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    return task.predict(logits.detach())


def error(kind: str, transition: torch.Tensor | None) -> float:
    return float((fitted(kind, transition) - TRUE[kind]).abs().max())


@pytest.mark.parametrize("kind", TRUE)
def test_predictions_are_calibrated_for_the_true_labels(kind: str) -> None:
    classes = TRUE[kind].shape[1]
    # Four standard errors of a share of the group's rows, widened by the inverse of the matrix.
    limit = 4 * math.sqrt(0.25 / (ROWS / 3)) * float(torch.linalg.inv(transition_matrix(EPS, classes)).abs().max())
    assert error(kind, transition_matrix(EPS, classes)) < limit < 0.05


@pytest.mark.parametrize("kind", TRUE)
@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2, math.inf])
def test_a_wrong_matrix_or_none_is_not_calibrated(kind: str, wrong: float) -> None:
    matrix = transition_matrix(wrong * EPS, TRUE[kind].shape[1]) if wrong < math.inf else None
    assert error(kind, matrix) > 0.05


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_loss_is_the_likelihood_of_the_drawn_label(classes: int) -> None:
    draw = np.random.default_rng(classes)
    logits = torch.from_numpy(draw.standard_normal((40, classes)) * 3).requires_grad_()
    labels = torch.from_numpy(draw.integers(0, classes, 40))
    transition = torch.from_numpy(draw.dirichlet(np.ones(classes), classes))
    p = torch.softmax(logits, 1)
    expected = -(p @ transition).gather(1, labels[:, None]).log().mean()
    loss = forward_corrected_loss(torch.log_softmax(logits, 1), labels, transition)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*torch.autograd.grad(loss, logits), *torch.autograd.grad(expected, logits))


def test_labels_that_are_never_replaced_have_the_usual_loss() -> None:
    logits, labels = torch.randn(50, 3, generator=torch.Generator().manual_seed(1)), torch.arange(50) % 3
    logits.requires_grad_()
    for eps in (40.0, 2000.0):
        loss = forward_corrected_loss(functional.log_softmax(logits, 1), labels, transition_matrix(eps, 3))
        torch.testing.assert_close(loss, functional.cross_entropy(logits, labels))
        assert bool(torch.autograd.grad(loss, logits)[0].isfinite().all())


def test_extreme_logits_have_a_finite_loss_and_gradient() -> None:
    mean_loss = TrainingLoss(Task("binary", ("no", "yes")), transition_matrix(1.0, 2))
    logits = torch.tensor([[-200.0], [200.0], [-200.0], [200.0]], requires_grad=True)
    loss = mean_loss(logits, torch.tensor([0, 0, 1, 1]))
    loss.backward()
    flip = 1 / (1 + math.e)
    assert loss.item() == pytest.approx(-(math.log(flip) + math.log(1 - flip)) / 2, rel=1e-5)
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


@pytest.mark.parametrize(("eps", "classes"), [(0.0, 2), (1.0, 2), (1.0, 10), (5.0, 3)])
def test_the_transition_matrix_is_that_of_the_draws(eps: float, classes: int) -> None:
    matrix = transition_matrix(eps, classes)
    torch.testing.assert_close(matrix.sum(1), torch.ones(classes, dtype=torch.float64))
    assert float((matrix.amax(0) / matrix.amin(0)).max()) == pytest.approx(math.exp(eps))
    truth = torch.arange(ROWS) % classes
    counts, ones = torch.zeros(classes, classes, dtype=torch.float64), torch.ones(ROWS, dtype=torch.float64)
    counts.index_put_((truth, drawn_labels(truth, classes, eps)), ones, accumulate=True)
    shares = counts / counts.sum(1, keepdim=True)
    assert float((shares - matrix).abs().max()) < 5 * math.sqrt(0.25 * classes / ROWS)
