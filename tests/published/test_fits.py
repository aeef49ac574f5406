"""Fits by gradient descent on one party's own columns: an autoencoder and SCARF, with consent alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import Context
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from cutlayer.consent import allowed
from cutlayer.errors import ConfigError, Diverged
from cutlayer.models import BottomModel, Inputs, build_bottom
from cutlayer.models.bottom_fits import FITS, TrainingColumns, check_fit, fit_bottom
from cutlayer_published.fits.autoencoder import reconstruction_loss
from cutlayer_published.fits.contrastive import corrupt_columns
from tests.conformance.fit_suite import FIT_CHECKS
from tests.conformance.table import FitCase
from tests.models.fitted_columns import CODES, GROUP, INPUTS, NUMBERS, ROWS, TRAINING, bottom_of, columns

KINDS = ("autoencoder", "contrastive")
WIDE = torch.tensor([70_000, 1], dtype=torch.int32)


@pytest.fixture(autouse=True)
def consent() -> Iterator[None]:
    with allowed("cutlayer_published"):
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", FIT_CHECKS)
def test_each_passes_the_suite(kind: str, check: Any) -> None:
    check(FITS[kind], FitCase({"epochs": 2}, bottom="mlp"))


def test_nothing_is_imported_without_consent() -> None:
    with pytest.raises(ConfigError, match="--allow-model cutlayer_published"):
        Context().run(check_fit, {"kind": "autoencoder"}, {"kind": "mlp"}, 0, "parties.telco.fit")


def test_without_the_package_a_kind_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.plugins._installed", lambda _: {})
    with pytest.raises(ConfigError, match=r"fit\.kind: the package cutlayer-published, which has contrastive"):
        check_fit({"kind": "contrastive"}, {"kind": "mlp"}, 0, "parties.telco.fit")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"kind": "autoencoder", "lr": 0}, "fit.lr"),
        ({"kind": "contrastive", "corruption": 1.5}, "fit.corruption"),
        ({"kind": "autoencoder", "batch_size": 1}, "fit.batch_size"),
    ],
)
def test_bad_sections_are_refused(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_fit(raw, {"kind": "mlp"}, 0, "parties.telco.fit")


def test_too_many_outputs_are_refused() -> None:
    wide = TrainingColumns(Inputs((70_000, 3), 0), TRAINING, lambda rows: (CODES[rows], NUMBERS[rows, :0]))
    bottom = build_bottom({"kind": "linear", "width": 2}, wide.inputs)
    with pytest.raises(ConfigError, match="outputs"):
        fit_bottom({"kind": "autoencoder", "buckets": 65_536}, bottom, wide, "fit")


@pytest.mark.parametrize("kind", KINDS)
def test_wide_categories_are_fitted(kind: str) -> None:
    wide = TrainingColumns(Inputs((300_000, 3), 4), TRAINING, lambda rows: (CODES[rows] * WIDE, NUMBERS[rows]))
    bottom = build_bottom({"kind": "linear", "width": 2}, wide.inputs)
    before = bottom(*wide.gather(TRAINING)).detach()
    fit_bottom({"kind": kind, "epochs": 1}, bottom, wide, "fit")
    assert not torch.equal(bottom(*wide.gather(TRAINING)), before)


def test_wide_categories_are_reconstructed_modulo_the_buckets() -> None:
    decoded = torch.tensor([[0.0, 9.0, 0.0, 1.0]])
    losses = [float(reconstruction_loss(decoded, (torch.tensor([[code]]), torch.ones(1, 1)), (3,))) for code in (4, 5)]
    assert losses[0] < 0.01 < 4 < losses[1]


@pytest.mark.parametrize("kind", KINDS)
def test_descent_lowers_its_loss_and_beats_random_features(kind: str) -> None:
    """One column of random features says little of the group; a fitted one must say more, over two draws."""
    worth = {"random": [], kind: []}  # type: dict[str, list[float]]
    for seed in (2, 3):  # of the random ones a good one and a bad one
        bottom = bottom_of("mlp", seed, hidden=[16, 1], activation="tanh")
        worth["random"].append(auc(bottom))
        losses = fit_bottom({"kind": kind, "epochs": 12, "batch_size": 50, "lr": 0.01}, bottom, columns(), "fit")
        assert len(losses) == 12
        assert losses[-1] < losses[0] - 0.1
        worth[kind].append(auc(bottom))
    assert np.mean(worth[kind]) > np.mean(worth["random"]) + 0.1
    assert np.mean(worth[kind]) > 0.85


def auc(bottom: BottomModel) -> float:
    """Of a linear head on the embedding, fitted on training rows, on the other rows."""
    held_out = np.setdiff1d(np.arange(ROWS), TRAINING.numpy())
    with torch.no_grad():
        features = bottom(CODES, NUMBERS).numpy()
    head = LogisticRegression().fit(features[TRAINING], GROUP[TRAINING])
    return float(roc_auc_score(GROUP[held_out], head.decision_function(features[held_out])))


def test_the_same_random_state_gives_the_same_fit() -> None:
    fitted = [bottom_of("mlp") for _ in range(2)]
    losses = [fit_bottom({"kind": "contrastive", "epochs": 2}, bottom, columns(), "fit") for bottom in fitted]
    assert losses[0] != losses[1]  # the second went on in the first one's random numbers
    again = bottom_of("mlp")
    assert fit_bottom({"kind": "contrastive", "epochs": 2}, again, columns(), "fit") == losses[0]
    assert torch.equal(*(torch.cat([p.flatten() for p in item.parameters()]) for item in (again, fitted[0])))


def test_reconstruction_loss_by_hand() -> None:
    decoded = torch.zeros(2, 12)
    decoded[:, 8:] = 1.0
    batch = (torch.tensor([[0, 2], [4, 1]], dtype=torch.int32), torch.tensor([[1.0, 1, 1, 3], [1, 1, 1, 1]]))
    wanted = (np.log(5) + np.log(3) + (2.0**2) / 2) / 6
    assert float(reconstruction_loss(decoded, batch, INPUTS.cardinalities)) == pytest.approx(wanted, rel=1e-6)


def test_corruption_replaces_its_share_from_the_same_column() -> None:
    torch.manual_seed(0)
    n = 4000
    batch = (torch.zeros(n, 2, dtype=torch.int32), torch.zeros(n, 3))
    pool = (torch.tensor([[1, 2], [3, 4]], dtype=torch.int32), torch.tensor([[5.0, 6, 7], [8, 9, 10]]))
    codes, numbers = corrupt_columns(batch, pool, 0.6)
    whole = torch.cat([codes.float(), numbers], dim=1)
    assert bool(((whole != 0).sum(1) == 3).all())
    for index in range(5):
        values, counts = whole[:, index].unique(return_counts=True)
        column = torch.cat([pool[0].float(), pool[1]], dim=1)[:, index]
        assert set(values.tolist()) == {0.0, *column.tolist()}
        assert counts[1:].float().div(n).sub(0.3).abs().max() < 0.04


def test_a_diverging_fit_says_what_to_do() -> None:
    with pytest.raises(Diverged, match=r"fit autoencoder: .*lower fit.lr"):
        fit_bottom({"kind": "autoencoder", "lr": 1e30, "epochs": 4}, bottom_of("mlp"), columns(), "fit")


def test_a_batch_norm_of_the_users_own_survives_a_last_batch_of_one() -> None:
    class Normed(BottomModel):
        def __init__(self) -> None:
            super().__init__()
            self.width = 2
            self.layers = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))

        def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
            result: Tensor = self.layers(numbers)
            return result

    fit_bottom({"kind": "autoencoder", "batch_size": 10, "epochs": 1}, Normed(), columns(TRAINING[:21]), "fit")
