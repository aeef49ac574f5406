"""Data sets and settings of the feature-privacy study: two passive parties with all features, and the label owner."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.io import loadmat

from cutlayer.config import Job, TableConfig, validated
from cutlayer.data.sources import open_source
from cutlayer.kernels.noise import gaussian_mechanism as gaussian
from studies.datasets import ADULT_TABLE, existing, handwritten
from studies.embedding_noise import privacy_of
from studies.image_halves import IMAGE, LABEL, read_images

EPOCHS, DELTA = 20, 1e-2
"""Epochs of training, and delta of each budget, as in the paper."""
CLIP, WIDTH, WARM_UP = 1.0, 16, 4
LARGE_CLIP = 10.0
"""So large that the norm of an embedding starts far below it."""
OWNER = "owner"
UNPROTECTED, VANILLA, RESCALE, ADJUST, FULL = "unprotected", "vanilla", "+rescale", "+adjust", "full"
PER_RUN, ONCE = "ours, per run", "ours, once"
PUBLISHED = (VANILLA, RESCALE, ADJUST, FULL)
SETTINGS = (UNPROTECTED, *PUBLISHED, PER_RUN, ONCE)
LARGE_VANILLA, LARGE_RESCALE = LARGE = tuple(f"{name}, C {LARGE_CLIP:g}" for name in (VANILLA, RESCALE))
"""Further settings, where the network is small."""
MEMBERS, STOPPED = f"{VANILLA}, membership", f"{ADJUST}, stop"
"""`VANILLA` attacked by membership inference, and `ADJUST` whose term ends where clusters are no better than shuffled
ones."""
STOP = 0.05
INVERTED = (UNPROTECTED, VANILLA, FULL, PER_RUN, ONCE)
"""Settings that are attacked by inversion."""
SHADOWED = (UNPROTECTED, MEMBERS, FULL)
"""Settings that are attacked by membership inference, as in the paper's table 1."""
_RECORDED = 2**17
Tables = dict[str, pa.Table]


@dataclass(frozen=True)
class DataSet:
    """One data set, its two parts, and its network.

    Attributes:
        group: Group of the study's trials.
        parties: Names of the two passive parties.
        read: Reads the parties' tables from the folder of data sets.
        classes: Number of classes.
        epsilon: Epsilon of one release, by the paper's formula.
        batch: Rows of a batch.
        bottom: Bottom model of each passive party.
        numbers: Encoding of the parties' numbers; the default if `None`.
    """

    group: str
    parties: tuple[str, str]
    read: Callable[[Path], Tables]
    classes: int
    epsilon: float
    batch: int
    bottom: Mapping[str, Any]
    numbers: Mapping[str, Any] | None = None

    @property
    def settings(self) -> tuple[str, ...]:
        """All settings that are trained."""
        large = LARGE if self.bottom["kind"] == "mlp" else ()
        return (*SETTINGS, *large, MEMBERS, STOPPED)

    @property
    def total(self) -> float:
        """Epsilon at `DELTA` of all `EPOCHS` releases of a row together, by the exact account."""
        return gaussian.epsilon(math.sqrt(EPOCHS) / self.multiplier, DELTA)

    @property
    def multiplier(self) -> float:
        """Noise multiplier of each release, by the paper's formula."""
        return gaussian.classical_noise_multiplier(self.epsilon, DELTA)

    @property
    def single(self) -> float:
        """Epsilon at `DELTA` of one release, by the exact account."""
        return gaussian.epsilon(1 / self.multiplier, DELTA)

    def job(self, setting: str, seed: int) -> Job:
        """The job of one setting over `read`'s tables."""
        once = setting == ONCE
        attacks = ["inversion"] * (setting in INVERTED) + ["membership"] * (setting in SHADOWED)
        audit = {"attacks": attacks, "every": "end", "rows": _RECORDED, "max_megabytes": 2048}
        passive = {
            "role": "passive",
            "privacy": privacy_of(self.protection(setting)),
            "audit": audit,
            **({"features": {"numbers": self.numbers}} if self.numbers else {}),
            **({"fit": {"kind": "gradients"}} if once else {}),
        }
        owner = {"role": "active", "label": LABEL, "features": {"include": "none"}, "audit": {"every": "never"}}
        raw = {
            "task": "binary" if self.classes == 2 else "multiclass",
            "parties": {OWNER: owner, **dict.fromkeys(self.parties, passive)},
            "model": {"bottom": self.bottom, "top": {"kind": "mlp", "hidden": [64]}},
            "train": {
                "epochs": EPOCHS,
                "batch_size": self.batch,
                "split": {"test": 0.2, "validation": 0.1},
                "seed": seed,
                "threads": 1,
                **({"release": "once", "warmup_epochs": WARM_UP} if once else {}),
            },
            "compare": ["centralised"] if setting == UNPROTECTED else [],
        }
        return validated(Job, raw, "study")

    def protection(self, setting: str) -> dict[str, Any] | None:
        """Settings of the noise of both passive parties; `None` without protection."""
        if setting == UNPROTECTED:
            return None
        if setting in LARGE:
            same = self.protection(setting.partition(",")[0])
            return {**(same or {}), "clip": LARGE_CLIP}
        if setting == MEMBERS:
            return self.protection(VANILLA)
        if setting in (PER_RUN, ONCE):
            return {"clip": CLIP, "epsilon": self.total, "delta": DELTA, "rescale": "sphere"}
        rescale: dict[str, Any] = {"estimate": {}} if setting in (RESCALE, FULL) else {}
        stop = {"stop": STOP} if setting == STOPPED else {}
        adjust = {"adjust": {"classes": self.classes, **stop}} if setting in (ADJUST, FULL, STOPPED) else {}
        papers = {"epsilon": self.epsilon, "delta": DELTA, "per": "release", "calibration": "classical"}
        return {"clip": CLIP, **papers, **rescale, **adjust}


