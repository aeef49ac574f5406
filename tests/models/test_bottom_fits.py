"""Fits of a bottom model on one party's own columns: against independent implementations, and what they are worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from torch import Tensor

from cutlayer.errors import ConfigError
from cutlayer.models import BottomModel, Inputs, build_bottom
from cutlayer.models.bottom_fits import TrainingColumns, check_fit, fit_bottom, is_independent
from cutlayer.models.bottom_fits.gradients import no_gradients
from tests.models.fitted_columns import CODES, INPUTS, NUMBERS, ROWS, TRAINING, bottom_of, columns

WIDE = torch.tensor([70_000, 1], dtype=torch.int32)


def dense() -> npt.NDArray[np.float64]:
    hot = [np.eye(count)[CODES[:, index].numpy()] for index, count in enumerate(INPUTS.cardinalities)]
    return np.concatenate([*hot, NUMBERS.double().numpy()], axis=1)


def embedded(bottom: BottomModel) -> npt.NDArray[np.float32]:
    with torch.no_grad():
        found: npt.NDArray[np.float32] = bottom(CODES, NUMBERS).numpy()
    return found


def test_linear_is_the_affine_map_of_one_hot_columns() -> None:
    bottom = bottom_of("linear", width=3)
    draw = np.random.default_rng(1)
    weights, bias = draw.normal(size=(12, 3)), draw.normal(size=3)
    bottom.assign(torch.from_numpy(weights).float(), torch.from_numpy(bias).float())  # type: ignore[operator]
    np.testing.assert_allclose(embedded(bottom), dense() @ weights + bias, atol=1e-5)


@pytest.mark.parametrize("inputs", [Inputs((4,), 0), Inputs((), 2)])
def test_linear_takes_columns_of_one_kind(inputs: Inputs) -> None:
    bottom = build_bottom({"kind": "linear", "width": 2}, inputs)
    codes = torch.zeros(3, len(inputs.cardinalities), dtype=torch.int32)
    assert bottom(codes, torch.ones(3, inputs.numbers)).shape == (3, 2)


def test_pca_is_that_of_scikit_learn() -> None:
    bottom = bottom_of("linear", width=4)
    (lost,) = fit_bottom({"kind": "pca"}, bottom, columns(), "fit")
    reference = PCA(4, svd_solver="full").fit(dense()[TRAINING])
    theirs = reference.transform(dense())
    mine = embedded(bottom)
    signs = np.sign((mine * theirs).sum(0))
    np.testing.assert_allclose(mine, theirs * signs, atol=2e-5)
    assert lost == pytest.approx(1 - reference.explained_variance_ratio_.sum(), abs=1e-9)
    weights = torch.cat([bottom.categories.table.weight, bottom.numbers.weight.T])  # type: ignore[union-attr]
    assert bool((weights.gather(0, weights.abs().argmax(0, keepdim=True)) > 0).all())


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("mlp", {}, "fit: expected a bottom model of kind linear"),
        ("linear", {"width": 13}, "at most 12"),
    ],
)
def test_pca_refuses_what_it_cannot_set(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit_bottom({"kind": "pca"}, bottom_of(kind, **options), columns(), "fit")


def test_too_many_categories_are_refused() -> None:
    wide = TrainingColumns(Inputs((70_000, 3), 0), TRAINING, lambda rows: (CODES[rows], NUMBERS[rows, :0]))
    with pytest.raises(ConfigError, match="columns for fit"):
        fit_bottom({"kind": "pca"}, build_bottom({"kind": "linear", "width": 2}, wide.inputs), wide, "fit")


def test_wide_categories_are_fitted() -> None:
    wide = TrainingColumns(Inputs((300_000, 3), 4), TRAINING, lambda rows: (CODES[rows] * WIDE, NUMBERS[rows]))
    bottom = build_bottom({"kind": "linear", "width": 2}, wide.inputs)
    before = bottom(*wide.gather(TRAINING)).detach()
    fit_bottom({"kind": "sketch"}, bottom, wide, "fit")
    assert not torch.equal(bottom(*wide.gather(TRAINING)), before)


def test_no_fit_leaves_the_weights() -> None:
    before, after = bottom_of("mlp"), bottom_of("mlp")
    assert fit_bottom(None, after, columns(), "fit") == fit_bottom({"kind": "none"}, after, columns(), "fit") == ()
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    assert not after.training


@pytest.mark.parametrize(
    ("raw", "bottom", "message"),
    [
        ({"kind": "pac"}, {"kind": "linear"}, "parties.telco.fit.kind: unknown kind 'pac'; did you mean 'pca'"),
        ({"kind": "pca"}, {"kind": "mlp"}, "a bottom model of kind linear for kind pca, got mlp"),
        ({"kind": "pca", "epochs": 2}, {"kind": "linear"}, "fit.epochs: unknown key"),
        ({"kind": "gradients", "lr": 0}, {"kind": "mlp"}, "fit.lr"),
        ({"kind": "gradients", "batch_size": 1}, {"kind": "mlp"}, "fit.batch_size"),
        ({"kind": "gradients"}, {"kind": "mlp", "cut": "linear"}, "train.warmup_epochs: 0"),
        ({}, {"kind": "mlp"}, "unknown kind None"),
    ],
)
def test_bad_sections_are_refused(raw: dict[str, Any], bottom: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("'", ".").replace("?", r"\?")):
        check_fit(raw, bottom, 0, "parties.telco.fit")


def test_least_squares_on_gradients_are_those_of_scikit_learn() -> None:
    """A linear bottom model comes to minus the gradients' least-squares prediction, over their root mean square."""
    slopes = torch.randn(4, 2, generator=torch.Generator().manual_seed(1))
    gradients = 1e-6 * (NUMBERS @ slopes + torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(2)))
    bottom = bottom_of("linear", width=2)
    fit = {"kind": "gradients", "epochs": 300, "batch_size": len(TRAINING), "lr": 0.03}
    losses = fit_bottom(fit, bottom, columns(gradients=gradients), "fit")
    targets = -gradients[TRAINING].double().numpy() / float(gradients[TRAINING].square().mean().sqrt())
    reference = LinearRegression().fit(dense()[TRAINING], targets)
    np.testing.assert_allclose(embedded(bottom)[TRAINING], reference.predict(dense()[TRAINING]), atol=2e-3)
    assert losses[-1] == pytest.approx(float(np.mean((reference.predict(dense()[TRAINING]) - targets) ** 2)), abs=1e-4)


