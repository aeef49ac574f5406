"""A party's data in the common order, and the encoded store that a later start may use again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cutlayer.config.job import TaskKind
from cutlayer.data.align import Positions, order_digest
from cutlayer.data.encoded import ColumnSpec
from cutlayer.data.encoding import Encoder
from cutlayer.data.ids import Digests
from cutlayer.data.labels import Labels, Pieces, check_training_labels, encode_label_pieces
from cutlayer.data.store import Store
from cutlayer.data.typed_table import SHARE
from cutlayer.errors import DataError
from cutlayer.kernels.patterns import begins_run
from cutlayer.lazy import torch

ENCODER = "encoder.json"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A party's data in the common order, ready for training.

    Attributes:
        store: Its encoded features, (m, columns); None if it has none.
        encoder: Encoder of its features; None without features. It holds training values, so it stays with its party.
        labels: Labels of all m rows, training, validation and test; None at a passive party.
        digests: uint8 (m, 16), ids of the common rows in their order.
        weights: Weights of all m rows in the loss, float32 (m,), of mean 1 over the training rows; None without any.
    """

    store: Store | None
    encoder: Encoder | None
    labels: Labels | None
    digests: Digests
    weights: torch.Tensor | None = None

    @property
    def columns(self) -> ColumnSpec | None:
        """The shape of the features; None if there are none."""
        return self.store.columns if self.store else None

    @property
    def groups(self) -> torch.Tensor:
        """Number of each row's id, int64 (m,): rows of one id follow each other."""
        return torch.from_numpy(begins_run(self.digests).cumsum() - 1)

    @property
    def order_digest(self) -> bytes:
        """Digest of the ordered ids, 16 bytes, to compare with other parties."""
        return order_digest(self.digests)


def checked_labels(
    pieces: Pieces,
    task: TaskKind,
    where: str,
    training: npt.NDArray[np.int64],
    rows: Positions | None = None,
) -> Labels:
    """Labels of the common rows, of which those of the training rows differ.

    Args:
        pieces: Returns the labels in the common order, in pieces.
        task: Kind of the labels.
        where: Name of the data, for error messages.
        training: Training rows, as positions in the common order, int64 (t,).
        rows: Numbers of the rows in the table, for error messages.

    Raises:
        DataError: An error of `encode_label_pieces`, or all training rows have one label.
    """
    labels = encode_label_pieces(pieces, task, where, rows)
    check_training_labels(labels, torch.from_numpy(training), where)
    return labels


def reusable_store(folder: Path, fingerprint: str, memory: int) -> tuple[Store, Encoder] | None:
    """The store and encoder in the folder, if they are complete and of this fingerprint."""
    try:
        store = Store.open(folder, memory // SHARE)
        encoder = Encoder.from_json((folder / ENCODER).read_bytes())
    except (DataError, OSError):
        return None
    return (store, encoder) if store.fingerprint == fingerprint and encoder.columns == store.columns else None
