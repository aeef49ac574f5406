"""Build the demo's table from the files of the UCI Adult data set.

    python tools/make_adult.py FOLDER

FOLDER holds `adult.data` and `adult.test`, gzipped or not, as the UCI repository gives them. The table goes to
`src/cutlayer/demo/adult.parquet`; `ATTRIBUTION.md` beside it says what is changed.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

NUMBERS = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")
COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
)
ROWS = 48_842


def rows_of(folder: Path, name: str) -> list[list[str]]:
    """Stripped values of one file, without blank lines and without the comment that opens the test file."""
    plain, zipped = folder / name, folder / f"{name}.gz"
    text = plain.read_text() if plain.exists() else gzip.decompress(zipped.read_bytes()).decode()
    lines = (line.split(",") for line in text.splitlines() if line.strip() and not line.startswith("|"))
    return [[value.strip() for value in line] for line in lines]


def adult(folder: Path) -> pa.Table:
    """Both files as one table, training rows first, with a row number as id."""
    rows = rows_of(folder, "adult.data") + rows_of(folder, "adult.test")
    if len(rows) != ROWS or any(len(row) != len(COLUMNS) for row in rows):
        raise SystemExit(f"expected {ROWS} rows of {len(COLUMNS)} values in {folder}, got {len(rows)} rows")
    columns: dict[str, pa.Array] = {"person": pa.array(range(len(rows)), pa.int32())}
    for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True):
        text = pa.array([None if value == "?" else value for value in values], pa.string())
        columns[name] = text.cast(pa.int32()) if name in NUMBERS else text
    columns["income"] = pc.utf8_rtrim(columns["income"], ".")
    return pa.table(columns)


def main() -> None:
    """Write the table."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    target = Path(__file__).resolve().parents[1] / "src" / "cutlayer" / "demo" / "adult.parquet"
    target.parent.mkdir(exist_ok=True)
    parquet.write_table(adult(Path(sys.argv[1])), target, compression="zstd", compression_level=19)


if __name__ == "__main__":
    main()
