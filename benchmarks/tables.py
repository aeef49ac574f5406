"""One table through three engines, this package, DuckDB and Polars: time and memory of each step, and CSV dialects.

Polars is no dependency of the package: `pip install polars` for this benchmark.

The steps are those of a party before training: read a table and digest or index its ids, profile the columns, find the
rows that a second table has too, split these, and write them encoded in an order of their ids. DuckDB and Polars may
spill to disk. Both join plain ids, since neither has BLAKE2b, which the digests of ids need: it would be computed
outside of them. Each measurement is in a process of its own.
"""

from __future__ import annotations

import importlib
import resource
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from benchmarks.scale import Meter, Stage, apart, counts_to
from benchmarks.scale_tables import OVERLAP, PIECE, STRIDE, hashed
from cutlayer.config import FeaturesConfig, SplitConfig, TableConfig
from cutlayer.data.align import intersect
from cutlayer.data.party_data import PartyTable
from cutlayer.data.sources import open_source
from cutlayer.data.split import split_rows
from cutlayer.training.process import keep_freed_memory

COLUMNS, CODES = 6, 10_000
"""Columns of numbers and as many of categories, and different values of a category."""
MEMORY = 500 << 20
"""Bytes that this package and DuckDB may take; Polars has no such setting."""
STEPS = ("read", "profile", "join", "split", "encode")
ENGINES = ("cutlayer", "duckdb", "polars")
KINDS = ("csv", "parquet")
_NUMBERS = [f"number{index}" for index in range(COLUMNS)]
_WORDS = [f"word{index}" for index in range(COLUMNS)]


@dataclass(frozen=True)
class EngineCost:
    """Cost of one table with one engine.

    Attributes:
        engine: `cutlayer`, `duckdb` or `polars`.
        version: Its version.
        kind: Format of the table, `csv` or `parquet`.
        rows: Number of rows of the table.
        common: Number of rows that were joined and encoded.
        steps: Processor time, wall time and peak of anonymous memory by step.
        resident_mb: Largest resident memory of the process (`ru_maxrss`), with the pages of mapped files.
    """

    engine: str
    version: str
    kind: str
    rows: int
    common: int
    steps: dict[str, Stage]
    resident_mb: float


@dataclass(frozen=True)
class Tables:
    """Costs at several numbers of rows, and what each engine makes of the dialects of CSV files.

    Attributes:
        costs: Costs of the engines that are installed.
        dialects: By case and engine, the types and the first values, or the first line of the error.
        absent: Engines that are not installed.
    """

    costs: list[EngineCost]
    dialects: dict[str, dict[str, str]]
    absent: list[str]


def tables(rows: int) -> Tables:
    """Measure 100,000 rows, ten times as many and so on to `rows`."""
    present = [engine for engine in ENGINES if installed(engine) is not None]
    costs = []
    with tempfile.TemporaryDirectory(prefix="cutlayer-tables-") as scratch:
        for count in counts_to(rows):
            folder = Path(scratch) / str(count)
            folder.mkdir()
            make_tables(folder, count)
            costs += [apart(measure, engine, folder, kind, count) for kind in KINDS for engine in present]
            for file in folder.glob("*.*"):
                file.unlink()
        dialects = {case: read_dialect(case, Path(scratch), present) for case in DIALECTS}
    return Tables(costs, dialects, [engine for engine in ENGINES if engine not in present])


def installed(engine: str) -> ModuleType | None:
    """The module of an engine; `None` if it is not installed."""
    try:
        return importlib.import_module(engine)
    except ModuleNotFoundError:
        return None


def make_tables(folder: Path, rows: int) -> None:
    """Write `bank`, with a label, numbers and categories, as CSV and Parquet, and `shop.parquet`, of ids alone.

    Args:
        folder: Existing folder.
        rows: Number of rows of each table, of which both have 80 %.
    """
    texts = pa.array([f"{word:08x}" for word in (hashed(np.arange(CODES, dtype=np.uint64), 99) >> np.uint64(32))])
    writers: dict[str, Any] = {}
    for start in range(0, rows, PIECE):
        numbers = np.arange(start, min(start + PIECE, rows), dtype=np.uint64)
        ids = numbers * np.uint64(STRIDE) % np.uint64(rows)
        bank, shop = _piece(ids, texts), pa.table({"id": (ids + np.uint64(rows - round(rows * OVERLAP))).astype(int)})
        if not writers:
            writers = {
                "csv": csv.CSVWriter(folder / "bank.csv", bank.schema),
                "parquet": parquet.ParquetWriter(folder / "bank.parquet", bank.schema),
                "shop": parquet.ParquetWriter(folder / "shop.parquet", shop.schema),
            }
        for name, writer in writers.items():
            writer.write_table(shop if name == "shop" else bank)
    for writer in writers.values():
        writer.close()


