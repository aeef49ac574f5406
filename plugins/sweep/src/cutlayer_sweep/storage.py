"""The storage of a sweep's trials: a file or a database that several processes and machines may share."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from cutlayer.errors import ConfigError

SQLITE_WAIT_SECONDS = 60
OPEN_ATTEMPTS = 5
DIRECTIONS: tuple[Literal["maximize", "minimize"], ...] = ("maximize", "minimize", "minimize")
"""Directions of utility, leak and columns rebuilt."""


def without_password(storage: str) -> str:
    """The address of a storage without its user and password.

    >>> without_password("postgresql://me:secret@host/db"), without_password("runs/sweep.log")
    ('postgresql://host/db', 'runs/sweep.log')
    """
    return re.sub(r"(?<=://)[^/]*@", "", storage)


def open_study(storage: str, name: str, identity: dict[str, str]) -> optuna.Study:
    """Open the study of a sweep, or create it.

    Args:
        storage: Path of a file, or address of a database such as `sqlite:///sweep.db`.
        name: Name of the study.
        identity: What distinguishes this sweep from others, by name.

    Raises:
        ConfigError: The storage cannot be opened, or holds something else or the sweep of another job.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with _explained(storage):
        opened = _open_storage(storage)
        study = optuna.create_study(storage=opened, study_name=name, directions=DIRECTIONS, load_if_exists=True)
        stored = study.user_attrs
        for key, value in identity.items():
            if key not in stored:
                study.set_user_attr(key, value)
    differing = sorted(key for key, value in identity.items() if stored.get(key, value) != value)
    if len(study.directions) != len(DIRECTIONS):
        differing.append("number of objectives")  # of an older release
    if differing:
        raise ConfigError.expected(
            f"in {without_password(storage)} the sweep {name!r} of this job and these values",
            f"one with another {' and another '.join(differing)}",
            "give another --out or --storage, or the job another name",
        )
    return study


def _open_storage(storage: str) -> Any:
    if "://" not in storage:
        path = Path(storage)
        _check_journal(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(storage))
    from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
    from sqlalchemy.pool import NullPool

    # Between two trials lie minutes: no connection to a server stays open, or would have to survive its restart.
    arguments: dict[str, Any] = {"poolclass": NullPool}
    if storage.startswith("sqlite"):
        arguments = {"connect_args": {"timeout": SQLITE_WAIT_SECONDS}}

    for _ in range(OPEN_ATTEMPTS):
        try:
            return RDBStorage(storage, engine_kwargs=arguments)
        except (IntegrityError, OperationalError, ProgrammingError):  # another process is creating the tables
            time.sleep(0.2)
    return RDBStorage(storage, engine_kwargs=arguments)


def _check_journal(path: Path) -> None:
    """Refuse a file that is something else than a journal of trials.

    Raises:
        ConfigError: The file does not begin as such a journal does.
    """
    if path.is_dir():
        raise ConfigError.expected("a file or the address of a database as --storage", f"the folder {path}")
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("rb") as file:
        first = file.readline(100_000)
    try:
        if "op_code" in json.loads(first):
            return
    except (ValueError, TypeError):
        pass
    raise ConfigError.expected(f"a sweep's storage at {path}", "another file", "choose another --storage")


@contextmanager
def _explained(storage: str) -> Iterator[None]:
    """Raise one sentence where a database or a file cannot be opened."""
    try:
        yield
    except (ConfigError, KeyboardInterrupt):
        raise
    except ImportError:
        remedy = "install the package that its address names, or take sqlite:///FILE"
        raise ConfigError.expected(f"a driver for {without_password(storage)}", "none", remedy) from None
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].replace(storage, without_password(storage))
        raise ConfigError(f"--storage {without_password(storage)} cannot be opened: {reason}") from None
