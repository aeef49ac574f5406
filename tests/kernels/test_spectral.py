"""The top singular direction: numpy's SVD as the oracle, at every shape and scale."""

import numpy as np
import pytest
import torch
from scipy import linalg

from cutlayer.kernels.statistics import spectral
from cutlayer.kernels.statistics.spectral import project, project_on_top


def top_direction(x: torch.Tensor) -> torch.Tensor:
    """The unit vector that `project` projects on, (d,)."""
    return spectral._direction(*spectral._centred(x))


def matrix(n, d, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    planted = torch.randn(n, 1, generator=generator) * torch.randn(1, d, generator=generator)
    return scale * (torch.randn(n, d, generator=generator) + planted + 5)


def by_numpy(x):
    array = x.double().numpy()
    array = array - array.mean(0)
    return array, np.linalg.svd(array, full_matrices=False)[2][0]


@pytest.mark.parametrize("largest_eigh", [512, 1], ids=["eigh", "lanczos"])
@pytest.mark.parametrize(("n", "d"), [(1000, 8), (300, 40), (12, 90), (2, 5), (50, 1)])
@pytest.mark.parametrize("scale", [1.0, 1e-10, 1e-25, 1e15])
def test_equals_the_svd(n, d, scale, largest_eigh, monkeypatch):
    monkeypatch.setattr(spectral, "_MAX_EIGH", largest_eigh)
    x = matrix(n, d, scale)
    array, v = by_numpy(x)
    ours = top_direction(x).double().numpy()
    assert np.linalg.norm(ours) == pytest.approx(1, abs=1e-5)
    assert abs(ours @ v) == pytest.approx(1, abs=1e-5)
    s = project(x).numpy()
    np.testing.assert_allclose(s, (array @ v) * np.sign(ours @ v), atol=2e-3 * np.abs(s).max())


def test_a_second_direction_is_told_apart():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(4000, 30, generator=generator) * torch.cat([torch.tensor([2.0, 1.8]), torch.ones(28)])
    assert abs(float(top_direction(x)[0])) > 0.95
    assert abs(float(top_direction(x[:, [1, 0, *range(2, 30)]])[1])) > 0.95


def test_the_iteration_finds_what_the_full_decomposition_finds(monkeypatch):
    x = torch.randn(900, 60, generator=torch.Generator().manual_seed(3))
    full = project(x)
    monkeypatch.setattr(spectral, "_MAX_EIGH", 10)
    iterated = project(x)
    assert float(iterated.norm()) == pytest.approx(float(full.norm()), rel=1e-4)


def test_low_rank_exhausts_the_iteration_which_repeats_itself(monkeypatch):
    monkeypatch.setattr(spectral, "_MAX_EIGH", 3)
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(40, 2, generator=generator) @ torch.randn(2, 30, generator=generator)
    _, v = by_numpy(x)
    assert abs(float(top_direction(x).double() @ torch.from_numpy(v))) == pytest.approx(1, abs=1e-4)
    assert torch.equal(top_direction(x), top_direction(x.clone()))
    assert torch.equal(project_on_top(x, 3), project_on_top(x.clone(), 3))


@pytest.mark.parametrize(("width", "directions"), [(60, 3), (4, 4), (4, 1)])
def test_the_iteration_has_the_coordinates_of_the_decomposition(width, directions, monkeypatch):
    x = torch.randn(300, width, generator=torch.Generator().manual_seed(4)) * torch.linspace(4, 0.5, width)
    full = project_on_top(x, directions)
    monkeypatch.setattr(spectral, "_MAX_EIGH", 2)
    iterated = project_on_top(x, directions)
    torch.testing.assert_close(iterated.abs(), full.abs(), rtol=1e-3, atol=5e-3)


def test_the_sign_is_fixed_and_the_global_random_state_untouched():
    x = matrix(200, 6)
    before = torch.get_rng_state()
    v = top_direction(x)
    assert float(v[v.abs().argmax()]) > 0
    assert torch.equal(top_direction(x.clone()), v)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("x", [torch.full((1001, 7), 0.1), torch.zeros(5, 3), torch.ones(1, 4), torch.zeros(0, 3)])
def test_equal_rows_have_no_direction(x):
    assert top_direction(x).tolist() == [0.0] * x.shape[1]
    assert project(x).tolist() == [0.0] * len(x)


def test_the_input_is_left_alone():
    x = matrix(20, 3)
    before = x.clone()
    project(x)
    assert torch.equal(x, before)


def test_a_failing_decomposition_falls_back_to_the_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(300, 20, generator=draw) * torch.linspace(5, 0.1, 20)
    wanted = {shape: top_direction(matrix) for shape, matrix in (("tall", x), ("wide", x[:12]))}

    def failing(*_: object, **options: object) -> None:
        raise linalg.LinAlgError("did not converge")

    monkeypatch.setattr(linalg, "eigh", failing)
    for shape, matrix in (("tall", x), ("wide", x[:12])):
        assert torch.dot(top_direction(matrix), wanted[shape]) > 1 - 1e-4
