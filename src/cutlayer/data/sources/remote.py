"""Tables on other machines: fetched once into a private temporary folder, by the file systems of fsspec."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from cutlayer.config.remote import RemotePath
from cutlayer.data.faults import fault
from cutlayer.data.sources.base import first_line
from cutlayer.data.sources.size_limit import SizeLimit
from cutlayer.errors import DataError
from cutlayer.storage.scratch import new_folder, remove_folder

_WILD = re.compile(r"[*?\[]")


def fetched(path: RemotePath, where: str, most: int) -> tuple[Path, Path]:
    """Copy the file, or the files of a folder or a pattern, so that every pass over the rows reads the same bytes.

    Credentials are those that the store's own library finds, such as the variables `AWS_*`.

    Args:
        path: The address.
        where: Whose table, for messages.
        most: Bytes that all files together may have.

    Returns:
        The temporary folder, to be removed by `remove_folder`, and what is to be opened in it.

    Raises:
        DataError: A package is not installed, or the address cannot be read, or has more bytes.
    """
    try:
        import fsspec
    except ModuleNotFoundError:
        raise fault(where, "the package fsspec for an address", "none", "install cutlayer[remote]") from None
    folder = new_folder("cutlayer-table-")
    try:
        system, inner = fsspec.core.url_to_fs(str(path))
        names, base = _files(system, inner, is_web=str(path).startswith("http"))
        if not names:
            raise FileNotFoundError("no file there")
        limit = SizeLimit(where, most)
        for name in names:
            local = folder.joinpath(*_parts(name, base))
            local.parent.mkdir(parents=True, exist_ok=True)
            with system.open(name, "rb") as remote:
                limit.copy(remote, local)
    except BaseException as failure:  # of any library, which has classes of its own
        remove_folder(folder)
        if isinstance(failure, DataError) or not isinstance(failure, Exception):
            raise
        wanted, remedy = "a readable address", "look at the address and its credentials"
        if isinstance(failure, ImportError):
            wanted, remedy = "the packages of an address", "install cutlayer[remote]"
        raise fault(where, wanted, first_line(failure), remedy) from None
    is_one = [*names] == [inner]
    return folder, folder.joinpath(*_parts(names[0], base)) if is_one else folder


def _files(system: Any, inner: str, *, is_web: bool) -> tuple[list[str], str]:
    """Names of the files, and the folder that they are in."""
    if wild := _WILD.search(inner):
        return sorted(system.glob(inner)), inner[: wild.start()].rpartition("/")[0]
    if not is_web and system.isdir(inner):
        return sorted(system.find(inner)), inner.rstrip("/")
    return [inner], inner.rpartition("/")[0]


def _parts(name: str, base: str) -> tuple[str, ...]:
    """Where a file is in its folder; a store may call it by names that lead elsewhere."""
    parts = PurePosixPath(name.removeprefix(base).lstrip("/")).parts
    if not parts or any(part in ("..", "/") or "\\" in part or "\0" in part for part in parts):
        raise ValueError("a name that leads out of its folder")
    return parts