def test_rows_that_were_sent_no_gradient_have_no_part_in_the_fit() -> None:
    seen: list[Tensor] = []
    gradients = no_gradients(ROWS, 6)
    gradients[TRAINING[:200]] = torch.randn(200, 6)
    bottom = bottom_of("mlp", hidden=[6], cut="linear")
    fit_bottom({"kind": "gradients", "epochs": 1}, bottom, columns(seen=seen, gradients=gradients), "fit")
    assert torch.equal(torch.cat(seen).sort().values, TRAINING[:200])


@pytest.mark.parametrize(
    ("gradients", "message"), [(None, "gradients of warm-up epochs"), (torch.zeros(ROWS, 6), "zeros alone")]
)
def test_without_gradients_there_is_nothing_to_fit_by(gradients: Tensor | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit_bottom({"kind": "gradients"}, bottom_of("mlp", hidden=[6]), columns(gradients=gradients), "fit")


def test_gradients_need_an_embedding_of_both_signs() -> None:
    for kind, cut in (("mlp", None), ("cnn", "activated"), ("lenet5", "activated")):
        with pytest.raises(ConfigError, match=r"write cut: linear in model\.bottom"):
            check_fit({"kind": "gradients"}, {"kind": kind, "cut": cut}, 2, "fit")
    check_fit({"kind": "gradients"}, {"kind": "mlp", "cut": "linear"}, 2, "fit")
    check_fit({"kind": "gradients"}, {"kind": "linear"}, 2, "fit")


def test_which_fits_no_row_has_a_part_in() -> None:
    assert [is_independent(raw) for raw in (None, {"kind": "none"}, {"kind": "pca"})] == [True, True, False]
