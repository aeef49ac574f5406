"""A party's data in the common order, and the encoded store that a later start may use again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cutlayer.data.align import order_digest
from cutlayer.data.encoded import ColumnSpec
from cutlayer.data.encoding import Encoder
from cutlayer.data.ids import Digests
from cutlayer.data.labels import Labels
from cutlayer.data.row_values import ValueWords
from cutlayer.data.store import Store
from cutlayer.data.typed_table import MEMORY_FACTOR
from cutlayer.errors import DataError
from cutlayer.kernels.rows.patterns import begins_run
from cutlayer.lazy import torch

ENCODER_FILE = "encoder.json"
EncodedColumns = tuple[Store, Encoder]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A party's data in the common order, ready for training.

    Attributes:
        store: Its encoded features, (m, columns); None if it has none.
        encoder: Encoder of its features; None without features. It holds training values, so it stays with its party.
        labels: Labels of all m rows, training, validation and test; None at a passive party.
        digests: uint8 (m, 16), ids of the common rows in their order.
        weights: Weights of all m rows in the loss, float32 (m,), of mean 1 over the training rows; None without any.
        words: Words of the values of all m rows, from `value_words`; None where they were not asked for.
        limited: Its columns with a limit, as `PartyTable.limited_columns`, (m, columns); None where there are none.
    """

    store: Store | None
    encoder: Encoder | None
    labels: Labels | None
    digests: Digests
    weights: torch.Tensor | None = None
    words: ValueWords | None = None
    limited: EncodedColumns | None = None

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


def beside(store: Store, encoder: Encoder, limited: EncodedColumns | None) -> EncodedColumns:
    """Features, and columns with a limit beside them, for what grades carry of either."""
    if limited is None:
        return store, encoder
    other = limited[1]
    joined = {"encoders": (*encoder.encoders, *other.encoders), "types": {**encoder.types, **other.types}}
    return store.beside(limited[0]), encoder.model_copy(update=joined)


def reusable_store(folder: Path, fingerprint: str, memory: int) -> tuple[Store, Encoder] | None:
    """The store and encoder in the folder, if they are complete, with sums of columns, and of this fingerprint."""
    try:
        store = Store.open(folder, memory // MEMORY_FACTOR)
        encoder = Encoder.from_json((folder / ENCODER_FILE).read_bytes())
    except (DataError, OSError):
        return None
    same = store.fingerprint == fingerprint and encoder.columns == store.columns
    return (store, encoder) if same and store.column_sums else None
