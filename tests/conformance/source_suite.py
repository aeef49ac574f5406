"""The checks of sources of rows. Each takes the class under test, its line of the table and a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from cutlayer.config import TableConfig, validated
from cutlayer.data.sources import FileSource, open_source
from cutlayer.errors import DataError

from .table import SourceCase

SourceClass = type[FileSource]
TABLE = pa.table({"id": [3, 1, 2], "usage": [0.5, 0.25, 2.0]})


def _config(source: SourceClass, case: SourceCase, path: Path, form: str = "auto") -> TableConfig:
    settings = case.write(TABLE, path) or {}
    return validated(TableConfig, {"path": path, "format": form, **settings}, "table")


def reads_what_was_written(source: SourceClass, case: SourceCase, folder: Path) -> None:
    """All columns in the file's order, some in another one, and pieces of some rows, by each of its endings."""
    for ending in source.endings:
        path = folder / f"table{ending}"
        settings = {"delimiter": ","} if ending == ".tsv" else {}
        opened = open_source(_config(source, case, path).model_copy(update=settings), "telco")
        assert isinstance(opened, source), f"expected {ending} to be read as {source.format}"
        assert opened.names == ("id", "usage"), f"expected the names id and usage, got {opened.names}"
        assert opened.read(["usage", "id"]).equals(TABLE.select(["usage", "id"])), "expected the columns as written"
        sizes = [piece.num_rows for piece in opened.chunks(["id"], 2)]
        assert (sum(sizes), max(sizes)) == (3, 2), f"expected pieces of at most 2 rows, together 3, got {sizes}"


def is_found_by_its_name(source: SourceClass, case: SourceCase, folder: Path) -> None:
    """`table.format` names it, whatever the file is called."""
    path = folder / f"table{source.endings[0]}"
    config = _config(source, case, path, source.format)
    path.rename(folder / "other")
    config = config.model_copy(update={"path": folder / "other"})
    assert open_source(config, "telco").names == ("id", "usage")


def names_a_damaged_file(source: SourceClass, case: SourceCase, folder: Path) -> None:
    """Bytes that are no table are a `DataError` with the party and the file, and no other exception."""
    path = folder / f"table{source.endings[0]}"
    config = _config(source, case, path)
    path.write_bytes(b"\xff\xfe no table")
    with pytest.raises(DataError, match=f"party telco: .*{path.name}"):
        open_source(config, "telco").read(["id"])


SOURCE_CHECKS: tuple[Callable[[SourceClass, SourceCase, Path], None], ...] = (
    reads_what_was_written,
    is_found_by_its_name,
    names_a_damaged_file,
)


def check_source(source: SourceClass, case: SourceCase, folder: Path) -> None:
    """Hold one source to all checks."""
    for check in SOURCE_CHECKS:
        check(source, case, folder)