def read_adult(parties: tuple[str, str], _data: Path) -> Tables:
    """Adult, as it ships with the package: columns about the person, and about work and capital."""
    whole = open_source(TableConfig(path=ADULT_TABLE), OWNER).read([*_PERSON, *_WORK, "income"], [])
    first, second = parties
    owner = whole.select(["income"]).rename_columns([LABEL])
    return {OWNER: owner, first: whole.select(_PERSON), second: whole.select(_WORK)}


def read_halves(path: str, rows: int | None, parties: tuple[str, str], data: Path) -> Tables:
    """Halves of images by the parties' names: `left` and `right`, or `top` and `bottom`.

    Args:
        path: Path of the file in the folder of data sets.
        rows: Number of rows, from the first on; all if `None`.
        parties: Names of the two passive parties.
        data: Folder of data sets.

    Raises:
        DataError: the file is not in the folder of data sets.
    """
    tables = {OWNER: read_images(data / path, [LABEL], "all", rows)}
    return {**tables, **{party: read_images(data / path, [IMAGE], party, rows) for party in parties}}


def read_digits(parties: tuple[str, str], data: Path) -> Tables:
    """The first two of the six views of handwritten digits: 240 averages of pixels, and 76 Fourier coefficients."""
    _, views = handwritten(data)
    first, second = parties
    whole = views["view0"]
    tables = {first: whole.drop_columns(["digit"]), second: views["view1"]}
    return {OWNER: whole.select(["digit"]).rename_columns([LABEL]), **tables}


def read_texts(parties: tuple[str, str], data: Path) -> Tables:
    """Two views of sports articles: counts of words in either half of the text."""
    content = loadmat(existing(data / "multiview" / "BBCSport.mat"))
    codes = pa.array(np.asarray(content["Y"]).ravel().astype(np.int64))
    tables = {OWNER: pa.table({LABEL: codes})}
    for party, view in zip(parties, content["X"].ravel(), strict=True):
        dense = np.asarray(view.todense() if hasattr(view, "todense") else view, dtype=np.float64)
        tables[party] = pa.table({f"word{column}": dense[:, column] for column in range(dense.shape[1])})
    return tables


_PERSON = ["age", "education", "education_num", "marital_status", "relationship", "race", "sex", "native_country"]
_WORK = ["workclass", "occupation", "hours_per_week", "capital_gain", "capital_loss"]
_OFFICES, _VIEWS, _TEXTS, _HALVES = (
    ("census_office", "employer"),
    ("pix", "fou"),
    ("first", "second"),
    ("left", "right"),
)
_MLP: Mapping[str, Any] = {"kind": "mlp", "hidden": [64, WIDTH], "cut": "linear"}
_CNN: Mapping[str, Any] = {"kind": "cnn", "width": WIDTH, "cut": "linear"}
_LOG: Mapping[str, Any] = {"transform": "log1p"}


def _halves(group: str, path: str, rows: int) -> DataSet:
    return DataSet(group, _HALVES, partial(read_halves, path, rows, _HALVES), 10, 16.0, 64, _CNN)


DATA_SETS = (
    DataSet("handwritten", _VIEWS, partial(read_digits, _VIEWS), 10, 16.0, 64, _MLP),
    DataSet("BBCSport", _TEXTS, partial(read_texts, _TEXTS), 5, 16.0, 32, _MLP, _LOG),
    DataSet("Adult", _OFFICES, partial(read_adult, _OFFICES), 2, 8.0, 256, _MLP, _LOG),
    _halves("MNIST halves", "mnist/mnist.npz", 10_000),
    _halves("CIFAR-10 halves", "cifar10/cifar10_subset.npz", 8_000),
)
