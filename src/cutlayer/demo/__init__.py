"""The demonstration job on UCI Adult, which ships with the package (see ATTRIBUTION.md)."""

from __future__ import annotations

import shutil
from pathlib import Path

from cutlayer.config import Job
from cutlayer.config.load import load_job
from cutlayer.errors import RunFolderError
from cutlayer.storage.durable import check_output

FOLDER = Path(__file__).parent
FILES = ("job.yaml", "adult.parquet", "ATTRIBUTION.md")


def demo_job() -> Job:
    """The job that `cutlayer demo` runs: a bank, a census office and an employer."""
    return load_job(FOLDER / "job.yaml")


def copy_files(to: Path) -> None:
    """Copy the job file and its table, to be edited and run with `cutlayer run`.

    Raises:
        RunFolderError: One of the files is there already, or no folder can be made.
    """
    check_output(*(to / name for name in FILES), remedy="choose another folder")
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise RunFolderError(f"{to} cannot be created: {failure.strerror}; choose another folder") from None
    for name in FILES:
        shutil.copyfile(FOLDER / name, to / name)
