"""Clipping and normalising rows: bounds that hold after rounding, and gradients that autograd agrees with."""

import pytest
import torch

from cutlayer.kernels.rows.row_norms import clip_rows, rows_to_norm


def rows(n=500, width=7, dtype=torch.float32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    lengths = 10.0 ** torch.randint(-30, 31, (n, 1), generator=draw)
    return (torch.randn(n, width, generator=draw, dtype=torch.float64) * lengths).to(dtype)


@pytest.mark.parametrize("norm", [1e-20, 0.3, 1.0, 1e20])
@pytest.mark.parametrize("bound", [clip_rows, rows_to_norm])
def test_no_row_is_longer_than_the_norm_by_a_single_rounding(bound, norm):
    found = bound(rows(), norm).double().norm(dim=1)
    assert bool((found <= norm).all())
    assert float(found.max()) == pytest.approx(norm, rel=1e-6)


def test_short_rows_stay_as_they_are_and_long_ones_keep_their_direction():
    e = rows(dtype=torch.float64)
    norms = e.norm(dim=1, keepdim=True)
    short = (norms < 0.5)[:, 0]
    assert torch.equal(clip_rows(e, 0.5)[short], e[short])
    assert torch.allclose(clip_rows(e, 0.5)[~short], 0.5 * (e / norms)[~short], rtol=1e-6)
    assert torch.allclose(rows_to_norm(e, 0.5), 0.5 * e / norms, rtol=1e-6)


@pytest.mark.parametrize("bound", [clip_rows, rows_to_norm])
def test_gradients_are_those_of_the_definition(bound):
    e = torch.randn(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).mul_(1.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: bound(x, 2.0), (e,))
    g = torch.randn(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (found,) = torch.autograd.grad(bound(e, 2.0), e, g)
    long = e.norm(dim=1) > 2.0
    assert 3 < int(long.sum()) < 12
    unit = (e / e.norm(dim=1, keepdim=True)).detach()
    across = (g - unit * (g * unit).sum(1, keepdim=True)) * 2.0 / e.norm(dim=1, keepdim=True).detach()
    changed = long if bound is clip_rows else torch.ones_like(long)
    assert torch.allclose(found, torch.where(changed[:, None], across, g), rtol=1e-6)


@pytest.mark.parametrize("bound", [clip_rows, rows_to_norm])
def test_zeros_and_broken_rows_become_zeros_without_breaking_a_gradient(bound):
    e = torch.tensor([[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [3.0, 4.0]], requires_grad=True)
    bounded = bound(e, 1.0)
    assert torch.equal(bounded[:3], torch.zeros(3, 2))
    bounded.sum().backward()
    assert bool(e.grad.isfinite().all())
    assert bool((e.grad[3] != 0).any())
