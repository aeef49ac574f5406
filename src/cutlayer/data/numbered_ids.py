"""What stands for the ids of rows that have none, where grades are drawn: their numbers in a table of these columns."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pyarrow as pa
import torch

from cutlayer.accounting.row_draws import MAX_ROW_VALUES
from cutlayer.data.align import Positions
from cutlayer.data.ids import Digests, row_digests
from cutlayer.data.store import Store
from cutlayer.storage.row_arrays import chunks_of


def numbered_ids(store: Store, numbers: Positions | None = None) -> Digests:
    """Digests of row numbers and of the columns of all rows, uint8 (n, 16).

    The same table has the same ones again, in a training and in a prediction. Row numbers alone would name other rows
    in another table, whose draws would be those of the first. The last half is of the number alone, by which the rows
    of several jobs are joined.

    Args:
        store: Encoded rows, all those of the table.
        numbers: Number of each in the table, int64 (n,); those of the store by default.
    """
    numbers = np.arange(store.rows) if numbers is None else numbers
    content, order = blake2b(digest_size=8), torch.from_numpy(np.argsort(numbers))
    for start, end in chunks_of(store.rows):
        for part in store.gather(order[start:end]):
            content.update(part.numpy().tobytes())
    digests = row_digests(pa.array(numbers))
    # In steps of the number of values, which stand in the place of the last digits where draws are counted.
    first = (MAX_ROW_VALUES * numbers).astype("<i8") ^ np.frombuffer(content.digest(), "<i8")
    digests[:, :8] = first[:, None].view(np.uint8)
    return digests
