"""The mixture against scikit-learn's from the same start, and where only the spread tells the classes apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

from cutlayer.kernels.fits.mixture import two_gaussians
from cutlayer.problem.metrics.roc import roc_auc


def classes(share: float, rows: int = 4000) -> torch.Tensor:
    return torch.rand(rows, generator=torch.Generator().manual_seed(0)) < share


def test_it_reads_a_spread() -> None:
    truth = classes(0.3)
    draw = torch.Generator().manual_seed(1)
    points = torch.randn(len(truth), 6, generator=draw, dtype=torch.float64) * torch.where(truth, 1.0, 0.4)[:, None]
    points += 0.1 * truth[:, None]
    assert roc_auc(points.sum(dim=1), truth) < 0.65
    assert roc_auc(two_gaussians(points, 0.3, points.abs().sum(dim=1)), truth) > 0.97


def test_it_agrees_with_another_implementation() -> None:
    truth = classes(0.4)
    draw = torch.Generator().manual_seed(2)
    points = torch.randn(len(truth), 3, generator=draw, dtype=torch.float64) + 1.5 * truth[:, None]
    own = two_gaussians(points, 0.4, points.sum(dim=1))
    theirs = GaussianMixture(2, covariance_type="diag", random_state=0, tol=1e-8, max_iter=500).fit(points.numpy())
    upper = int(theirs.means_.sum(axis=1).argmax())
    assert theirs.weights_[upper] == pytest.approx(0.4, abs=0.02)  # ours has the share fixed
    probability = theirs.predict_proba(points.numpy())[:, upper]
    assert np.abs(torch.sigmoid(own).numpy() - probability).max() < 0.08
