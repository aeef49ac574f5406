"""ONE line for everything registered: what the suite cannot know from the class alone."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from cutlayer.attacks.label.base import Target
from cutlayer.testing import protection_checks as testing
from cutlayer.testing.attack_checks import AttackCase as AttackCase
from tests.workbooks import write_workbook

GRADIENT, EMBEDDING, PART, LABELS, LAYER = Target


@dataclass(frozen=True, eq=False)
class ProtectionCase(testing.ProtectionCase):
    """How to try a protection, and what a step of it may cost.

    Attributes:
        reads: numbers or messages of a step of two parties that are read from a GPU. Two are the digests by which the
            chain compares what it returned with what is sent; one more is the content that keys noise, and two what is
            read before a release is counted. `max_norm` and `marvell` read how many rows of a kind there are, `dcor`
            the labels, which it sorts by.
        copies: whether a step copies tensors to the GPU, which it has drawn or computed on the CPU.
        operations: of the same step, with PyTorch 2.13, at most. Each is a launch on a GPU, where it is not in a CUDA
            graph.
    """

    reads: int = 2
    copies: bool = False
    operations: float = math.inf


@dataclass(frozen=True)
class HistoryCase:
    """How well an attack on the whole run must do.

    Attributes:
        succeeds: the leak AUC that its strongest variant must exceed on the undefended world, by target.
        mapped: the same where messages are rotated and rescaled.
        values: what it must exceed in a regression, mapped or not, where that differs.
        labels_known: it knows labels of rows, which it must not score.
        kept: the share of the entries, the largest, that its messages keep: the defence that it is written against.
        crowded: that defence is noise as long as a batch's longest gradient, and the world has small batches.
    """

    succeeds: Mapping[Target, float] = field(default_factory=dict)
    mapped: float = 0.9
    values: Mapping[Target, float] = field(default_factory=dict)
    labels_known: bool = False
    kept: float = 1.0
    crowded: bool = False

    def limit(self, kind: str, target: Target, *, mapped: bool = False) -> float:
        """The leak to exceed in a task of a kind."""
        own = self.values.get(target) if kind == "regression" else None
        return own if own is not None else self.mapped if mapped else self.succeeds[target]


@dataclass(frozen=True)
class CompletionCase:
    """How well an attack on the model of a departed party must do on the undefended toy.

    Attributes:
        each: held-out accuracy that every variant must exceed.
        best: what the best one must exceed. margin: and by how much the best from scratch.
    """

    each: float = 0.55
    best: float = 0.95
    margin: float = 0.15


@dataclass(frozen=True)
class FeatureCase:
    """How well an attack on features must do on the undefended toy.

    Attributes:
        least: R2 or AUC that it must exceed. margin: by how much its whole interval must exceed the baseline.
        chance: how far above the baseline it may be where the embeddings are not informative.
    """

    least: float = 0.8
    margin: float = 0.3
    chance: float = 0.1


@dataclass(frozen=True)
class FitCase:
    """How to try a fit.

    Attributes:
        settings: its settings besides the kind.
        bottom: kind of a bottom model that it can be used with.
        looks: whether it looks at the rows.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    bottom: str = "linear"
    looks: bool = True


