"""Coordinates along the top directions: numpy's SVD as the oracle, at every shape and scale."""

import numpy as np
import pytest
import torch

from cutlayer.kernels.statistics import spectral
from cutlayer.kernels.statistics.spectral import project, project_on_top


def planted(n, d, scale=1.0, directions=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    strong = torch.randn(n, directions, generator=generator) * torch.tensor([9.0, 6.0, 4.0])[:directions]
    return scale * (torch.randn(n, d, generator=generator) + strong @ torch.randn(directions, d, generator=generator))


@pytest.mark.parametrize("largest_eigh", [512, 1], ids=["eigh", "iteration"])
@pytest.mark.parametrize(("n", "d"), [(1000, 8), (300, 40), (12, 90), (50, 3)])
@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e15])
def test_equals_the_svd(n, d, scale, largest_eigh, monkeypatch):
    monkeypatch.setattr(spectral, "_MAX_EIGH", largest_eigh)
    x = planted(n, d, scale)
    array = x.double().numpy()
    u, s, _ = np.linalg.svd(array - array.mean(0), full_matrices=False)
    expected, ours = (u * s)[:, :3], project_on_top(x, 3).numpy()
    signs = np.sign((expected * ours).sum(0))
    np.testing.assert_allclose(ours * signs, expected, atol=2e-4 * s[0])


def test_the_first_coordinate_is_the_projection_on_the_top_direction():
    x = planted(400, 10)
    first = project_on_top(x, 2)[:, 0]
    one = project(x)
    torch.testing.assert_close(first * torch.sign(first @ one), one, atol=1e-4, rtol=1e-4)


def test_where_lapack_gives_up_the_iteration_takes_over(monkeypatch):
    def gives_up(moved, directions):
        raise torch.linalg.LinAlgError("did not converge")

    x = planted(300, 20)
    expected = project_on_top(x, 3)
    monkeypatch.setattr(spectral, "_decomposed", gives_up)
    ours = project_on_top(x, 3)
    torch.testing.assert_close(ours.abs(), expected.abs(), atol=1e-2, rtol=1e-3)


def test_equal_rows_have_no_direction():
    assert not project_on_top(torch.full((30, 4), 0.3), 2).any()


def test_there_are_no_more_directions_than_columns():
    assert project_on_top(torch.randn(30, 2), 5).shape == (30, 2)
