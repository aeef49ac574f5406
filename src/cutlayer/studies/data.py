"""The jobs that studies start from, by data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.io import loadmat

from cutlayer.config import Job, validated
from cutlayer.errors import DataError

NETWORK = {
    "bottom": {"kind": "mlp", "hidden": [128] * 5, "embedding": 4},
    "top": {"kind": "mlp", "hidden": [128, 128]},
}
"""The Criteo network of Sun et al. 2022: five ReLU layers of 128 below the cut, three layers above it."""

SMALL = {
    "epochs": 12,
    "batch_size": 8192,
    "optimizer": {"kind": "adam", "lr": 1e-3},
    "split": {"test": 0.1, "validation": 0.05},
    "threads": 1,
}
"""Preset `small`: log1p before min-max, batch 8192, Adam 1e-3; the best of 12 epochs on validation rows is kept."""


def criteo(data: Path, seed: int, privacy: Mapping[str, Any], attacks: Sequence[str]) -> Job:
    """Criteo, all features at the passive party, preset `small`."""
    columns = ["label", "I1..I13", "C1..C26"]
    path = _there(data / "criteo" / "criteo_train_137k.tsv.gz")
    table = {"path": str(path), "format": "csv", "delimiter": "\t", "columns": columns}
    features = {"include": columns[1:], "categorical": ["C1..C26"]}
    return _two_parties(table, "label", features, seed, privacy, attacks, SMALL)


def avazu(data: Path, seed: int, privacy: Mapping[str, Any], attacks: Sequence[str]) -> Job:
    """Avazu, all features at the passive party, every column a category; batch 4096, since it has 53,247 rows."""
    path = _there(data / "avazu" / "avazu_merged.csv.gz")
    everything = ["C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain"]
    everything += ["app_category", "device_id", "device_ip", "device_model", "device_type", "device_conn_type"]
    everything += ["C14..C21", "hour"]
    features = {"include": everything, "categorical": everything}
    train = {**SMALL, "batch_size": 4096}
    return _two_parties({"path": str(path)}, "click", features, seed, privacy, attacks, train)


def handwritten(data: Path) -> tuple[list[str], dict[str, pa.Table]]:
    """The six views of 2,000 digits: names of the parties, and a table each; the first holds the labels."""
    content = loadmat(_there(data / "multiview" / "handwritten.mat"))
    views = [np.asarray(view, dtype=np.float64) for view in content["X"].ravel()]
    views = [view if len(view) == 2000 else view.T for view in views]
    names = [f"view{place}" for place in range(len(views))]
    tables = {
        name: pa.table({f"x{column}": view[:, column] for column in range(view.shape[1])})
        for name, view in zip(names, views, strict=True)
    }
    labels = next(np.asarray(content[key]).ravel() for key in ("Y", "y", "gt", "truth") if key in content)
    tables[names[0]] = tables[names[0]].append_column("digit", pa.array(labels.astype(np.int64)))
    return names, tables


def _two_parties(
    table: Mapping[str, Any],
    label: str,
    features: Mapping[str, Any],
    seed: int,
    privacy: Mapping[str, Any],
    attacks: Sequence[str],
    train: Mapping[str, Any],
) -> Job:
    numbers = {"transform": "log1p", "scale": "minmax", "missing": "zero"}
    common = {"table": table, "id": "@row"}
    owner = {"role": "active", **common, "label": label, "features": {"include": "none"}, "privacy": privacy}
    raw = {
        "parties": {
            "advertiser": {**owner, "audit": {"attacks": list(attacks), "max_megabytes": 64}},
            "publisher": {"role": "passive", **common, "features": {**features, "numbers": numbers}},
        },
        "model": NETWORK,
        "train": {**train, "seed": seed},
    }
    return validated(Job, raw, "study")


def _there(path: Path) -> Path:
    if not path.exists():
        raise DataError.expected(f"the data set {path}", "no such file", "name the folder of data sets with --data")
    return path