@dataclass(frozen=True)
class ModelCase:
    """How to try a bottom model.

    Attributes:
        settings: its settings besides the kind.
        reads: what it reads: `mixed` columns, `numbers` alone, or an `image`.
        learns: whether it has parameters.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    reads: Literal["mixed", "numbers", "image"] = "mixed"
    learns: bool = True


@dataclass(frozen=True)
class SourceCase:
    """How to try a source.

    Attributes:
        write: writes a table to a file, and returns the settings of `table` that it is read with, if any.
    """

    write: Callable[[pa.Table, Path], Mapping[str, Any] | None]


PROTECTIONS = {
    "dcor": ProtectionCase(
        {"alpha": 10.0},
        lowers=(("spectral", EMBEDDING, 0.8),),
        adaptive=(("directions", EMBEDDING, 0.87),),
        refused=({}, {"alpha": 0.0}, {"alpha": 0.01, "floor": -0.1}, {"alpha": 0.01, "estimate": "squared"}),
        reads=6,
        operations=591,
    ),
    "dimip": ProtectionCase(
        {"lam": 1.0, "predictor_steps": 20, "lr": 0.3},  # the toy has four steps: a predictor that learns in each
        lowers=(("probe", EMBEDDING, 0.75),),
        adaptive=(("directions", EMBEDDING, 0.8), ("few_labels", EMBEDDING, 0.75)),
        refused=({}, {"lam": 1.1}, {"lam": -0.1}, {"lam": 0.5, "single_pass": True, "predictor_steps": 2}),
        copies=True,
        operations=920,
    ),
    "dp_bottom": ProtectionCase(
        {"clip": 1.0, "noise_multiplier": 1e4},  # the toy's bottom model is good before it learns: noise must undo that
        lowers=(("spectral", EMBEDDING, 0.9),),
        adaptive=(("directions", EMBEDDING, 0.75),),
        refused=({}, {"clip": 0.0, "noise_multiplier": 1.0}, {"clip": 1.0, "delta": 1e-5}, {"clip": 1.0}),
        reads=4,
        copies=True,
        operations=290,
    ),
    "grade_dp": ProtectionCase(
        {"epsilon": 0.5},
        lowers=(("spectral", EMBEDDING, 0.7),),
        adaptive=(("directions", EMBEDDING, 0.7),),
        refused=({}, {"epsilon": 0.0}, {"eps": 1.0}),
        reads=4,
        copies=True,
        operations=400,
    ),
    "dp_embedding": ProtectionCase(
        {"clip": 1.0, "epsilon": 1.0, "delta": 1e-5},
        lowers=(("spectral", EMBEDDING, 0.6), ("probe", EMBEDDING, 0.6)),
        adaptive=(("directions", EMBEDDING, 0.57), ("few_labels", EMBEDDING, 0.57)),
        refused=({}, {"clip": 0.0, "noise_multiplier": 1.0}, {"clip": 1.0, "epsilon": 8.0}, {"clip": 1.0}),
        reads=7,
        copies=True,
        operations=246,
    ),
    "iso_noise": ProtectionCase(
        {"ratio": 5.0},
        lowers=(("norm", GRADIENT, 0.65), ("direction", GRADIENT, 0.65), ("spectral", GRADIENT, 0.8)),
        # Co-training reads the embedding too, which no noise on gradients covers.
        adaptive=(("joint_spectral", GRADIENT, 0.7), ("off_norm", GRADIENT, 0.58), ("co_training", GRADIENT, 0.85)),
        refused=({}, {"ratio": 0.0}),
        reads=3,
        copies=True,
        operations=244,
    ),
    "label_dp": ProtectionCase(
        {"eps": 0.5},
        lowers=(("norm", GRADIENT, 0.65), ("direction", GRADIENT, 0.65), ("spectral", GRADIENT, 0.65)),
        # The signs of other rows teach what the embedding says; the guarantee is about a row's own label.
        adaptive=(("joint_spectral", GRADIENT, 0.63), ("similarity", GRADIENT, 0.68), ("drawn_labels", GRADIENT, 0.94)),
        refused=({}, {"eps": -1.0}, {"eps": "1"}, {"eps": float("inf")}, {"eps": True}),
        reads=0,
        operations=167,
    ),
    "marvell": ProtectionCase(
        {"sum_kl": 0.16},
        lowers=(("norm", GRADIENT, 0.65), ("direction", GRADIENT, 0.65), ("spectral", GRADIENT, 0.65)),
        # Drawn labels are read with the embedding too, as by co-training above.
        adaptive=(("off_norm", GRADIENT, 0.57), ("joint_spectral", GRADIENT, 0.65), ("drawn_labels", GRADIENT, 0.87)),
        refused=({}, {"sum_kl": -0.16}, {"sum_kl": 0.16, "s": 8.0}),
        reads=4,
        copies=True,
        operations=267,
    ),
    "max_norm": ProtectionCase(
        {},
        lowers=(("norm", GRADIENT, 0.7), ("spectral", GRADIENT, 0.95)),
        adaptive=(
            ("co_training", GRADIENT, 0.995),
            ("mixture", GRADIENT, 0.93),
            ("bilinear", GRADIENT, 0.93),
            ("sign_changes", GRADIENT, 0.75),
        ),
        reads=3,
        copies=True,
        operations=212,
    ),
    "nopeek": ProtectionCase(
        {"alpha": 300.0},  # four steps are not many
        lowers=(("spectral", EMBEDDING, 0.75),),
        adaptive=(("directions", EMBEDDING, 0.77),),
        refused=({}, {"alpha": 0.0}, {"alpha": -1.0}),
        copies=True,
        operations=532,
    ),
    "party_dropout": ProtectionCase(
        {"rate": 0.5},
        loses=0.06,
        refused=({}, {"rate": 1.0}, {"rate": -0.1}, {"rate": {"telco": 1.0}}, {"rate": {"telco": "often"}}),
        reads=0,
        operations=150,
    ),
}

PROTECTIONS_OF_PLUGINS = {
    "discrete_sgd": ProtectionCase(
        {"levels": 1},
        lowers=(("norm", GRADIENT, 0.6),),
        adaptive=(("off_norm", GRADIENT, 1.01), ("joint_spectral", GRADIENT, 1.01)),  # three levels keep the direction
        refused=({}, {"levels": 0}, {"levels": 1.5}, {"levels": 2, "bound": 0.0}),
        operations=197,
    ),
    "gradient_compression": ProtectionCase(
        {"keep": 0.02},
        lowers=(("norm", GRADIENT, 0.75), ("direction", GRADIENT, 0.75), ("spectral", GRADIENT, 0.75)),
        refused=({}, {"keep": 90}, {"keep": -0.1}),
        reads=4,
        copies=True,
        operations=181,
    ),
    "noisy_gradient": ProtectionCase(
        {"scale": 0.001},
        lowers=(("norm", GRADIENT, 0.6), ("direction", GRADIENT, 0.6), ("spectral", GRADIENT, 0.6)),
        adaptive=(("joint_spectral", GRADIENT, 0.57), ("off_norm", GRADIENT, 0.57)),
        refused=({}, {"scale": 0.0}, {"scale": 0.001, "distribution": "uniform"}),
        reads=3,
        copies=True,
        operations=197,
    ),
    "ppdl": ProtectionCase(
        {"theta": 0.2},
        lowers=(("norm", GRADIENT, 0.6), ("direction", GRADIENT, 0.6), ("spectral", GRADIENT, 0.6)),
        adaptive=(("joint_spectral", GRADIENT, 0.57), ("off_norm", GRADIENT, 0.57)),
        refused=({}, {"theta": 1.5}, {"theta": 0.1, "epsilon": 0.0}, {"theta": 0.1, "gamma": -1.0}),
        reads=4,
        copies=True,
        operations=217,
    ),
}

ATTACKS = {
    "norm": AttackCase({GRADIENT: 0.95}),
    "direction": AttackCase({GRADIENT: 0.95}),
    "hint": AttackCase({GRADIENT: 0.95}),
    "spectral": AttackCase({GRADIENT: 0.95, EMBEDDING: 0.9, LAYER: 0.9}),
    "direct": AttackCase({GRADIENT: 0.99}, summed=True),
    "gradient_match": AttackCase({GRADIENT: 0.95}),
    "probe": AttackCase({EMBEDDING: 0.95, LAYER: 0.95}),
}

HISTORIES = {
    "directions": HistoryCase({EMBEDDING: 0.95}),
    "joint_spectral": HistoryCase({GRADIENT: 0.95}),
    # Two Gaussians of other spreads overlap in the tails of the wider one; lengths tell the classes apart only partly.
    "mixture": HistoryCase({GRADIENT: 0.7}, mapped=0.7),
    "off_norm": HistoryCase({GRADIENT: 0.7}, mapped=0.65),
    "mean_length": HistoryCase({GRADIENT: 0.9}, mapped=0.9, kept=0.02),
    "message_size": HistoryCase({GRADIENT: 0.95}, mapped=0.95, crowded=True),
    # Lengths and directions tell the classes apart only partly here; it is written against one length for all rows.
    "sign_changes": HistoryCase({GRADIENT: 0.7}, mapped=0.7),
    "bilinear": HistoryCase({GRADIENT: 0.95}),
    # Its dummy top model reads and writes along the same directions, which the maps of both messages pull apart.
    "aligned_match": HistoryCase({GRADIENT: 0.95}, mapped=0.75),
    "exploit": HistoryCase({GRADIENT: 0.95}),
    "feature_prior": HistoryCase({GRADIENT: 0.95}),
    # Two steps of learning on 1,200 rows; its columns alone tell the classes apart only partly.
    "co_training": HistoryCase({GRADIENT: 0.9}),
    "drawn_labels": HistoryCase({GRADIENT: 0.95}),
    # The embedding of the regression has all but the noise of its values: a concordance of 0.907 and no more.
    "few_labels": HistoryCase(
        {GRADIENT: 0.95, EMBEDDING: 0.95}, values={GRADIENT: 0.95, EMBEDDING: 0.85}, labels_known=True
    ),
    "mean_gradient": HistoryCase({GRADIENT: 0.95}, labels_known=True),
    # Of a value, gradients and columns together have what the embedding has, as above.
    "self_training": HistoryCase({GRADIENT: 0.95}, values={GRADIENT: 0.85}, labels_known=True),
    "regression_labels": HistoryCase({GRADIENT: 0.9}, mapped=0.85),
    "strong_probe": HistoryCase(
        {GRADIENT: 0.95, EMBEDDING: 0.95}, values={GRADIENT: 0.95, EMBEDDING: 0.83}, labels_known=True
    ),
    "similarity": HistoryCase({GRADIENT: 0.95, EMBEDDING: 0.95}, labels_known=True),
    # Three parts order the values of a regression by no more than thirds of them.
    "split_part": HistoryCase({PART: 0.95}, mapped=0.95, values={PART: 0.8}),
    "sent_labels": HistoryCase({LABELS: 0.9}, mapped=0.9, values={LABELS: 0.8}),
    "split_part_classes": HistoryCase({PART: 0.95}, mapped=0.95, labels_known=True),
}

COMPLETIONS = {
    "model_completion": CompletionCase(),
    "active_model_completion": CompletionCase(),
}

FEATURES = {
    "inversion": FeatureCase(least=0.8),
    "exact": FeatureCase(least=0.95),
    "membership": FeatureCase(least=0.85),
    "attribute": FeatureCase(least=0.95),
    "best_guess": FeatureCase(least=0.8),
    "lattice": FeatureCase(least=0.99),
    # The three numbers take more than two values, and no component is exact.
    "two_valued": FeatureCase(least=0.4, margin=0.15),
    "components": FeatureCase(least=0.1, margin=-0.3),
    "naming": FeatureCase(least=0.7),
}

FEATURES_OF_PLUGINS = {
    "sdar": FeatureCase(least=0.3, margin=0.3),
    "lira": FeatureCase(least=0.9),
}

FITS = {
    "none": FitCase(looks=False),
    "pca": FitCase(),
    "sketch": FitCase(),
    "gradients": FitCase({"epochs": 2}),
    "grade": FitCase({"candidates": ["linear"], "folds": 2, "least_z": 0}, bottom="grade"),
    "cells": FitCase(bottom="grade"),
}

MODELS = {
    "auto": ModelCase(),
    "mlp": ModelCase(),
    "wide_deep": ModelCase(),
    "linear": ModelCase(),
    "tabular": ModelCase({"dropout": 0}),
    "columns": ModelCase(learns=False),
    "grade": ModelCase(learns=False),
    "cnn": ModelCase(reads="image"),
    "lenet5": ModelCase(reads="image"),
    "resnet18": ModelCase({"channels": 4}, reads="image"),
    "python": ModelCase({"path": "tests.models.test_kinds:UserBottom"}),
}


def _write_arrays(table: pa.Table, path: Path) -> Mapping[str, Any]:
    np.savez(path, **{name: table[name].to_numpy() for name in table.column_names})
    return {"arrays": {name: name for name in table.column_names}}


def _write_query(table: pa.Table, path: Path) -> Mapping[str, Any]:
    database = path.with_suffix(".db")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(f"create table rows ({', '.join(table.column_names)})")
        connection.executemany("insert into rows values (?, ?)", zip(*table.to_pydict().values(), strict=True))
    path.write_text("select * from rows", encoding="utf-8")
    return {"url": f"sqlite:///{database}"}


def _write_sheet(table: pa.Table, path: Path) -> None:
    write_workbook(path, {"rows": [table.column_names, *zip(*table.to_pydict().values(), strict=True)]})


SOURCES = {
    "excel": SourceCase(_write_sheet),
    "csv": SourceCase(csv.write_csv),
    "parquet": SourceCase(parquet.write_table),
    "npz": SourceCase(_write_arrays),
    "sql": SourceCase(_write_query),
}
