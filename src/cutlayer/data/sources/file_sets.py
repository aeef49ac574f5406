"""Tables of several files: a folder, a pattern such as `2024-*.parquet`, and folders such as `year=2024`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from cutlayer.config import TableConfig
from cutlayer.data.faults import fault
from cutlayer.data.sources.base import FileSource, Names, Source
from cutlayer.data.sources.text_type import TextType
from cutlayer.data.typed_table import unified_schema

_WILD = "*?["
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Name by which Hive and Spark mean a missing value."""
_MAX_FILES, _MAX_DEEP = 10_000, 2


def is_set(path: Path) -> bool:
    """Whether a path names several files: a folder, or a pattern that is not the name of a file."""
    return path.is_dir() or (any(sign in str(path) for sign in _WILD) and not path.exists())


def files_of(path: Path, where: str) -> tuple[Path, list[Path]]:
    """The files of a folder or a pattern, in the order of their names, and the folder that all of them are in.

    Names that begin with `.` or `_`, as those of Spark's marks do, are left out. Of a folder, its own files are taken
    and those in folders such as `year=2024`.

    Raises:
        DataError: There is none, too many, another folder among them, or a link that leads out of the folder.
    """
    base, pattern = _divided(path)
    if ".." in pattern.parts:
        raise fault(where, "a pattern without '..' behind its first wildcard", "one with it", "name the folder")
    if (deep := pattern.parts.count("**")) > _MAX_DEEP:  # each looks into all folders below every one of the others
        raise fault(where, f"a pattern with '**' {_MAX_DEEP} times at most", f"{deep} times", "name the folders")
    files = _below(base, where) if base == path else (file for file in base.glob(str(pattern)) if file.is_file())
    try:
        found = [file for file in islice(files, _MAX_FILES + 1) if _is_data(file.name)]
    except (OSError, RecursionError) as failure:  # a folder of somebody else may be as deep as it likes, or have no end
        raise fault(
            where, "folders that can be read", getattr(failure, "strerror", None) or "too many levels"
        ) from None
    if not 0 < len(found) <= _MAX_FILES:
        got = f"more than {_MAX_FILES:,}" if found else "none"
        raise fault(where, f"1 to {_MAX_FILES:,} files", got, f"look at what is in {base}")
    inside = base.resolve()
    for file in found:
        if not file.resolve().is_relative_to(inside):
            remedy = "replace the link by the file, or name the file itself"
            raise fault(
                where, f"files in {base.name}", f"{file.relative_to(base)}, a link that leads out of it", remedy
            )
    return base, sorted(found, key=lambda file: file.parts)


def _divided(path: Path) -> tuple[Path, Path]:
    """The part of a path that is there, and the rest."""
    parts = path.parts
    known = next(i for i in range(len(parts), 0, -1) if Path(*parts[:i]).is_dir())
    return Path(*parts[:known]), Path(*parts[known:])


def _below(folder: Path, where: str) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not _is_data(entry.name):
                continue
            if entry.is_file():
                yield Path(entry.path)
            elif "=" in entry.name:
                yield from _below(Path(entry.path), where)
            else:
                got = f"the folder {entry.name}"
                raise fault(where, "files, or folders such as year=2024", got, "move it, or name files by a pattern")


def _is_data(name: str) -> bool:
    return name[:1] not in (".", "_")


def partition_of(file: Path, base: Path) -> dict[str, str | None]:
    """Columns that the folders of a file state, such as `year=2024`, and their values as text."""
    pairs = [part.partition("=") for part in file.relative_to(base).parts[:-1]]
    values = {unquote(name): unquote(value) for name, sign, value in pairs if sign}
    return {name: None if value == _NO_VALUE else value for name, value in values.items()}


class FileSetSource(Source):
    """The rows of several files of one format and with the same columns, one file after the other.

    Args:
        where: Whose table and which path, for messages.
        parts: The files, in their order.
        partitions: Columns that the folders of each file state, and their values as text.
        config: How they are laid out.

    Raises:
        DataError: A file has other columns than the first one.
    """

    def __init__(
        self,
        where: str,
        parts: Sequence[FileSource],
        partitions: Sequence[Mapping[str, str | None]],
        config: TableConfig,
    ) -> None:
        self._parts = tuple(parts)
        self.ordered = all(part.ordered for part in parts)
        counts = [part.rows for part in parts]
        self.rows = sum(count or 0 for count in counts) if None not in counts else None
        first = parts[0]
        for part, stated in zip(parts, partitions, strict=True):
            if {*part.names} != {*first.names} or [*stated] != [*partitions[0]]:
                odd = sorted({*part.names, *stated} ^ {*first.names, *partitions[0]})
                got = f"{', '.join(map(repr, odd[:3]))} in one of both" if odd else "folders in another order"
                raise fault(part.where, f"the columns of {first.config.path.name}", got, "make them the same")
        self._types = _common_types(parts, where)
        self._values = {name: _typed([stated[name] for stated in partitions], config) for name in partitions[0]}
        self._texts = {name: pa.array([stated[name] for stated in partitions], pa.string()) for name in partitions[0]}
        super().__init__(where, (*first.names, *self._values))

    @property
    def files(self) -> tuple[FileSource, ...]:
        """The files, in their order."""
        return self._parts

    def text_types(self, names: Sequence[str], as_text: Collection[str]) -> Mapping[str, TextType]:
        """See `Source`; columns of folders have their types from the beginning."""
        return self._parts[0].text_types([name for name in names if name not in self._values], as_text)

    def _pieces(self, names: list[str], size: int, as_text: Names, coded: Names) -> Iterator[pa.Table]:
        inner = [name for name in names if name not in self._values] or [self._parts[0].names[0]]
        for index, part in enumerate(self._parts):
            for piece in part.chunks(inner, size, as_text, {*coded} - {*self._values}):
                yield self._with_folders(piece, index, names, as_text)
            part.release()

    def _with_folders(self, piece: pa.Table, index: int, names: Sequence[str], as_text: Collection[str]) -> pa.Table:
        """A piece of a file with the columns of its folders, in the wanted order."""
        for name, kind in self._types.items():
            if name in names:
                piece = piece.set_column(piece.column_names.index(name), name, piece.column(name).cast(kind))
        for name in names:
            if name in self._values:
                value = (self._texts if name in as_text else self._values)[name][index]
                piece = piece.append_column(name, pa.repeat(value, piece.num_rows))
        return piece.select(names)


def _common_types(parts: Sequence[FileSource], where: str) -> dict[str, pa.DataType]:
    """Types of the columns that do not have the same one in all files: one that holds the values of all.

    Raises:
        DataError: There is no such type.
    """
    schemas = [part.schema for part in parts if part.schema is not None]
    if len(schemas) < len(parts) or all(schema.equals(schemas[0]) for schema in schemas):
        return {}
    common = unified_schema(schemas, where)
    odd = [field for field in common if any(schema.field(field.name).type != field.type for schema in schemas)]
    return {field.name: field.type for field in odd}


def _typed(texts: list[str | None], config: TableConfig) -> pa.ChunkedArray:
    """Values of a column of folders, by the rule for CSV files."""
    column = pa.chunked_array([pa.array(texts, pa.string())])
    kind = TextType(config)
    kind.add(column)
    return kind.converted(column)
