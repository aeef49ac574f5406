"""Sources of a party's rows: files, data frames and arrays. Every source reads columns as an Arrow table."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path

from cutlayer.config import TableConfig
from cutlayer.config.reaches import consent_option, is_closed, named_path
from cutlayer.config.remote import RemotePath
from cutlayer.config.wording import did_you_mean
from cutlayer.data.faults import fault
from cutlayer.data.sources import catalogue
from cutlayer.data.sources.aggregated import AggregatedSource
from cutlayer.data.sources.base import FileSource, Source
from cutlayer.data.sources.file_sets import FileSetSource, files_of, is_set, partition_of
from cutlayer.data.sources.memory import MemorySource, as_table
from cutlayer.data.sources.remote import fetched
from cutlayer.data.sources.size_limit import SHARE
from cutlayer.data.typed_table import TABLE_MEMORY
from cutlayer.errors import ConfigError, DataError
from cutlayer.storage.scratch import remove_folder

__all__ = ["SOURCES", "FileSource", "MemorySource", "Source", "as_table", "check_there", "open_source"]

SOURCES: Mapping[str, type[FileSource]] = {
    kind.format: kind for kind in vars(catalogue).values() if isinstance(kind, type) and issubclass(kind, FileSource)
}
"""Sources of files by format; a table without a format has that of its file's ending."""


def open_source(data: object, party: str, where: str | None = None, memory: int = TABLE_MEMORY) -> Source:
    """Open a party's table of any kind.

    Args:
        data: A `TableConfig`, or anything that `as_table` takes.
        party: Name of the party, for messages.
        where: What messages call a file instead of party and path.
        memory: Bytes that rows of events may take while they are made one row an id.

    Raises:
        ConfigError: A table that a run folder names, without consent.
        DataError: No such file, of unknown format, unreadable, files that differ, or no table at all.
    """
    if not isinstance(data, TableConfig):
        owner = f"party {party}"
        return MemorySource(owner, as_table(data, owner))
    if is_closed(data.path):
        wanted = f"consent to read the table of {party} that a run folder names"
        raise ConfigError.expected(wanted, "none", f"allow it by {consent_option(named_path(data.path))}")
    where = where or f"party {party}: {data.path}"
    if isinstance(data.path, RemotePath):
        folder, local = fetched(data.path, where, SHARE * memory)
        try:
            source = open_source(data.model_copy(update={"path": local}), party, where, memory)
        except BaseException:
            remove_folder(folder)
            raise
        weakref.finalize(source, remove_folder, folder)
        return source
    source = _of_path(where, data, SHARE * memory)
    return source if data.aggregate is None else AggregatedSource(source, data.aggregate, memory)


def check_there(path: Path, where: str) -> None:
    """Refuse a path where nothing is, unless it is a pattern.

    Raises:
        DataError: Nothing is there; the error has the nearest name.
    """
    if not path.exists() and not is_set(path):
        folder = path.parent
        tables = [each.name for each in folder.iterdir() if each.is_file()] if folder.is_dir() else []
        raise DataError(f"{where}: no such file{did_you_mean(path.name, tables)}")


def _of_path(where: str, data: TableConfig, most: int) -> Source:
    """The table of a file, a folder or a pattern, each file of so many bytes at most."""
    if is_set(data.path):
        return _of_files(where, data, most)
    check_there(data.path, where)
    if not data.path.is_file():
        raise fault(where, "a file or a folder", "something else")
    return _kind_of(data, where)(where, data, most)


def _of_files(where: str, config: TableConfig, most: int) -> Source:
    """The table of a folder or a pattern."""
    base, files = files_of(config.path, where)
    configs = [config.model_copy(update={"path": file}) for file in files]
    names = [f"{where}, {file.relative_to(base)}" for file in files]
    kinds = [_kind_of(each, name) for each, name in zip(configs, names, strict=True)]
    if odd := [file for file, kind in zip(files, kinds, strict=True) if kind is not kinds[0]]:
        raise fault(where, "files of one format", f"{files[0].name} and {odd[0].name}", "name them by a pattern")
    parts = [kind(name, each, most) for kind, name, each in zip(kinds, names, configs, strict=True)]
    return FileSetSource(where, parts, [partition_of(file, base) for file in files], config)


def _kind_of(config: TableConfig, where: str) -> type[FileSource]:
    if config.format in SOURCES:
        return SOURCES[config.format]
    if config.format != "auto":
        raise fault(where, f"a table.format of auto, {', '.join(SOURCES)}", config.format)
    by_ending = {ending: kind for kind in SOURCES.values() for ending in kind.endings}
    endings = [suffix.lower() for suffix in config.path.suffixes if suffix.lower() not in (".gz", ".bz2", ".xz")]
    if endings and endings[-1] in by_ending:
        return by_ending[endings[-1]]
    raise fault(where, f"a file ending in one of {', '.join(by_ending)}", config.path.name, "or set table.format")
