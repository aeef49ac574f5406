"""Whitening of a batch: the unit covariance, unmoved by affine maps, with the gradient of finite differences."""

import pytest
import torch

from cutlayer.kernels.dependence.whitening import whitened


def rows(n=200, d=4, seed=0):
    draw = torch.Generator().manual_seed(seed)
    scales = torch.tensor([9.0, 1.0, 0.1, 0.01], dtype=torch.float64)[:d]
    return torch.randn(n, d, generator=draw, dtype=torch.float64) * scales


def test_the_batch_has_the_unit_covariance_and_no_mean():
    z = whitened(rows(), 1e-12)
    torch.testing.assert_close(z.T @ z / len(z), torch.eye(4, dtype=z.dtype), rtol=0, atol=1e-6)
    torch.testing.assert_close(z.mean(0), torch.zeros(4, dtype=z.dtype), rtol=0, atol=1e-9)


def test_an_affine_map_moves_no_distance():
    x = rows()
    moved = x @ torch.randn(4, 4, generator=torch.Generator().manual_seed(1), dtype=x.dtype) + 3.0
    before, after = (torch.cdist(z, z) for z in (whitened(x, 1e-12), whitened(moved, 1e-12)))
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(torch.cdist(x, x), torch.cdist(moved, moved), rtol=0.1)


def test_shrinkage_is_a_share_of_the_mean_variance():
    x = rows(d=2)
    covariance = torch.cov(x.T, correction=0) + 0.5 * x.var(0, correction=0).mean() * torch.eye(2)
    z = whitened(x, 0.5)
    expected = torch.linalg.solve(covariance, (x - x.mean(0)).T).T
    torch.testing.assert_close(z.square().sum(1), (expected * (x - x.mean(0))).sum(1))


@pytest.mark.parametrize("shrinkage", [0.01, 1.0])
def test_the_gradient_is_that_of_finite_differences(shrinkage):
    assert torch.autograd.gradcheck(lambda x: whitened(x, shrinkage), rows(6, 3).requires_grad_())


def test_equal_rows_and_rows_without_width_are_finite():
    x = torch.ones(5, 3, requires_grad=True)
    z = whitened(x, 0.01)
    assert not z.any()
    z.sum().backward()
    assert not x.grad.any()
