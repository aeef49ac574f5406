from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist, pdist
from sklearn.kernel_ridge import KernelRidge as Reference

from cutlayer.attacks.completion.training import Standardised
from cutlayer.attacks.feature import kernel_ridge
from cutlayer.attacks.feature.inversion import kernel_shares
from cutlayer.attacks.feature.kernel_ridge import Whitened, fit_kernel_ridge

SLICES = {"first": slice(0, 1), "both": slice(1, 3)}


def data(rows: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 4, generator=draw)
    y = torch.stack([x[:, 0].sin() * 2, x[:, 1] * x[:, 2], x[:, 3]], dim=1) + 0.1 * torch.randn(rows, 3, generator=draw)
    return x, y


def test_the_fit_and_the_error_without_a_row_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_ridge, "SCALES", (1.0,))
    monkeypatch.setattr(kernel_ridge, "PENALTIES", (0.1,))
    monkeypatch.setattr(kernel_ridge, "Whitened", Standardised)
    x, y = data()
    found = fit_kernel_ridge(x, y, SLICES)
    scaled, mean = Standardised(x)(x).double().numpy(), y.double().mean(0).numpy()
    gamma = 1 / (2 * np.median(pdist(scaled)) ** 2)

    def fitted(rows: np.ndarray) -> Reference:
        kernel = Reference(alpha=0.1, kernel="rbf", gamma=gamma)
        return kernel.fit(scaled[rows], y.double().numpy()[rows] - mean)

    everything = np.arange(60)
    np.testing.assert_allclose(found(x).numpy(), fitted(everything).predict(scaled) + mean, atol=1e-2)
    for row in (0, 17, 59):
        without = fitted(np.delete(everything, row)).predict(scaled[[row]])[0] + mean
        np.testing.assert_allclose(found.left_out[row].numpy(), without, atol=1e-2)


def test_each_column_has_the_kernel_and_the_penalty_of_least_error() -> None:
    x, y = data(200)
    noise = torch.randn(200, 1, generator=torch.Generator().manual_seed(2))
    found = fit_kernel_ridge(x, torch.cat([y, noise], dim=1), {**SLICES, "noise": slice(3, 4)})
    fresh = torch.randn(100, 4, generator=torch.Generator().manual_seed(3))
    made = found(fresh)
    assert float((made[:, 3] - noise.mean()).abs().mean()) < 0.3  # the penalty leaves little of what is noise
    assert torch.corrcoef(torch.stack([made[:, 0], (fresh[:, 0].sin() * 2).double()]))[0, 1] > 0.97
    assert torch.corrcoef(torch.stack([made[:, 1], (fresh[:, 1] * fresh[:, 2]).double()]))[0, 1] > 0.8


def test_whitening_gives_components_of_variance_one_and_leaves_out_those_of_none() -> None:
    x = data()[0]
    x = torch.cat([x, x[:, :1] + x[:, 1:2], torch.full((60, 1), 3.0)], dim=1)
    white = Whitened(x)(x)
    assert white.shape == (60, 4)
    np.testing.assert_allclose(torch.cov(white.T, correction=0).numpy(), np.eye(4), atol=1e-5)
    assert cdist(white.numpy(), white.numpy()).max() > 1


def test_equal_embeddings_give_the_mean() -> None:
    y = data()[1]
    found = fit_kernel_ridge(torch.full((60, 4), 0.7), y, SLICES)
    np.testing.assert_allclose(found(torch.full((5, 4), 0.7)).numpy(), y.double().mean(0).expand(5, 3), atol=1e-2)


def test_the_share_of_least_error_is_taken_for_each_column() -> None:
    truth = torch.randn(50, 3, generator=torch.Generator().manual_seed(4))
    wrong = torch.randn(50, 3, generator=torch.Generator().manual_seed(5))
    first = torch.cat([truth[:, :1], truth[:, 1:] - wrong[:, 1:]], dim=1)
    second = torch.cat([wrong[:, :1], truth[:, 1:] + 3 * wrong[:, 1:]], dim=1)
    assert kernel_shares(first, second, truth, SLICES).tolist() == pytest.approx([0.0, 0.25, 0.25], abs=1e-6)
    assert kernel_shares(second, first, truth, SLICES).tolist() == pytest.approx([1.0, 0.75, 0.75], abs=1e-6)
