"""Addresses of databases and of MLflow: a server, or a file or folder of this machine."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationInfo

from cutlayer.config.names import in_folder

_LOCAL = re.compile(r"(?P<scheme>sqlite[\w+]*:///|file:(?://)?)?(?P<path>[^?]*)(?P<rest>.*)", re.DOTALL)
_SERVICE = "databricks"
"""Address by which MLflow means the service that its own settings name."""


def local_path(address: str) -> Path | None:
    """The file or folder that an address names; `None` where it names a server.

    >>> local_path("sqlite:////data/runs.db"), local_path("mlruns"), local_path("https://mlflow.example")
    (PosixPath('/data/runs.db'), PosixPath('mlruns'), None)
    """
    match = _LOCAL.fullmatch(address)
    if match is None or address == _SERVICE or (match["scheme"] is None and ":" in address):
        return None
    return Path(match["path"])


def address(text: str, info: ValidationInfo) -> str:
    """An address that a file names; a relative path in it is relative to the file's folder."""
    path, match = local_path(text), _LOCAL.fullmatch(text)
    if path is None or match is None:
        return text
    return f"{match['scheme'] or ''}{in_folder(path, info)}{match['rest']}"
