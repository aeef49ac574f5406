"""Distance correlation against the `dcor` package, the n x n matrices written out, and its own invariances.

The values of the package are kept beside this file, since on some processors its just-in-time compiler takes the whole
test process down: `pip install dcor && python tests/kernels/test_distance_correlation.py` writes them again.
"""

from __future__ import annotations

import json
import math
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import one_hot
from torch.utils._python_dispatch import TorchDispatchMode

from cutlayer.errors import DataError
from cutlayer.kernels.dependence import distance_correlation
from cutlayer.kernels.dependence.distance_correlation import class_distance_correlation_sqr, distance_correlation_sqr

TILE = 16
VALUES = Path(__file__).with_name("dcor_values.json")
SAMPLES = [(4, 1, 1), (5, 3, 2), (60, 1, 5), (60, 8, 1), (TILE + 1, 6, 7), (2 * TILE, 20, 3)]
CLASSES = [(6, 2), (60, 3), (TILE + 40, 2), (2 * TILE + 1, 50)]
both_estimates = pytest.mark.parametrize("unbiased", [False, True])


@pytest.fixture(autouse=True, scope="module")
def _small_tiles():
    """Many tiles at few rows, whole and cut ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distance_correlation, "tile_size", lambda device: TILE)
        yield


def _samples(n: int, width: int, other: int, seed: int = 0, repeats: int = 0) -> tuple[Tensor, Tensor]:
    """Dependent float64 samples away from the origin, the first rows repeated at the end."""
    generator = torch.Generator().manual_seed(seed)
    x = 3.0 + torch.randn(n, width, dtype=torch.float64, generator=generator)
    y = torch.randn(n, other, dtype=torch.float64, generator=generator) + x[:, :1].square()
    if repeats:
        x[-repeats:] = x[:repeats]
    return x, y


def _classes(n: int, classes: int) -> tuple[Tensor, Tensor]:
    """Rows and their labels, some classes larger than others."""
    return _samples(n, 9, 1)[0], torch.arange(n).square() % classes


def _dcor_values(kind: str, unbiased: bool) -> list[float]:
    """What the package gave for `SAMPLES` or `CLASSES`, in their order."""
    return json.loads(VALUES.read_text())[kind]["unbiased" if unbiased else "biased"]


def _centred(rows: Tensor, unbiased: bool) -> Tensor:
    """The whole matrix of centred distances, by definition."""
    n = rows.shape[0]
    a = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    if not unbiased:
        return a - a.mean(0) - a.mean(1, keepdim=True) + a.mean()
    sums = a.sum(0)
    a = a - sums / (n - 2) - sums[:, None] / (n - 2) + sums.sum() / ((n - 1) * (n - 2))
    return a * (1.0 - torch.eye(n, dtype=a.dtype))


def _naive(x: Tensor, y: Tensor, unbiased: bool) -> Tensor:
    a, b = _centred(x, unbiased), _centred(y, unbiased)
    return (a * b).sum() / ((a * a).sum() * (b * b).sum()).sqrt()


def _value_and_gradients(function, *tensors: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    value = function(*leaves)
    return value.detach(), torch.autograd.grad(value, leaves)


def _assert_close(got: Tensor, wanted: Tensor, relative: float) -> None:
    """The whole gradient as one vector: its small elements carry the rounding of the large ones."""
    assert got.shape == wanted.shape
    assert float((got - wanted).norm()) <= relative * float(wanted.norm())


class TestOutsideValues:
    @pytest.mark.parametrize(
        ("other", "expected"),
        [([[7, 3, 6], [2, 1, 4], [3, 8, 1]], 0.93387), ([[1, 1, 1], [2, 1, 1], [1, 1, 1]], 0.31623)],
    )
    def test_golden(self, other, expected):
        """Fixed values of the squared coefficient for three rows, from the list of values computed elsewhere."""
        x = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=torch.float64)
        y = torch.tensor(other)
        assert float(distance_correlation_sqr(x, y)) == pytest.approx(expected, abs=1e-5)

    @both_estimates
    @pytest.mark.parametrize(("n", "width", "other"), SAMPLES)
    def test_value_is_the_dcor_packages(self, n, width, other, unbiased):
        x, y = _samples(n, width, other, repeats=n // 10)
        expected = _dcor_values("samples", unbiased)[SAMPLES.index((n, width, other))]
        assert float(distance_correlation_sqr(x, y, unbiased)) == pytest.approx(expected, rel=1e-9, abs=1e-15)

    @both_estimates
    @pytest.mark.parametrize(("n", "classes"), CLASSES)
    def test_class_value_is_the_dcor_packages(self, n, classes, unbiased):
        x, labels = _classes(n, classes)
        expected = _dcor_values("classes", unbiased)[CLASSES.index((n, classes))]
        got = class_distance_correlation_sqr(x, labels, classes, unbiased)
        assert float(got) == pytest.approx(expected, rel=1e-9, abs=1e-15)

    def test_the_other_estimate_would_be_seen(self):
        x, y = _samples(60, 8, 1)
        biased, unbiased = (float(distance_correlation_sqr(x, y, choice)) for choice in (False, True))
        assert abs(biased - unbiased) > 1e-3
        assert abs(biased - math.sqrt(biased)) > 1e-3


class TestGradient:
    @both_estimates
    @pytest.mark.parametrize(("n", "width", "other"), [(5, 1, 1), (40, 3, 8), (TILE + 1, 16, 1), (2 * TILE, 40, 12)])
    def test_gradient_is_naive_autograds(self, n, width, other, unbiased):
        x, y = _samples(n, width, other, repeats=n // 10)
        value, gradients = _value_and_gradients(lambda a, b: distance_correlation_sqr(a, b, unbiased).log1p(), x, y)
        slow, wanted = _value_and_gradients(lambda a, b: _naive(a, b, unbiased).log1p(), x, y)
        assert float(value) == pytest.approx(float(slow), rel=1e-9)
        for got, want in zip(gradients, wanted, strict=True):
            _assert_close(got, want, 1e-8)

    @both_estimates
    @pytest.mark.parametrize(("n", "classes"), [(40, 2), (TILE + 40, 3), (2 * TILE + 1, 50)])
    def test_class_gradient_is_naive_autograds(self, n, classes, unbiased):
        x, _ = _samples(n, 12, 1, repeats=n // 10)
        labels = torch.randint(0, classes, (n,), generator=torch.Generator().manual_seed(1))
        rows = one_hot(labels, classes).double()
        value, (got,) = _value_and_gradients(lambda a: class_distance_correlation_sqr(a, labels, classes, unbiased), x)
        slow, (want,) = _value_and_gradients(lambda a: _naive(a, rows, unbiased), x)
        assert float(value) == pytest.approx(float(slow), rel=1e-9)
        _assert_close(got, want, 1e-8)

    @both_estimates
    def test_gradcheck(self, unbiased):
        x, y = (t.requires_grad_() for t in _samples(7, 5, 2))
        assert torch.autograd.gradcheck(lambda a, b: distance_correlation_sqr(a, b, unbiased), (x, y))

    def test_a_wrong_gradient_is_seen(self):
        """The tolerance tells the derivative from one that forgets the variance of x in the denominator."""
        x, y = _samples(40, 3, 8)
        a = _centred(x, unbiased=False)
        _, (got, _) = _value_and_gradients(distance_correlation_sqr, x, y)
        _, (wrong, _) = _value_and_gradients(
            lambda x, y: _naive(x, y, False) * _centred(x, False).norm() / a.norm(), x, y
        )
        assert float((wrong - got).norm()) > 1e-3 * float(got.norm())

    @both_estimates
    @pytest.mark.parametrize(("tile", "n"), [(TILE, TILE + 40), (512, 300)])
    @pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-4])
    def test_single_precision_with_rows_near_each_other(self, spread, tile, n, unbiased, monkeypatch):
        """Embeddings about to collapse onto their classes: within a class the product form has no digits left.

        In many rows the terms of a weight cancel further, which single-precision offsets would not survive.
        """
        monkeypatch.setattr(distance_correlation, "tile_size", lambda device: tile)
        labels = torch.arange(n) % 3
        generator = torch.Generator().manual_seed(2)
        x = torch.randn(3, 32, generator=generator)[labels] + spread * torch.randn(n, 32, generator=generator)
        value, (got,) = _value_and_gradients(lambda a: class_distance_correlation_sqr(a, labels, 3, unbiased), x)
        rows = one_hot(labels, 3).double()
        slow, (want,) = _value_and_gradients(lambda a: _naive(a, rows, unbiased), x.double())
        assert value.dtype == got.dtype == torch.float32
        assert float(value) == pytest.approx(float(slow), rel=1e-5)
        _assert_close(got.double(), want, 1e-3)

    def test_only_once_differentiable(self):
        x, y = _samples(6, 2, 2)
        (gradient,) = torch.autograd.grad(
            distance_correlation_sqr(x.requires_grad_(), y).square(), x, create_graph=True
        )
        with pytest.raises(RuntimeError, match="once_differentiable"):
            gradient.sum().backward()

    def test_no_gradient_is_made_for_what_needs_none(self):
        x, y = _samples(6, 2, 2)
        distance_correlation_sqr(x, y.requires_grad_()).backward()
        assert x.grad is None
        assert float(y.grad.norm()) > 0.0


class TestUndefined:
    """Where the definition divides zero by zero: the value is 0 and nothing is pulled anywhere."""

    @both_estimates
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize(
        ("x", "labels"),
        [
            (torch.zeros(0, 3), []),
            (torch.ones(1, 3), [1]),
            (torch.full((6, 3), 0.1), [0, 1, 0, 1, 1, 0]),
            (torch.full((6, 30), -1e-3), [0, 1, 0, 1, 1, 0]),
            (torch.arange(18.0).reshape(6, 3), [1, 1, 1, 1, 1, 1]),
            (torch.zeros(6, 0), [0, 1, 0, 1, 1, 0]),
        ],
    )
    def test_zero_and_no_gradient(self, x, labels, dtype, unbiased):
        labels = torch.tensor(labels, dtype=torch.int64)
        rows = one_hot(labels, 2).to(dtype) if labels.numel() else torch.zeros(0, 2, dtype=dtype)
        for function in (
            lambda a: class_distance_correlation_sqr(a, labels, 2, unbiased),
            lambda a: distance_correlation_sqr(a, rows, unbiased),
        ):
            value, (gradient,) = _value_and_gradients(function, x.to(dtype))
            assert float(value) == 0.0
            assert value.dtype == dtype
            assert torch.equal(gradient, torch.zeros_like(gradient))

    def test_too_few_rows_for_the_unbiased_estimate(self):
        x, y = _samples(3, 2, 2)
        value, gradients = _value_and_gradients(lambda a, b: distance_correlation_sqr(a, b, unbiased=True), x, y)
        assert float(value) == 0.0
        assert all(float(g.abs().sum()) == 0.0 for g in gradients)
        assert float(distance_correlation_sqr(x, y)) > 0.0

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_equidistant_rows_have_no_unbiased_variance(self, dtype):
        x = torch.eye(8, dtype=dtype)
        value, (gradient, _) = _value_and_gradients(
            lambda a, b: distance_correlation_sqr(a, b, unbiased=True), x, torch.arange(8, dtype=dtype)
        )
        assert float(value) == 0.0
        assert float(gradient.abs().sum()) == 0.0

    def test_a_nan_is_not_hidden(self):
        x, y = _samples(10, 8, 2)
        x[3, 3] = math.nan
        assert distance_correlation_sqr(x, y).isnan()


class TestInvariance:
    @given(
        st.integers(4, 30), st.integers(1, 9), st.integers(1, 4), st.integers(0, 10_000), st.booleans(), st.booleans()
    )
    @settings(deadline=None)
    def test_shift_rotation_scale_order_and_exchange(self, n, width, other, seed, unbiased, single):
        # The unbiased value of few rows divides by a variance that may be near zero, which magnifies any rounding.
        assume(n >= 8 or not (single and unbiased))
        x, y = _samples(n, width, other, seed)
        turn = torch.linalg.qr(torch.randn(width, width, dtype=x.dtype, generator=torch.Generator().manual_seed(1)))[0]
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        moved = (x @ turn * 1e-10 + 1e-9)[order]
        tolerance = 1e-9
        if single:
            moved, tolerance = moved.float(), 1e-4
        value = float(distance_correlation_sqr(x, y, unbiased))
        assert float(distance_correlation_sqr(moved, y[order], unbiased)) == pytest.approx(value, abs=tolerance)
        assert float(distance_correlation_sqr(y, x, unbiased)) == pytest.approx(value, rel=1e-12, abs=1e-13)

    @given(st.integers(2, 30), st.integers(0, 10_000))
    @settings(deadline=None)
    def test_range_and_the_extremes(self, n, seed):
        x, y = _samples(n, 3, 2, seed)
        assert 0.0 <= float(distance_correlation_sqr(x, y)) <= 1.0 + 1e-12
        assert float(distance_correlation_sqr(x, -2.0 * x)) == pytest.approx(1.0, abs=1e-12)

    @given(st.lists(st.integers(0, 5), min_size=4, max_size=40), st.integers(0, 10_000), st.booleans())
    @settings(deadline=None)
    def test_classes_are_one_hot_rows(self, labels, seed, unbiased):
        labels = torch.tensor(labels)
        x, _ = _samples(labels.numel(), 6, 1, seed)
        expected = float(distance_correlation_sqr(x, one_hot(labels, 6).double(), unbiased))
        assert float(class_distance_correlation_sqr(x, labels, 6, unbiased)) == pytest.approx(expected, abs=1e-10)

    def test_independent_labels(self):
        """The biased value of independent labels at d = 128 is about 0.139 at n = 50; the unbiased is about 0."""
        values = np.array(
            [
                [
                    float(class_distance_correlation_sqr(torch.randn(50, 128, generator=g), labels, 2, choice))
                    for choice in (False, True)
                ]
                for g in (torch.Generator().manual_seed(seed) for seed in range(40))
                for labels in [torch.randint(0, 2, (50,), generator=g)]
            ]
        )
        assert values[:, 0].mean() == pytest.approx(0.139, abs=0.01)
        assert values[:, 1].mean() == pytest.approx(0.0, abs=0.01)

    def test_trailing_dimensions_are_one_row(self):
        x, y = _samples(12, 12, 1)
        assert torch.equal(distance_correlation_sqr(x.reshape(12, 3, 4), y[:, 0]), distance_correlation_sqr(x, y))


class _Largest(TorchDispatchMode):
    """Watches how many elements the largest tensor made has."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (list, tuple)) else [out]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


