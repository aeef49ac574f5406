"""What an estimator trains by default: the job that `init` writes; the undefended setting is one argument away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cutlayer import CutlayerError, LabelDPConfig, VerticalClassifier, VerticalRegressor
from cutlayer.config import Job, validated
from cutlayer.estimator.job import job_of
from cutlayer.jobs.first_job import FirstJob, files_of
from cutlayer.jobs.found_tables import read_table
from tests.estimator.tables import classifier, tables

NAMES = ("bank", "shop")


def in_memory() -> dict[str, pa.Table]:
    """The tables of a bank and a shop; the shop's lacks a number and has a column of text."""
    X, _ = tables()
    shop = pd.DataFrame(X["shop"], columns=["x", "y", "z"])
    shop["town"] = np.arange(len(shop)) % 7
    shop["town"] = "town " + shop["town"].astype(str)
    shop.loc[3, "x"] = None
    return {"bank": pa.table(X["bank"]), "shop": pa.Table.from_pandas(shop, preserve_index=False)}


def described(**settings: Any) -> Job:
    """The job of an estimator with these arguments."""
    return job_of(VerticalClassifier("bank", **settings), in_memory(), NAMES, "binary")


def test_the_default_is_what_init_writes(tmp_path: Path) -> None:
    _, y = tables()
    found = in_memory()
    frames = {"bank": found["bank"].append_column("label", pa.array(y)), "shop": found["shop"]}
    for name, table in frames.items():
        table.to_pandas().rename_axis("id").reset_index().to_csv(tmp_path / f"{name}.csv", index=False)
    bank, shop = (read_table(tmp_path / f"{name}.csv") for name in NAMES)
    first = FirstJob(bank, (shop,), "label", {"bank.csv": "id", "shop.csv": "id"})
    written = validated(Job, files_of(first, tmp_path)["job.yaml"], "", tmp_path)
    default = described()
    for job in (written, default):
        assert job.model.bottom["shop"] == {"kind": "linear", "width": 32}
        assert job.parties["shop"].fit == {"kind": "sketch", "map": "permutation"}
    assert default.model == written.model
    assert default.train.release == written.train.release == "once"
    for name in NAMES:
        assert default.parties[name].privacy.keys() == written.parties[name].privacy.keys()
        assert default.parties[name].fit == written.parties[name].fit
        assert default.parties[name].features.numbers == written.parties[name].features.numbers
    assert {*default.parties["bank"].privacy} == {"label_free"}


def test_the_undefended_setting_is_one_argument_away() -> None:
    job = described(release="every_step")
    assert job.train.release == "every_step"
    assert not any(party.privacy or party.fit for party in job.parties.values())
    assert job == described(release="every_step", protections=[])


def test_what_is_stated_stays() -> None:
    job = described(protections=[LabelDPConfig(eps=1.0)], top={"kind": "linear"}, features={"shop": {"exclude": ["x"]}})
    assert job.parties["bank"].privacy == {"label_dp": {"eps": 1.0}}
    assert job.model.top == {"kind": "linear"}
    assert job.parties["shop"].features.numbers.scale == "standard"
    assert described(bottom_fit={"shop": {"kind": "sketch"}}).parties["shop"].fit == {"kind": "sketch"}
    assert not described(protections=()).parties["bank"].privacy
    mixed = described(release={"shop": "every_step"})
    assert not any(party.privacy for party in mixed.parties.values())


@pytest.mark.parametrize(
    "settings",
    [
        {"bottom": {"kind": "mlp"}},
        {"epochs": 3},
        {"batch_size": 64},
        {"lr": 0.1},
        {"optimizer": {"kind": "adamw"}},
        {"patience": 2},
    ],
)
def test_settings_of_steps_need_a_word_on_release(settings: dict[str, Any]) -> None:
    with pytest.raises(
        CutlayerError, match=f"expected release with {next(iter(settings))}: 'every_step' trains by steps"
    ):
        described(**settings)
    assert described(**settings, release="every_step")


@pytest.mark.parametrize("kind", [VerticalClassifier, VerticalRegressor])
def test_a_default_fit_shows_no_partner_a_label(kind: type[VerticalClassifier]) -> None:
    X, y = tables()
    is_classifier = kind is VerticalClassifier
    labels = y if is_classifier else y + 0.5
    model = kind("bank", top={"kind": "linear"}, attacks=(), test=0.3).fit(X, labels)
    assert [total.epsilon for total in model.report_.ledger.totals if total.protects == "labels"] == [0.0]
    assert model.score(X, labels) > (0.8 if is_classifier else 0.3)
    assert model.predict(X).shape == y.shape


def test_steps_are_refused_protections_of_gradients_by_default() -> None:
    """A protection that could not act is named, not ignored."""
    from cutlayer import MaxNormConfig

    X, y = tables()
    with pytest.raises(CutlayerError, match="max_norm: nothing to protect, parties that release once get no gradient"):
        VerticalClassifier("bank", protections=[MaxNormConfig()]).fit(X, y)
    assert classifier().release == "every_step"
