"""Max norm alignment: unbiased, every row at the longest norm, and wrong scales are seen."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.kernels.noise.max_norm import aligned_rows, max_norm
from cutlayer.kernels.rows.row_norms import row_norms

DRAWS = 40_000
EMPTY = torch.zeros(0, 3)


def rows():
    return torch.tensor([[3.0, 4.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, -1.0], [1.0, 2.0, 2.0]])


def statistics(strength):
    """Mean and mean square norm of each row over the draws, in standard errors from what the theorem says."""
    g, generator = rows(), torch.Generator().manual_seed(0)
    tall = g.repeat(DRAWS, 1)
    normal = torch.randn(len(tall), generator=generator) * strength
    out = max_norm(tall, row_norms(tall), normal, EMPTY).reshape(DRAWS, 4, 3).double()
    short = out[:, 1:]
    bias = (short.mean(0) - g[1:]).norm(dim=1) / (short.var(0).sum(1) / DRAWS).sqrt()
    squares = (short**2).sum(2)
    power = (squares.mean(0) - 25) / (squares.std(0) / DRAWS**0.5)
    return bias, power, out


def test_is_unbiased_with_the_longest_norm():
    bias, power, out = statistics(1.0)
    assert float(bias.max()) < 4
    assert float(power.abs().max()) < 4
    torch.testing.assert_close(out[:, 0], rows()[0].double().expand(DRAWS, 3))


@pytest.mark.parametrize("strength", [2 / 3, 3 / 2])
def test_a_wrong_noise_scale_is_seen(strength):
    _, power, _ = statistics(strength)
    assert float(power.abs().min()) > 10


def test_follows_the_formula():
    g, eps = rows(), torch.tensor([0.3, -1.2, 2.0, 0.1])
    norms = g.norm(dim=1)
    sigma = ((5 / norms) ** 2 - 1).clamp(min=0).sqrt()
    torch.testing.assert_close(max_norm(g, row_norms(g), eps, EMPTY), g * (1 + sigma * eps)[:, None])


@pytest.mark.parametrize("scale", [1e-10, 1e-30, 1e20])
def test_scales_with_the_gradients(scale):
    g, eps = rows(), torch.tensor([0.3, -1.2, 2.0, 0.1])
    torch.testing.assert_close(
        max_norm(g * scale, row_norms(g * scale), eps, EMPTY),
        max_norm(g, row_norms(g), eps, EMPTY) * scale,
        rtol=1e-5,
        atol=0,
    )


def test_a_zero_row_gets_an_isotropic_vector_of_the_longest_norm():
    g = torch.cat([rows(), torch.zeros(5000, 3)])
    generator = torch.Generator().manual_seed(1)
    isotropic = torch.randn(5000, 3, generator=generator)
    out = max_norm(g, row_norms(g), torch.zeros(len(g)), isotropic)
    torch.testing.assert_close(out[4:].norm(dim=1), torch.full((5000,), 5.0))
    assert float(out[4:].mean(0).norm()) < 5 * 4 / 5000**0.5
    covariance = out[4:].T @ out[4:] / 5000
    torch.testing.assert_close(covariance, torch.eye(3) * 25 / 3, rtol=0, atol=0.6)


def test_a_batch_of_zeros_stays_as_it_is():
    g = torch.zeros(6, 3)
    assert torch.equal(max_norm(g, row_norms(g), torch.ones(6), torch.ones(6, 3)), g)
    assert max_norm(EMPTY, row_norms(EMPTY), torch.zeros(0), EMPTY).shape == (0, 3)


@pytest.mark.parametrize("normal", [1.0, -1.0])
def test_rows_too_short_for_float32_arithmetic_still_reach_the_longest_norm(normal):
    g = torch.tensor([[1e-2, 0.0], [1e-42, 0.0]])
    out = max_norm(g, row_norms(g), torch.full((2,), normal), torch.zeros(0, 2))
    assert bool(out.isfinite().all())
    assert float(out[1, 0]) == pytest.approx(normal * 1e-2, rel=1e-3)


@given(st.integers(1, 20), st.integers(1, 6), st.integers(0, 2**31))
def test_keeps_shape_dtype_and_lines(n, d, seed):
    generator = torch.Generator().manual_seed(seed)
    g, eps = torch.randn(n, d, generator=generator), torch.randn(n, generator=generator)
    before = g.clone()
    out = max_norm(g, row_norms(g), eps, torch.zeros(0, d))
    assert out.shape == g.shape
    assert out.dtype == g.dtype
    assert torch.equal(g, before)
    along = (out * g).sum(1).abs()
    torch.testing.assert_close(along, out.norm(dim=1) * g.norm(dim=1), rtol=1e-4, atol=1e-5)


def signed(strength=1.0, draws=DRAWS):
    """Mean of each row over the draws, in standard errors from what it must be, and the rows that were drawn."""
    g = rows()
    tall, generator = g.repeat(draws, 1), torch.Generator().manual_seed(0)
    uniform = (torch.rand(len(tall), generator=generator, dtype=torch.float64) - 0.5) / strength + 0.5
    out = aligned_rows(tall, row_norms(tall), uniform, EMPTY, 8.0).reshape(draws, 4, 3).double()
    return (out.mean(0) - g).norm(dim=1) / (out.var(0).sum(1) / draws).sqrt(), out


def test_aligned_rows_have_one_length_and_the_mean_of_the_gradient():
    bias, out = signed()
    torch.testing.assert_close(out.norm(dim=2), torch.full((DRAWS, 4), 8.0).double(), rtol=1e-6, atol=0)
    assert float(bias.max()) < 4
    for wrong in (2 / 3, 3 / 2):
        assert float(signed(wrong)[0].max()) > 10


def test_aligned_rows_by_hand_and_longer_ones_shortened():
    g = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 30.0], [0.0, 0.0]])
    uniform = torch.tensor([0.74, 0.76, 0.999, 0.5])  # (1 + 5 / 10) / 2 = 0.75
    sent = aligned_rows(g, row_norms(g), uniform, torch.tensor([[2.0, 0.0]]), 10.0)
    torch.testing.assert_close(sent, torch.tensor([[6.0, 8.0], [-6.0, -8.0], [0.0, 10.0], [10.0, 0.0]]))
    tiny = aligned_rows(g * 1e-40, row_norms(g * 1e-40), uniform, torch.tensor([[2.0, 0.0]]), 10.0)
    torch.testing.assert_close(row_norms(tiny), torch.full((4,), 10.0).double(), rtol=1e-4, atol=0)