class TestMemory:
    @pytest.mark.parametrize("categorical", [False, True])
    def test_no_matrix_of_all_pairs(self, categorical):
        n, width = 12 * TILE, 8
        x, y = torch.randn(n, width).requires_grad_(), torch.randint(0, 3, (n,))
        with _Largest() as largest:
            if categorical:
                class_distance_correlation_sqr(x, y, 3).backward()
            else:
                distance_correlation_sqr(x, y).backward()
        assert n <= largest.elements <= n * n / 6
        with _Largest() as largest:
            torch.cdist(x[:TILE], x[:TILE])
        assert largest.elements >= TILE * TILE


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_labels_may_be_integers_of_any_size(dtype):
    x = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 2, 1, 0])
    wanted = class_distance_correlation_sqr(x, labels, 3)
    assert torch.equal(class_distance_correlation_sqr(x, labels.to(dtype), 3), wanted)


class TestErrors:
    def test_rows_that_are_not_paired(self):
        with pytest.raises(DataError, match="as many rows"):
            distance_correlation_sqr(torch.ones(3, 2), torch.ones(4, 2))
        with pytest.raises(DataError, match="as many rows"):
            distance_correlation_sqr(torch.tensor(1.0), torch.tensor(1.0))
        with pytest.raises(DataError, match="as many rows"):
            distance_correlation_sqr(torch.ones(3, 2), torch.tensor(1.0))
        with pytest.raises(DataError, match="as many rows"):
            distance_correlation_sqr(torch.tensor(1.0), torch.ones(3))

    def test_integer_embeddings(self):
        with pytest.raises(DataError, match="a floating x"):
            distance_correlation_sqr(torch.ones(3, 2, dtype=torch.int64), torch.ones(3))

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (torch.tensor([0, 1, 2]), r"labels in \[0, 2\), got 0 to 2"),
            (torch.tensor([0, -1, 1]), r"labels in \[0, 2\), got -1 to 1"),
            (torch.tensor([0.0, 1.0, 1.0]), "integer labels"),
            (torch.tensor([[0], [1], [1]]), "integer labels"),
        ],
    )
    def test_labels_that_are_no_classes(self, labels, message):
        with pytest.raises(DataError, match=message):
            class_distance_correlation_sqr(torch.ones(3, 2), labels, 2)


