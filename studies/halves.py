"""Images cut in two: the active party has the left half of each and the label, the other party the right half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cutlayer.config import Job, TableConfig, validated
from cutlayer.data.npz_source import read_npz
from studies.data import present

ACTIVE, PASSIVE = "left", "right"
LABEL = "class"
ADAM: Mapping[str, Any] = {"kind": "adam", "lr": 1e-3}
SGD: Mapping[str, Any] = {"kind": "sgd", "lr": 0.01, "momentum": 0.9}
TOP: Mapping[str, Any] = {"kind": "mlp", "hidden": [64]}
LENET: Mapping[str, Any] = {"kind": "lenet5"}
RESNET: Mapping[str, Any] = {"kind": "resnet18"}


@dataclass(frozen=True)
class Images:
    """One data set, the network over its halves, and a schedule.

    Attributes:
        group: of the study's cells. path: in the folder of data sets.
        rows: how many of the file's rows are taken, from the first on; all if `None`.
        test: share of the rows that is held out for testing.
        threads: of the tensor library.
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
        path = present(data / self.path)
        arrays = {"image": ("x_train", "x_test"), LABEL: ("y_train", "y_test")}
        sides = {ACTIVE: ("image", LABEL), PASSIVE: ("image",)}
        whole = {
            side: read_npz(TableConfig(path=path, arrays=arrays, part=side), names, f"{self.group}, {side}")
            for side, names in sides.items()
        }
        return {side: table.slice(0, self.rows).combine_chunks() for side, table in whole.items()}

    def job(
        self,
        seed: int,
        privacy: Mapping[str, Any],
        *,
        top: Mapping[str, Any] = TOP,
        compare: Sequence[str] = (),
        keep: str = "best",
    ) -> Job:
        """The job over `tables`; nothing is recorded of it.

        Args:
            keep: `best` of the epochs by 5 % of the rows, or `last`, with no rows set aside to choose by.
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
