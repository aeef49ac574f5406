"""`cutlayer pilot`: what partners would add, from a few rows of theirs, before anything else of them is released."""

from __future__ import annotations

from pathlib import Path

import typer

from cutlayer.cli.report import finish
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
    from cutlayer.cli.run import keys_for, train
    from cutlayer.config.lines import located
    from cutlayer.config.load import load_job, with_device
    from cutlayer.jobs.options import Options

    loaded = with_device(load_job(job), device)
    folder = out or job.parent / "runs" / f"{job.stem}-pilot"
    options = Options(keys_for(job.parent, key), resume, pilot=rows)
    with located(job):
        raise typer.Exit(finish(train(loaded, folder, options, quiet=quiet or json), as_json=json))
