"""`cutlayer compare`: protections of a job side by side, with the same seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from cutlayer.cli.app import print_json
from cutlayer.cli.verb import consenting
from cutlayer.report.rounding import printable
from cutlayer_sweep.leak_kind import LeakKind

if TYPE_CHECKING:
    from cutlayer_sweep.compare.result import Comparison


@consenting("host", "model", "path")
def compare(
    job: Path,
    *,
    protect: list[str],
    seeds: int = 5,
    leak: LeakKind = LeakKind.ALL,
    out: Path | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Train a job under several protections with the same seeds: differences, verdicts, tables and a figure.

    The same command continues; with more seeds or settings it trains what is new.

    Args:
        protect: labels, columns, both, proof or nothing, as `init` writes them; 'as configured', an alternative of the
            job; or protections: "label_dp eps=1 + max_norm".
        seeds: Number of seeds, from that of the job upwards.
        leak: Messages whose leak is compared.
        out: The folder to create or continue; default: runs/NAME-compare next to NAME.yaml.

    Example: cutlayer compare job.yaml --protect both --protect labels --protect "label_dp eps=1" --seeds 5
    """
    folder = out or job.parent / "runs" / f"{job.stem}-compare"
    result = _compared(job, protect, seeds, folder, leak, quiet=quiet or json)
    if json:
        print_json(result.to_json())
    else:
        _show(result, folder, Console())


def _compared(job: Path, protect: list[str], seeds: int, folder: Path, leak: LeakKind, *, quiet: bool) -> Comparison:
    from cutlayer.config.load import load_whole_job

    load_whole_job(job)  # which says what is wrong with the file before PyTorch is loaded
    from cutlayer.cli.progress import progress_for
    from cutlayer_sweep.compare import compare as compared

    with progress_for(quiet=quiet) as progress:
        return compared(job, protect, seeds=seeds, out=folder, leak=leak, progress=progress)


def _show(result: Comparison, folder: Path, console: Console) -> None:
    from cutlayer.report.terminal import print_named, rich_table
    from cutlayer_sweep.compare.result import RULES
    from cutlayer_sweep.metrics import CHOICE_IS_NOT_COUNTED

    for sentence in result.verdicts:
        console.print(Text(f"{printable(sentence)}.", "bold"))
    for each in (result.settings_table, result.differences_table):
        console.print(rich_table(each))
    for name, reason in result.failed.items():
        console.print(Text(f"{printable(name)} failed: {printable(reason)}", "yellow"))
    console.print(Text(f"{RULES} {CHOICE_IS_NOT_COUNTED}", "dim"))
    print_named(console, ("files", f"{folder / 'compare'}.md, .csv, .tex, .svg, .pdf, .json"))
