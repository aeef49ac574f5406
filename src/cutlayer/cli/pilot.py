"""`cutlayer pilot`: what partners would add, from a few rows of theirs, before anything else of them is released."""

from __future__ import annotations

from pathlib import Path

from cutlayer.cli.run import train_file
from cutlayer.cli.verb import verb


@verb(consent=("host", "model", "path"))
def pilot(
    job: Path,
    *,
    rows: int = 1000,
    out: Path | None = None,
    resume: bool = False,
    key: Path | None = None,
    device: str | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Run a job in which each partner releases a few random rows alone, and estimate what all of them would add.

    Args:
        rows: Number of rows that each partner releases, 100 or more.
        out: The run folder to create; default: runs/NAME-pilot next to the job file NAME.yaml.

    Example: cutlayer pilot job.yaml --rows 1000
    """
    folder = out or job.parent / "runs" / f"{job.stem}-pilot"
    train_file(job, folder, key, device, quiet, json, resume=resume, pilot=rows)
