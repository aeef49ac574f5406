"""Where a sweep's trials are kept: a file, or a database, that several processes and machines may share."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    import optuna

SQLITE_WAIT_SECONDS = 60
OPENING_TRIES = 5


def need_optuna() -> None:
    """Make sure of Optuna, and let it tell warnings only.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise ConfigError.expected(
            "the package optuna, which keeps a sweep's trials", "none", "pip install 'cutlayer[sweep]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def shown(storage: str) -> str:
    """The storage without the user and password of its address.

    >>> shown("postgresql://me:secret@host/db"), shown("runs/sweep.log")
    ('postgresql://host/db', 'runs/sweep.log')
    """
    return re.sub(r"(?<=://)[^/]*@", "", storage)


def open_study(storage: str, name: str, identity: dict[str, str]) -> optuna.Study:
    """Open the study of one sweep, or make it.

    Args:
        storage: path of a file, or address of a database such as `sqlite:///sweep.db`.
        name: of the study.
        identity: what makes it this sweep and no other, as text by what it is called.

    Raises:
        ConfigError: the storage cannot be opened, holds something else, or the sweep of another job.
    """
    import optuna

    with _told_of(storage):
        study = optuna.create_study(
            storage=_opened(storage), study_name=name, directions=["maximize", "minimize"], load_if_exists=True
        )
        known = study.user_attrs
        for key, value in identity.items():
            if key not in known:
                study.set_user_attr(key, value)
    differing = sorted(key for key, value in identity.items() if known.get(key, value) != value)
    if differing:
        raise ConfigError.expected(
            f"in {shown(storage)} the sweep {name!r} of this job and these values",
            f"one with another {' and another '.join(differing)}",
            "give another --out or --storage, or the job another name",
        )
    return study


def _opened(storage: str) -> Any:
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    if "://" not in storage:
        path = Path(storage)
        _check_journal(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(storage))
    arguments = {"connect_args": {"timeout": SQLITE_WAIT_SECONDS}} if storage.startswith("sqlite") else {}
    from sqlalchemy.exc import IntegrityError, OperationalError

    for _ in range(OPENING_TRIES):
        try:
            return RDBStorage(storage, engine_kwargs=arguments)
        except (IntegrityError, OperationalError):  # another process made the tables in this moment
            time.sleep(0.2)
    return RDBStorage(storage, engine_kwargs=arguments)


def _check_journal(path: Path) -> None:
    """Never write into a file that is something else.

    Raises:
        ConfigError: it does not begin as a journal of trials does.
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
def _told_of(storage: str) -> Iterator[None]:
    """Turn what a database or a file says when it cannot be opened into one sentence."""
    try:
        yield
    except (ConfigError, KeyboardInterrupt):
        raise
    except ImportError:
        remedy = "install the package that its address names, or take sqlite:///FILE"
        raise ConfigError.expected(f"a driver for {shown(storage)}", "none", remedy) from None
    except Exception as fault:
        told = (str(fault).splitlines() or [type(fault).__name__])[0].replace(storage, shown(storage))
        raise ConfigError(f"--storage {shown(storage)} cannot be opened: {told}") from None
