"""Synthetic tables like Criteo's: 13 numbers at one party, 26 categories at another, ids that partly overlap.

A row is a function of its id, so that tables of any size are written in pieces.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from cutlayer.config import Job, validated

NUMBERS, CATEGORIES, CODES = 13, 26, 10_000
PIECE = 1 << 18
STRIDE = 7_919_001_661
"""A prime: numbers times this, modulo the number of rows, are every row once, in another order."""
OVERLAP = 0.8
"""Share of the rows of each table that both have."""
BATCH = 8192
Words = npt.NDArray[np.uint64]


def make_tables(folder: Path, rows: int, overlap: float = OVERLAP) -> None:
    """Write `publisher.parquet`, with the label and numbers, and `network.parquet`, with categories.

    Args:
        folder: Existing folder.
        rows: Number of rows of each table.
        overlap: Share of the rows of each table that both have.
    """
    values = [_texts(column) for column in range(CATEGORIES)]
    files = {name: folder / f"{name}.parquet" for name in ("publisher", "network")}
    for name, first in (("publisher", 0), ("network", rows - round(rows * overlap))):
        writer: Any = None
        for start in range(0, rows, PIECE):
            numbers = np.arange(start, min(start + PIECE, rows), dtype=np.uint64)
            ids = numbers * np.uint64(STRIDE) % np.uint64(rows) + np.uint64(first)
            piece = _publisher(ids) if name == "publisher" else _network(ids, values)
            writer = writer or parquet.ParquetWriter(files[name], piece.schema, store_schema=False)
            writer.write_table(piece)
        writer.close()


def scale_job(folder: Path, memory: str, audit: str = "epoch") -> Job:
    """One epoch over these tables; the first party holds the label."""
    common = {"id": "id", "memory": memory}
    publisher = {"role": "active", "table": str(folder / "publisher.parquet"), "label": "label", **common}
    network = {"role": "passive", "table": str(folder / "network.parquet"), **common}
    raw = {
        "parties": {
            "publisher": {**publisher, "features": {"numbers": {"transform": "log1p"}}, "audit": {"every": audit}},
            "network": {**network, "audit": {"every": audit}},
        },
        "model": {
            "bottom": {"kind": "mlp", "hidden": [64, 32], "embedding": 4},
            "top": {"kind": "mlp", "hidden": [32]},
        },
        "train": {"epochs": 1, "batch_size": BATCH, "threads": 1, "shuffle": "blocks"},
    }
    return validated(Job, raw, "scale")


def hashed(ids: Words, column: int) -> Words:
    """Random words, a function of id and column (SplitMix64)."""
    offset = np.uint64(column * 0xD1B54A32D192ED03 % 2**64)
    x = (ids + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + offset
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _uniform(ids: Words, column: int) -> npt.NDArray[np.float64]:
    return (hashed(ids, column) >> np.uint64(11)).astype(np.float64) / 2.0**53


def _texts(column: int) -> pa.Array:
    words = hashed(np.arange(CODES, dtype=np.uint64), 1000 + column) >> np.uint64(32)
    return pa.array([f"{word:08x}" for word in words.tolist()])


def _codes(ids: Words, column: int) -> npt.NDArray[np.int32]:
    return (CODES * _uniform(ids, NUMBERS + column) ** 3).astype(np.int32)


def _publisher(ids: Words) -> pa.Table:
    columns: dict[str, Any] = {"id": ids.astype(np.int64)}
    score = np.zeros(len(ids))
    for index in range(NUMBERS):
        uniform = _uniform(ids, index)
        columns[f"I{index + 1}"] = pa.array((np.exp(8 * uniform) - 1).astype(np.int64), mask=uniform < 0.05)
        score += (uniform - 0.5) * (index < 4)
    score += sum((_codes(ids, column) % 7 < 2) - 2 / 7 for column in range(4))
    columns["label"] = (score + 2 * _uniform(ids, 100) > 1.8).astype(np.int64)
    return pa.table(columns)


def _network(ids: Words, values: list[pa.Array]) -> pa.Table:
    columns: dict[str, Any] = {"id": ids.astype(np.int64)}
    for column, texts in enumerate(values):
        columns[f"C{column + 1}"] = texts.take(pa.array(_codes(ids, column)))
    return pa.table(columns)
