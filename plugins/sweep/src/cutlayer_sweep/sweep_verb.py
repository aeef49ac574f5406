"""`cutlayer sweep`: the same job with varied values; the front of utility, leak and columns rebuilt, and its knee."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from cutlayer.cli.app import print_json
from cutlayer.cli.run import keys_for
from cutlayer.cli.verb import consenting
from cutlayer.report.rounding import printable, times
from cutlayer_sweep.leak_kind import LeakKind

if TYPE_CHECKING:
    from cutlayer_sweep.result import SweepResult


@consenting("host", "model", "path")
def sweep(
    job: Path,
    *,
    vary: list[str],
    trials: int | None = None,
    storage: str = "",
    leak: LeakKind = LeakKind.ALL,
    out: Path | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Run a job with varied values, plot utility against leak, and name the knee; the same command continues.

    Args:
        vary: A key of the job and its values: PATH=1,2,3 or PATH=0.1..4 or PATH=0.1..4:log; may be repeated.
        trials: Number of trials; default: all points if only lists are varied, otherwise 20.
        storage: A file or database address that machines share; default: sweep.log in --out.
        leak: Messages whose leak is minimised.
        out: The folder to create or continue; default: runs/NAME-sweep next to NAME.yaml.

    Example: cutlayer sweep job.yaml --vary parties.bank.privacy.label_dp.eps=0.5,1,2
    """
    folder = out or job.parent / "runs" / f"{job.stem}-sweep"
    result = _swept(job, vary, folder, trials, storage, leak, quiet=quiet or json)
    if json:
        print_json(result.to_json())
    else:
        _show(result, folder, Console())


def _swept(
    job: Path, vary: list[str], folder: Path, trials: int | None, storage: str, leak: LeakKind, *, quiet: bool
) -> SweepResult:
    from cutlayer.config.load import load_whole_job

    load_whole_job(job)  # which says what is wrong with the file before Optuna and PyTorch are loaded
    from cutlayer.cli.progress import progress_for
    from cutlayer_sweep.search import run_sweep
    from cutlayer_sweep.space import parse_varied

    varied = [parse_varied(text) for text in vary]
    keys = keys_for(job.parent, None)
    with progress_for(quiet=quiet) as progress:
        return run_sweep(job, varied, folder, keys, progress, trials=trials, storage=storage, leak=leak)


def _show(result: SweepResult, folder: Path, console: Console) -> None:
    from cutlayer.report.terminal import print_named, rich_table
    from cutlayer_sweep.metrics import CHOICE_IS_NOT_COUNTED
    from cutlayer_sweep.page import trial_table, verdict

    console.print(Text(f"{printable(verdict(result))}.", "bold"))
    console.print(rich_table(trial_table(result)))
    if result.failed:
        console.print(Text(f"{times(len(result.failed), 'trial')} failed; the page says why.", "yellow"))
    console.print(Text(CHOICE_IS_NOT_COUNTED, "dim"))
    print_named(console, ("page", folder / "sweep.html"))
