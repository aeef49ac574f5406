"""Parts of a batch's gradients: against an independent regression, and on gradients whose parts are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from cutlayer.kernels.gradients.explained_gradient import DECAY, PENALTY, Explained, ExplainedGradient

ROWS, WIDTH, COLUMNS = 64, 5, 3


def batches(number: int, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Embeddings and columns."""
    draw = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(ROWS, WIDTH, generator=draw), torch.randn(ROWS, COLUMNS, generator=draw)) for _ in range(number)
    ]


def parts(gradients: list[Tensor], given: list[tuple[Tensor, Tensor]], directions: int = 1) -> list[Explained]:
    kernel = ExplainedGradient(directions)
    made = [kernel.add(g, *rows) for g, rows in zip(gradients, given, strict=True)]
    assert made[0] is None
    return [each for each in made[1:] if each is not None]


def test_parts_equal_those_of_weighted_least_squares() -> None:
    """All earlier rows with their weights, by NumPy's least squares on rows of the penalty."""
    given = batches(4)
    gradients = [torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(9 + i)) for i in range(4)]
    inputs, targets = [], []
    for g, (embedding, columns) in zip(gradients, given, strict=True):
        e = embedding.double().numpy()
        own = np.hstack([columns.double().numpy() / np.sqrt(COLUMNS), np.ones((ROWS, 1))])
        inputs.append(np.hstack([(e - e.mean(0)) / e.std(0), own]))
        scaled = g.double().numpy()
        targets.append(scaled / np.sqrt((scaled**2).sum() / ROWS))
    made = parts(gradients, given)
    for step in (1, 2, 3):
        weights = [DECAY ** ((step - 1 - i) / 2) for i in range(step)]
        x = np.vstack([w * inputs[i] for i, w in enumerate(weights)] + [np.sqrt(PENALTY) * np.eye(inputs[0].shape[1])])
        y = np.vstack([w * targets[i] for i, w in enumerate(weights)] + [np.zeros((inputs[0].shape[1], WIDTH))])
        guess = inputs[step] @ np.linalg.lstsq(x, y, rcond=None)[0]
        main = np.linalg.svd(targets[step])[2][:1]
        off, predicted = (each - each @ main.T @ main for each in (targets[step], guess))
        assert made[step - 1].off == pytest.approx((off**2).sum() / ROWS)
        assert made[step - 1].predicted == pytest.approx(((off**2).sum() - ((off - predicted) ** 2).sum()) / ROWS)


def test_gradients_along_one_direction_have_nothing_off_it() -> None:
    given = batches(3)
    line = torch.randn(1, WIDTH)
    made = parts([torch.randn(ROWS, 1) * line for _ in range(3)], given)
    assert all(each.off == pytest.approx(0, abs=1e-9) for each in made)


def test_noise_is_off_the_direction_and_not_predicted() -> None:
    made = parts([torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(i)) for i in range(20)], batches(20))
    assert all(each.off > 0.5 for each in made)
    assert np.mean([each.predicted for each in made]) < 0


def test_gradients_that_follow_from_the_rows_are_predicted() -> None:
    given = batches(20)
    weights = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(1))
    made = parts([embedding @ weights for embedding, _ in given], given)
    assert all(each.predicted > 0.8 * each.off for each in made[2:])
    two = parts([embedding @ weights for embedding, _ in given], given, directions=2)
    assert all(more.off > less.off for more, less in zip(made, two, strict=True))


def test_wide_matrices_are_projected() -> None:
    draw = torch.Generator().manual_seed(2)
    wide = [(torch.randn(ROWS, 200, generator=draw), torch.randn(ROWS, 300, generator=draw)) for _ in range(3)]
    line = torch.randn(1, 200)
    made = parts([torch.randn(ROWS, 1) * line for _ in range(3)], wide)
    assert all(each.off == pytest.approx(0, abs=1e-9) for each in made)


def test_zeros_count_for_nothing() -> None:
    kernel = ExplainedGradient(1)
    ((embedding, columns),) = batches(1)
    assert kernel.add(torch.zeros(ROWS, WIDTH), embedding, columns) is None
    assert kernel.add(torch.full((ROWS, WIDTH), torch.inf), embedding, columns) is None
    assert kernel.add(torch.randn(ROWS, WIDTH), embedding, columns) is None
    assert kernel.add(torch.randn(ROWS, WIDTH), embedding, columns) is not None
