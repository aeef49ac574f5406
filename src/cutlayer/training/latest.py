"""Versions of a trained model: run folders side by side, and a small file that names the latest.

The versions of `runs/job-bank` are `runs/job-bank-1`, `runs/job-bank-2` and so on, or of other names. The file
`runs/job-bank.latest` has the name of one of them. It is written whole, once that run has ended: whoever reads it has
the old version or the new one.
"""

from __future__ import annotations

import re
from pathlib import Path

from cutlayer.errors import ConfigError, RunFolderError
from cutlayer.storage.durable import write_whole

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}"
"""Pattern of the name of a version, and of a round."""


def run_of(base: Path, version: str) -> Path:
    """The run folder of a version.

    Args:
        base: Path of which it is a version, such as `runs/job-bank`.
        version: Name of the version.

    Raises:
        ConfigError: The name would not do for a folder.
    """
    return base.with_name(f"{base.name}-{checked_name(version)}")


def checked_name(name: str) -> str:
    """The name of a version or a round.

    Raises:
        ConfigError: It would not do for a folder.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        wanted = (
            "a name of up to 40 letters, digits, dots, dashes and underscores, which begins with one of the first two"
        )
        raise ConfigError.expected(wanted, ascii(name)[:80], "such as 2026-06")
    return name


def version_of(base: Path, run: Path) -> str:
    """The version that a run folder is; empty where it is the base itself."""
    return run.name.removeprefix(base.name).removeprefix("-")


def rounds_of(base: Path) -> Path:
    """This party's own folder of the rounds of an exchange."""
    return base.with_name(f"{base.name}.rounds")


def begun_versions(base: Path) -> list[str]:
    """Versions whose training an exchange has begun, by name."""
    return sorted(path.name.removeprefix("train-") for path in rounds_of(base).glob("train-*"))


def latest_run(base: Path) -> Path | None:
    """The run folder of the latest version; `None` where none has ended.

    Raises:
        RunFolderError: The file that names it is damaged.
    """
    if not base.name:  # such as `.`, of which no version can be beside it
        return None
    pointer = _pointer(base)
    try:
        name = pointer.read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as failure:
        raise RunFolderError(f"{pointer} cannot be read ({failure}); write the name of a run folder into it") from None
    if not re.fullmatch(rf"{re.escape(base.name)}-{NAME_PATTERN}", name):
        wanted = f"{pointer}: the name of a version of {base.name}, a folder next to it"
        raise RunFolderError.expected(wanted, ascii(name)[:80], "write the name of a run folder into it")
    return base.with_name(name)


def set_latest(base: Path, run: Path) -> None:
    """Name the latest version, which has ended."""
    write_whole(_pointer(base), f"{run.name}\n")


def _pointer(base: Path) -> Path:
    return base.with_name(f"{base.name}.latest")