@pytest.mark.parametrize(("n", "classes", "alone"), [(4 * TILE, 2, True), (4 * TILE, 4, True), (TILE, 2, False)])
def test_no_tile_is_divided_by_a_class_where_each_has_a_tiles_rows(n: int, classes: int, alone: bool) -> None:
    """Distances of such labels are one number a tile, so that no matrix of them is made."""
    labels = torch.arange(n).square() % classes if classes == 2 else torch.arange(n) % classes
    metric = distance_correlation._Classes(labels.sort().values, classes)
    made = [metric.distances(*tile) for tile in distance_correlation.tiles(n, TILE, metric.edges(TILE))]
    assert all(isinstance(each, float) for each in made) == alone


def _write_values() -> None:
    import dcor

    pairs = {
        "samples": [_samples(n, width, other, repeats=n // 10) for n, width, other in SAMPLES],
        "classes": [(x, one_hot(y, k).double()) for x, y, k in ((*_classes(n, k), k) for n, k in CLASSES)],
    }
    estimates = {"biased": dcor.distance_correlation_sqr, "unbiased": dcor.u_distance_correlation_sqr}
    values = {
        kind: {name: [float(f(x.numpy(), y.numpy())) for x, y in rows] for name, f in estimates.items()}
        for kind, rows in pairs.items()
    }
    VALUES.write_text(json.dumps({"package": f"dcor {version('dcor')}", **values}, indent=1) + "\n")


if __name__ == "__main__":
    _write_values()
