"""A party's rows: sources, ids, alignment, encoding, the memory-mapped store, batches and labels."""

from cutlayer.data.align import check_id_kinds, intersect, order_digest
from cutlayer.data.batches import Schedule, evaluation_batches
from cutlayer.data.encoding import ColumnSpec, Encoded, Encoder
from cutlayer.data.ids import id_kind, row_digests
from cutlayer.data.labels import Labels, encode_labels
from cutlayer.data.party_data import PartyTable
from cutlayer.data.prepared import Prepared
from cutlayer.data.sources import as_table
from cutlayer.data.split import Split, split_rows
from cutlayer.data.store import Store, write_store

__all__ = [
    "ColumnSpec",
    "Encoded",
    "Encoder",
    "Labels",
    "PartyTable",
    "Prepared",
    "Schedule",
    "Split",
    "Store",
    "as_table",
    "check_id_kinds",
    "encode_labels",
    "evaluation_batches",
    "id_kind",
    "intersect",
    "order_digest",
    "row_digests",
    "split_rows",
    "write_store",
]
