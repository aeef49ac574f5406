"""Resources that a job names outside of its own folder: files, folders, databases and servers.

Paths and addresses are found by the types of their keys, so that a new key cannot be forgotten. The classes that a job
imports are checked where they are imported, and the address of the label owner by its certificate.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from cutlayer.config.addresses import address, local_path
from cutlayer.config.job import Job
from cutlayer.config.names import file_path
from cutlayer.config.remote import RemotePath
from cutlayer.consent import Kind, Reach, host_of, is_permitted

_CLOSED = Path(os.devnull)
"""Folder of files that must not be opened: nothing can be in it."""
_REMOTE = "address"
"""Folder in it of the addresses of tables."""
_MLFLOW = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_USERNAME", "~/.mlflow/credentials")
_ADDRESSES = {
    "url": ("sends a query to", "PGHOST", ("PGPASSWORD",)),
    "mlflow": ("sends curves and report to", "MLFLOW_TRACKING_URI", _MLFLOW),
}
"""By key of an address: the action there, and the variables of the environment with its credentials."""
_WRITTEN_KEYS = ("secret", "tensorboard")
"""Keys of paths that are written to."""


def reaches(section: BaseModel, where: str = "") -> Iterator[Reach]:
    """Yield the resources that a section of a file names outside of it.

    Args:
        section: A job, or a part of one.
        where: Dotted path of the section.
    """
    for name, forms in _forms(type(section)).items():
        value = getattr(section, name)
        key = f"{where}.{name}".removeprefix(".")
        if isinstance(value, RemotePath):
            yield Reach(key, Kind.HOST, host_of(str(value)), f"reads {value}")
        elif value is not None and file_path in forms:
            act = "writes" if name in _WRITTEN_KEYS else "reads"
            yield Reach(key, Kind.PATH, str(value.resolve()), f"{act} {value.resolve()}")
        if value is not None and address in forms:
            yield _of_address(key, value, *_ADDRESSES[name])
        parts = value.items() if isinstance(value, Mapping) else ((None, value),)
        for part, inner in parts:
            if isinstance(inner, BaseModel):
                yield from reaches(inner, key if part is None else f"{key}.{part}")


def closed(job: Job, folder: Path) -> Job:
    """A job as a description: it names nothing outside of a folder any more, but for what has consent.

    The layout of a table stays, with a path at which nothing can be opened.

    Args:
        job: The job of a run folder, or one that other parties share.
        folder: The folder of its file.
    """
    changes: dict[str, dict[str, Any]] = {}
    for name, party in job.parties.items():
        kept = {"secret": None, "log": None, "table": party.table}
        if party.table is not None:
            shut = {reach.where for reach in reaches(party.table, "table") if not is_permitted(reach, folder)}
            path = {"path": _closed_path(party.table.path)} if "table.path" in shut else {}
            url = {"url": None} if "table.url" in shut else {}
            kept["table"] = party.table.model_copy(update={**path, **url})
        changes[name] = kept
    return job.with_parties(changes)


def is_closed(path: Path) -> bool:
    """Whether it is a path of a closed job, at which nothing can be opened."""
    return path.is_relative_to(_CLOSED)


def named_path(path: Path) -> Path:
    """The path that the file named, also where the job is closed."""
    if not is_closed(path):
        return path
    inner = path.relative_to(_CLOSED)
    return RemotePath(*inner.parts[1:]) if inner.parts[:1] == (_REMOTE,) else Path("/") / inner


def consent_option(path: Path) -> str:
    """The option that allows to read a path or an address."""
    return f"--allow-host {host_of(str(path))}" if isinstance(path, RemotePath) else f"--allow-path {path}"


def _closed_path(path: Path) -> Path:
    if isinstance(path, RemotePath):
        return _CLOSED.joinpath(_REMOTE, *path.parts)
    return _CLOSED / path.relative_to("/")


def source_path(path: Path) -> Path:
    """The file or folder that a table is read from, also where the job is closed; of a pattern the folder of its files.

    >>> source_path(Path("/data/june/part-*.csv"))
    PosixPath('/data/june')
    """
    named = named_path(path)
    if named.exists():
        return named
    return next((above for above in (named, *named.parents) if not {*str(above)} & {*"*?["}), named)


def _of_address(where: str, text: str, act: str, host_variable: str, credentials: tuple[str, ...]) -> Reach:
    path = local_path(text)
    if path is not None:
        return Reach(where, Kind.PATH, str(path), f"{act} {path}")
    host = host_of(text)
    return Reach(where, Kind.HOST, host, f"{act} {host}", host_variable, credentials)


@cache
def _forms(section: type[BaseModel]) -> Mapping[str, frozenset[Any]]:
    """The functions that validate each field: to collect them takes longer than to validate a job."""
    return {name: frozenset(_validators(field)) for name, field in section.model_fields.items()}


def _validators(field: Any) -> Iterator[Any]:
    """The functions that validate a value of a field, of a union those of all its types."""
    markers: Any = getattr(field, "metadata", None) or getattr(field, "__metadata__", ())
    yield from (getattr(marker, "func", None) for marker in markers)
    for inner in get_args(getattr(field, "annotation", field)):
        yield from _validators(inner)
