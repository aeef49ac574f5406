"""Normal scores against the standard library's normal distribution and a rank counted row by row."""

from __future__ import annotations

from statistics import NormalDist

import pytest
import torch

from cutlayer.kernels.statistics.normal_scores import normal_scores


def counted(values: list[float]) -> list[float]:
    """By definition: the mean rank of a value is that of the rows below it and of half of those equal to it."""
    ranks = [sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values]
    return [NormalDist().inv_cdf((rank - 3 / 8) / (len(values) + 1 / 4)) for rank in ranks]


@pytest.mark.parametrize("values", [[4.0], [1.0, 1.0, 1.0], [0.5, -2.0, 7.0, 7.0, 1e9], list(range(40, 0, -1))])
def test_it_is_the_quantile_of_the_rank(values: list[float]) -> None:
    found = normal_scores(torch.tensor(values))
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx(counted(values), abs=1e-12)
    assert float(found.sum()) == pytest.approx(0, abs=1e-9) or len(set(values)) < len(values)


def test_the_published_scores_of_five_values() -> None:
    """R: qnorm((1:5 - 3/8) / (5 + 1/4))."""
    found = normal_scores(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert found.tolist() == pytest.approx([-1.179761, -0.497201, 0.0, 0.497201, 1.179761], abs=1e-6)


def test_no_increasing_map_changes_it() -> None:
    values = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(normal_scores(values), normal_scores(values.exp() ** 3))
    assert not torch.allclose(normal_scores(values), normal_scores(-values))
