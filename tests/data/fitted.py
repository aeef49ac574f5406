"""An encoder that was fitted to a table in memory, without a party."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cutlayer.config import FeaturesConfig
from cutlayer.data.encoding import Encoder, chosen_kind
from cutlayer.data.feature_columns import feature_names
from cutlayer.data.packed import packed


def fitted(table: pa.Table, features: FeaturesConfig, where: str, rows: np.ndarray | None = None) -> Encoder:
    """Fit to rows of a table, int64 (n,); to all if None."""
    names = feature_names(table.column_names, features, where)
    kinds = {name: chosen_kind(name, table.schema.field(name).type, features, where) for name in names}
    columns = packed(lambda names, _: iter([table.select(names)]), kinds, where, table.num_rows, 1 << 62)
    return Encoder.fit(columns, kinds, features, where, np.arange(table.num_rows) if rows is None else rows)
