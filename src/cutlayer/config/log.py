"""Where the curves and the results of a run go besides its folder: the section `log` of the active party."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator

from cutlayer.config.addresses import address, local_path
from cutlayer.config.base import FrozenModel
from cutlayer.config.extras import check_extra
from cutlayer.config.names import FilePath

if TYPE_CHECKING:
    from cutlayer.config.case import Case

_FORM = re.compile(r"https?://(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?(?:/[\w./~-]*)?|(?:sqlite:///|file:)?[^:?#;%]+")
"""A server, or a file or folder: of other forms MLflow reads another address than they seem to hold."""
_FOLDERS = "MLFLOW_ALLOW_FILE_STORE"
"""Variable of the environment by which MLflow opens stores of files all the same."""
_SECRET = re.compile(r"[?&;][^=&;]*(user|pass|pwd|token|secret)[^=&;]*=", re.IGNORECASE)
"""A parameter of an address, as those of databases are."""


def tracking_uri(uri: str) -> str:
    """Return the address of an MLflow server, or of a store that MLflow opens itself, if it holds no secret.

    Raises:
        ValueError: It is of another form, or holds a user or a password, which the job file and the report would show.

    >>> tracking_uri("https://mlflow.example:5000")
    'https://mlflow.example:5000'
    """
    if not uri.strip() or re.match(r"[\w+.-]+://[^/]*@", uri) or _SECRET.search(uri):
        got = "a user or a password in it" if uri.strip() else "nothing"
        wanted = "an address such as https://mlflow.example:5000, without user and password"
        raise ValueError(f"{wanted}, got {got}; MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD are read instead")
    if not _FORM.fullmatch(uri):
        raise ValueError("a server by https:// or http://, sqlite:/// with a file, or a folder, got another form")
    return uri


class LogConfig(FrozenModel):
    """Where the curves, settings and results of a run are written besides its folder; nothing of a row is.

    Attributes:
        mlflow: Tracking URI of MLflow, without user and password. The run is in the experiment of the job's name.
        tensorboard: Folder of TensorBoard, in which each run has a folder of its own.
    """

    mlflow: Annotated[str, AfterValidator(tracking_uri), AfterValidator(address)] | None = None
    tensorboard: FilePath | None = None

    def _faults(self) -> Iterator[str]:
        if self.mlflow is None and self.tensorboard is None:
            yield "mlflow or tensorboard in it, got neither; leave log out for no log"


def log_faults(case: Case) -> Iterator[str]:
    """A log has something to write, and the packages that write it."""
    for name, party in case.job.parties.items():
        if party.log is not None and party.role == "passive":
            wanted = f"expected no parties.{name}.log at a passive party, which has neither curves nor a report"
            yield f"{wanted}, got one; set it at {case.job.active}"
        for extra in party.log.model_dump(exclude_none=True) if party.log is not None else ():
            check_extra(extra, f"parties.{name}.log.{extra}")
        if party.log is not None and _is_folder(party.log.mlflow):
            wanted = f"expected parties.{name}.log.mlflow as a server, or sqlite:/// with a file"
            remedy = f"such as sqlite:///mlflow.db, or set {_FOLDERS}=true"
            yield f"{wanted}, got a folder, which MLflow refuses once the run has begun; {remedy}"


def _is_folder(uri: str | None) -> bool:
    """Whether an address is a store of files, which MLflow does not open by default."""
    path = None if uri is None or uri.startswith("sqlite") else local_path(uri)
    return path is not None and os.environ.get(_FOLDERS, "").lower() not in ("true", "1")
