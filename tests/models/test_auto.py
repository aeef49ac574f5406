"""The `auto` kind: `tabular` for columns of rare categories, `mlp` for others, and the same wherever it is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.config import FeaturesConfig, Job, validated
from cutlayer.data.encoding import Encoder
from cutlayer.data.packed import packed
from cutlayer.data.store import Store, write_store
from cutlayer.models import build_bottom, resolved_section, stated_width
from cutlayer.models.mlp import MlpBottom
from cutlayer.models.tabular import TabularBottom
from tests.data.fitted import fitted
from tests.parties.runs import ACTIVE, PASSIVES, raw_job

AUTO = {"kind": "auto", "hidden": [8, 4]}
PASSIVE = PASSIVES[0]


def encoder_of(categories: int, rows: int) -> Encoder:
    table = pa.table({"shop": [f"s{row % categories}" for row in range(rows)], "amount": np.arange(float(rows))})
    return fitted(table, FeaturesConfig(), "shops")


@pytest.mark.parametrize(
    ("categories", "rows", "kind"),
    [(100, 200, MlpBottom), (101, 1009, TabularBottom), (101, 1010, MlpBottom), (300, 1000, TabularBottom)],
)
def test_the_kind_follows_from_rows_per_category(categories: int, rows: int, kind: type) -> None:
    encoder = encoder_of(categories, rows)
    model = build_bottom(AUTO, encoder.columns.inputs)
    assert isinstance(model, kind)
    assert model.width == stated_width(AUTO) == 4
    section = resolved_section(AUTO, encoder.columns.inputs)
    assert section["kind"] == {MlpBottom: "mlp", TabularBottom: "tabular"}[kind]


def test_the_same_kind_is_built_from_what_is_stored(tmp_path: Path) -> None:
    encoder = encoder_of(300, 1000)
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    table = pa.table({"shop": ["s1", "s2"], "amount": [1.0, 2.0]})
    write_store(tmp_path / "store", [again.transform(table, "shops")], again.columns, 2)
    assert isinstance(build_bottom(AUTO, Store.open(tmp_path / "store").columns.inputs), TabularBottom)


def test_a_table_in_batches_decides_as_one_at_once() -> None:
    table, kinds = pa.table({"shop": [f"s{row % 300}" for row in range(1000)]}), {"shop": "category"}
    pieces = [pa.Table.from_batches([piece]) for piece in table.to_batches(max_chunksize=128)]
    columns = packed(lambda _names, _coded: iter(pieces), kinds, "shops", 1000, 100_000)
    encoder = Encoder.fit(columns, kinds, FeaturesConfig(), "shops", np.arange(1000))
    assert encoder == fitted(table, FeaturesConfig(), "shops")
    assert encoder.has_rare_categories


@pytest.mark.parametrize(
    ("party", "train", "kind"),
    [
        ({}, {}, "auto"),
        ({}, {"release": {PASSIVE: "once"}}, "mlp"),
        ({"fit": {"kind": "none"}}, {"release": "once"}, "mlp"),
        ({"privacy": {"dp_bottom": {"clip": 1.0, "noise_multiplier": 1.0}}}, {}, "mlp"),
        ({"privacy": {"dp_embedding": {"clip": 1.0, "noise_multiplier": 1.0}}}, {}, "auto"),
    ],
)
def test_a_model_that_gradients_do_not_train_is_an_mlp(party: dict[str, Any], train: dict[str, Any], kind: str) -> None:
    raw = raw_job(bottom=AUTO, **train)
    raw["parties"][PASSIVE] |= party
    job = validated(Job, raw, "")
    assert job.bottom_of(PASSIVE) == AUTO | {"kind": kind}
    assert job.bottom_of(ACTIVE) == AUTO


def test_it_is_the_default() -> None:
    raw = raw_job()
    del raw["model"]["bottom"]
    assert validated(Job, raw, "").bottom_of(PASSIVE) == {"kind": "auto", "hidden": [64, 32]}