def _piece(ids: np.ndarray[Any, np.dtype[np.uint64]], texts: pa.Array) -> pa.Table:
    columns: dict[str, Any] = {"id": ids.astype(np.int64), "label": (hashed(ids, 98) % np.uint64(2)).astype(np.int64)}
    for index, name in enumerate(_NUMBERS):
        uniform = (hashed(ids, index) >> np.uint64(11)) / 2.0**53
        amounts = np.round(np.exp(8 * uniform), 2)
        columns[name] = pa.array(amounts if index % 2 else amounts.astype(np.int64), mask=uniform < 0.05)
    for index, name in enumerate(_WORDS):
        uniform = (hashed(ids, COLUMNS + index) >> np.uint64(11)) / 2.0**53
        columns[name] = texts.take(pa.array((CODES * uniform**3).astype(np.int32)))
    return pa.table(columns)


def measure(engine: str, folder: Path, kind: str, rows: int) -> EngineCost:
    """Take the table of a folder through all steps with one engine."""
    keep_freed_memory()
    meter, module = Meter(), importlib.import_module(engine)
    with tempfile.TemporaryDirectory(prefix="work-", dir=folder) as work, meter.running():
        common = _RUNS[engine](folder, Path(work), kind, meter)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    steps = {step: meter.stages[step] for step in STEPS}
    return EngineCost(engine, str(module.__version__), kind, rows, common, steps, resident)


def _cutlayer(folder: Path, work: Path, kind: str, meter: Meter) -> int:
    with meter.stage("read"):
        bank = PartyTable("bank", TableConfig(path=folder / f"bank.{kind}"), "id", "label", memory=MEMORY)
        none = FeaturesConfig(include="none")
        shop = PartyTable("shop", TableConfig(path=folder / "shop.parquet"), "id", features=none, memory=MEMORY)
    with meter.stage("profile"):
        bank.profiles("bank", note_rare=True)
    with meter.stage("join"):
        common = intersect({"bank": bank.digests, "shop": shop.digests})["bank"]
    with meter.stage("split"):
        split = split_rows(len(common), SplitConfig(), 0)
    with meter.stage("encode"):
        store = bank.prepare(common, split.train, work).store
    return 0 if store is None else store.rows


def _duckdb(folder: Path, work: Path, kind: str, meter: Meter) -> int:
    import duckdb

    settings: dict[str, Any] = {"memory_limit": f"{MEMORY >> 20}MB", "temp_directory": str(work)}
    with duckdb.connect(str(work / "tables.duckdb"), config=settings) as base:
        path = folder / f"bank.{kind}"
        read = f"read_csv('{path}', sample_size = -1)" if kind == "csv" else f"read_parquet('{path}')"
        with meter.stage("read"):
            base.execute(f"create table bank as select * from {read}")
            base.execute(f"create table shop as select * from read_parquet('{folder / 'shop.parquet'}')")
        with meter.stage("profile"):
            counts = ", ".join(f"count(distinct {name}), count({name})" for name in ("label", *_NUMBERS, *_WORDS))
            base.execute(f"select {counts} from bank").fetchall()
        with meter.stage("join"):
            base.execute(
                "create table common as select bank.rowid as mine, md5(id::varchar) as digest "
                "from bank join shop using (id)"
            )
        with meter.stage("split"):
            base.execute("create table parts as select *, hash(mine, 0) / 2.0^64 < 0.7 as train from common")
        with meter.stage("encode"):
            base.execute("create view training as select bank.* from bank join parts on bank.rowid = mine where train")
            columns, joins = ["digest"], []
            for name in _NUMBERS:
                base.execute(f"select avg({name}), stddev_pop({name}) from training")
                mean, width = base.fetchone() or (0, 1)
                columns.append(f"((coalesce({name}, {mean}) - {mean}) / {width})::float as {name}")
            for name in _WORDS:
                base.execute(
                    f"create table codes_{name} as select {name}, row_number() over (order by {name}) + 1 as code "
                    f"from (select distinct {name} from training)"
                )
                columns.append(f"coalesce(codes_{name}.code, 1)::integer as {name}")
                joins.append(f"left join codes_{name} using ({name})")
            query = (
                f"select {', '.join(columns)} from parts join bank on bank.rowid = mine {' '.join(joins)} "
                "order by digest"
            )
            base.execute(f"copy ({query}) to '{work / 'encoded.parquet'}' (format parquet)")
    return int(parquet.read_metadata(work / "encoded.parquet").num_rows)


