"""`cutlayer run`: all parties of a job in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cutlayer.cli.report import finish
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError, Interrupted

if TYPE_CHECKING:
    from cutlayer.config import Job
    from cutlayer.jobs.options import Options
    from cutlayer.training.folder import RunFolder
    from cutlayer.training.keys import Keys


@verb(consent=("host", "model", "path"))
def run(
    job: Path,
    *,
    out: Path | None = None,
    resume: bool = False,
    forget: bool = False,
    key: Path | None = None,
    device: str | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Train a job with all its parties here, audit what crossed, and write the report.

    Args:
        out: The run folder to create; default: runs/NAME next to the job file NAME.yaml.

    Example: cutlayer run job.yaml --out runs/first
    """
    forgets = checked_forget(forget, resume)
    place = out or job.parent / "runs" / job.stem
    train_file(job, place, key, device, quiet, json, resume=resume, forget_peer_progress=forgets)


def train_file(
    path: Path, folder: Path, key: Path | None, device: str | None, quiet: bool, as_json: bool, **options: Any
) -> None:
    """Execute a job file with all its parties here, show the result, and end the command with its exit code.

    Args:
        path: The job file.
        folder: The run folder.
        key: As the option `--key`.
        device: As the option `--device`.
        quiet: As the option `--quiet`.
        as_json: As the option `--json`.
        options: Fields of `Options`.
    """
    from cutlayer.config.lines import locating_errors
    from cutlayer.config.load import load_whole_job, with_device

    job = with_device(load_whole_job(path), device)
    from cutlayer.jobs.options import Options

    with locating_errors(path):
        settings = Options(keys_for(path.parent, key), forks=True, **options)
        ran = train(job, folder, settings, quiet=quiet or as_json)
        raise typer.Exit(finish(ran, as_json=as_json))


def train(job: Job, folder: Path, options: Options, *, quiet: bool) -> RunFolder:
    """Execute a job with a progress bar on standard error.

    Raises:
        Interrupted: Ctrl-C; the message names what is left of the run.
        CutlayerError: Bad input.
    """
    from cutlayer.cli.logged import logged
    from cutlayer.cli.progress import progress_for
    from cutlayer.jobs.execute import execute

    with (
        interruptible(folder),
        progress_for(quiet=quiet) as progress,
        logged(job, job.active, folder, progress) as watched,
    ):
        return execute(job, folder, options, watched)


@contextmanager
def interruptible(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C into an error that names what is left of the run."""
    from cutlayer.training.folder import RunFolder

    try:
        yield
    except KeyboardInterrupt as failure:
        again = "the same command with --resume continues"
        if RunFolder(folder).has_checkpoint:
            state = f"the last committed epoch is in {folder}; {again} from it"
        elif RunFolder(folder).has_release:
            state = f"no epoch was committed yet; {folder} holds the noise and privacy account of the releases; {again}"
        elif RunFolder(folder).has_alignment:
            state = f"no epoch was committed yet; {folder} holds the buckets of ids that were aligned; {again}"
        elif RunFolder(folder).can_wait(failure):
            state = f"no epoch was committed yet; {folder} holds the labels as they were drawn and sent; {again}"
        else:
            state = "no epoch was committed yet: there is nothing to resume"
        raise Interrupted(f"interrupted; {state}") from None


def checked_forget(forget: bool, resume: bool) -> bool:
    """Check `--forget-peer-progress`.

    Raises:
        ConfigError: The run is new, and has no progress to forget.
    """
    if forget and not resume:
        raise ConfigError.expected("--resume with --forget-peer-progress", "a new run", "leave it out")
    return forget


def keys_for(folder: Path, supplied: Path | None) -> Keys:
    """The keys of a run; long-lived secrets are in `.cutlayer` in the folder of the job file."""
    from cutlayer.training.keys import Keys, read_key

    return Keys(folder / ".cutlayer", read_key(supplied) if supplied else None)
