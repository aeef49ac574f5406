"""Images cut in two: the active party has the left half of each and the label, the passive party the right half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cutlayer.config import Job, TableConfig, validated
from cutlayer.data.sources.npz import NpzSource
from studies.datasets import existing

ACTIVE, PASSIVE = "left", "right"
IMAGE, LABEL = "image", "class"
ADAM: Mapping[str, Any] = {"kind": "adam", "lr": 1e-3}
SGD: Mapping[str, Any] = {"kind": "sgd", "lr": 0.01, "momentum": 0.9}
TOP: Mapping[str, Any] = {"kind": "mlp", "hidden": [64]}
LENET: Mapping[str, Any] = {"kind": "lenet5"}
RESNET: Mapping[str, Any] = {"kind": "resnet18"}


def read_images(path: Path, columns: Sequence[str], part: str, rows: int | None) -> pa.Table:
    """Images, labels or both of a file of arrays `x_train`, `y_train`, `x_test` and `y_test`.

    Args:
        path: Path of the npz file.
        columns: `IMAGE`, `LABEL` or both.
        part: Half of each image, `left` or `right`; `all` for whole images.
        rows: Number of rows, from the first on; all if `None`.

    Raises:
        DataError: there is no such file.
    """
    arrays = {IMAGE: ("x_train", "x_test"), LABEL: ("y_train", "y_test")}
    table = NpzSource(path.name, TableConfig(path=existing(path), arrays=arrays, part=part)).read(columns)
    return table.slice(0, rows).combine_chunks()


@dataclass(frozen=True)
class ImageHalves:
    """One data set, the network over its halves, and a schedule.

    Attributes:
        group: Group of the study's trials.
        path: Path in the folder of data sets.
        bottom: Bottom model of both parties.
        epochs: Number of epochs.
        batch: Rows of a batch.
        rows: Number of the file's rows that are used, from the first on; all if `None`.
        test: Share of the rows that is held out for testing, 0 to 1.
        optimizer: Optimizer of all models.
        threads: Threads of the tensor library.
    """

    group: str
    path: str
    bottom: Mapping[str, Any]
    epochs: int
    batch: int
    rows: int | None = None
    test: float = 0.15
    optimizer: Mapping[str, Any] = field(default_factory=lambda: ADAM)
    threads: int = 1

    def tables(self, data: Path) -> dict[str, pa.Table]:
        """Each party's half.

        Raises:
            DataError: the file is not in the folder of data sets.
        """
        columns = {ACTIVE: (IMAGE, LABEL), PASSIVE: (IMAGE,)}
        return {side: read_images(data / self.path, names, side, self.rows) for side, names in columns.items()}

    def job(
        self,
        seed: int,
        privacy: Mapping[str, Any],
        *,
        top: Mapping[str, Any] = TOP,
        compare: Sequence[str] = (),
        keep: str = "best",
    ) -> Job:
        """The job over `tables`, without any record for the audit.

        Args:
            seed: Seed of the job.
            privacy: Protections of the active party.
            top: Top model.
            compare: References to train as well.
            keep: `best` epoch on 5 % of the rows, or `last` epoch, with no rows set aside to choose by.
        """
        silent = {"every": "never"}
        raw = {
            "task": "multiclass",
            "parties": {
                ACTIVE: {"role": "active", "label": LABEL, "privacy": privacy, "audit": silent},
                PASSIVE: {"role": "passive", "audit": silent},
            },
            "model": {"bottom": self.bottom, "top": top},
            "train": {
                "epochs": self.epochs,
                "batch_size": self.batch,
                "optimizer": self.optimizer,
                "split": {"test": self.test, "validation": 0.05 if keep == "best" else 0.0},
                "seed": seed,
                "threads": self.threads,
                "keep": keep,
            },
            "compare": list(compare),
        }
        return validated(Job, raw, "study")