def _polars(folder: Path, work: Path, kind: str, meter: Meter) -> int:
    import polars as pl

    def stored(frame: Any, name: str) -> Any:
        frame.sink_parquet(work / name)  # by the streaming engine
        return pl.scan_parquet(work / name)

    path = folder / f"bank.{kind}"
    with meter.stage("read"):
        frame = pl.scan_csv(path, infer_schema_length=None) if kind == "csv" else pl.scan_parquet(path)
        bank = stored(frame.with_row_index("mine"), "bank.parquet")
        shop = pl.scan_parquet(folder / "shop.parquet")
    with meter.stage("profile"):
        names = ["label", *_NUMBERS, *_WORDS]
        counts = [pl.col(names).n_unique().name.suffix("_n"), pl.col(names).null_count()]
        bank.select(counts).collect(engine="streaming")
    with meter.stage("join"):
        joined = bank.select("mine", "id").join(shop, on="id")
        common = stored(joined.with_columns(pl.col("id").hash(0).alias("digest")), "common.parquet")
    with meter.stage("split"):
        parts = stored(common.with_columns((pl.col("mine").hash(1) / 2.0**64 < 0.7).alias("train")), "parts.parquet")
    with meter.stage("encode"):
        whole = parts.drop("id").join(bank, on="mine")
        training = whole.filter("train")
        moments = [pl.col(_NUMBERS).mean().name.suffix("_mean"), pl.col(_NUMBERS).std(ddof=0).name.suffix("_width")]
        scale = training.select(moments).collect(engine="streaming").row(0, named=True)
        for name in _WORDS:
            values = training.select(pl.col(name).unique()).collect(engine="streaming").sort(name)
            codes = values.with_row_index(f"{name}_code", offset=2)
            whole = whole.join(codes.lazy(), on=name, how="left")
        numbers = [
            ((pl.col(name).fill_null(scale[f"{name}_mean"]) - scale[f"{name}_mean"]) / scale[f"{name}_width"])
            for name in _NUMBERS
        ]
        coded = [pl.col(f"{name}_code").fill_null(1).cast(pl.Int32) for name in _WORDS]
        floats = [number.cast(pl.Float32) for number in numbers]
        whole.sort("digest").select(*floats, *coded).sink_parquet(work / "encoded.parquet")
    return int(parquet.read_metadata(work / "encoded.parquet").num_rows)


_RUNS: Mapping[str, Callable[[Path, Path, str, Meter], int]] = {
    "cutlayer": _cutlayer,
    "duckdb": _duckdb,
    "polars": _polars,
}

DIALECTS: Mapping[str, bytes] = {
    "semicolons": b"id;a\n1;2\n2;3\n",
    "decimal commas": b"id;a\n1;2,5\n2;3,5\n",
    "quoted separator": b'id,a\n1,"x,y"\n2,z\n',
    "quote that nothing closes": b'id,a\n1,"x\n2,z\n',
    "byte order mark": b"\xef\xbb\xbfid,a\n1,2\n",
    "a row with a field too many": b"id,a\n1,2\n2,3,4\n3,4\n",
    "a row with a field too few": b"id,a\n1,2\n2\n3,4\n",
    "Latin-1": b"id,a\n1,M\xfcnchen\n",
    "UTF-16": "id,a\n1,2\n".encode("utf-16"),
    "a name twice": b"id,a,a\n1,2,3\n",
    "leading zeros": b"id,a\n007,1\n012,2\n",
    "whole numbers and 1.0": b"id,a\n1,1\n2,1.0\n",
    "empty fields": b"id,a\n1,\n2,3\n",
    "NA": b"id,a\n1,NA\n2,3\n",
    "long whole numbers": b"id,a\n1,9007199254740993\n2,1.5\n",
    "a late word": b"id,a\n" + b"".join(b"%d,1\n" % row for row in range(200_000)) + b"200000,x\n",
}
"""Small CSV files of one peculiarity each, as bytes, by name."""


def read_dialect(case: str, folder: Path, engines: list[str]) -> dict[str, str]:
    """What each engine makes of a case, with its settings as they come."""
    path = folder / "t.csv"
    path.write_bytes(DIALECTS[case])
    return {engine: _outcome(_READERS[engine], path) for engine in engines}


Column = tuple[str, str, list[Any]]


def _columns(table: pa.Table) -> list[Column]:
    return [(field.name, str(field.type), table.column(field.name).to_pylist()) for field in table.schema]


def _by_polars(path: Path) -> list[Column]:
    frame = importlib.import_module("polars").read_csv(path)
    return [(name, str(kind).lower(), frame.get_column(name).to_list()) for name, kind in frame.schema.items()]


_READERS: Mapping[str, Callable[[Path], list[Column]]] = {
    "cutlayer": lambda path: _columns(open_source(TableConfig(path=path), "bank", path.name).read(["id", "a"])),
    "duckdb": lambda path: _columns(importlib.import_module("duckdb").read_csv(str(path)).to_arrow_table()),
    "polars": _by_polars,
}


def _outcome(reader: Callable[[Path], list[Column]], path: Path) -> str:
    try:
        columns = reader(path)
    except Exception as failure:  # of any library
        return f"error: {(str(failure).splitlines() or [''])[0][:200]}"
    shown = [f"{name!r} {kind.removeprefix('large_')} {[*map(str, values[:2])]}" for name, kind, values in columns]
    return f"{len(columns[0][2]):,} rows: {', '.join(shown)}"
