"""A party's rows: sources, ids, alignment, encoding, the memory-mapped store, batches and labels."""

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.data.align import intersect
    from cutlayer.data.batches import Schedule, evaluation_batches
    from cutlayer.data.ids import row_digests
    from cutlayer.data.party_data import PartyTable
    from cutlayer.data.split import split_rows
    from cutlayer.data.store import Store
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "PartyTable": ".party_data",
            "Schedule": ".batches",
            "Store": ".store",
            "evaluation_batches": ".batches",
            "intersect": ".align",
            "row_digests": ".ids",
            "split_rows": ".split",
        },
    )

__all__ = ["PartyTable", "Schedule", "Store", "evaluation_batches", "intersect", "row_digests", "split_rows"]
