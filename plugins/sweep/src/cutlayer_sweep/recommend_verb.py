"""`cutlayer recommend`: which protection of labels and columns, and how strong, within limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from cutlayer.cli.app import print_json
from cutlayer.cli.run import keys_for
from cutlayer.cli.verb import consenting
from cutlayer.report.rounding import count, printable, seconds

if TYPE_CHECKING:
    from cutlayer_sweep.recommend import Recommendation


@consenting("host", "model", "path")
def recommend(
    job: Path,
    *,
    max_leak: float | None = None,
    max_excess: float | None = None,
    max_rebuilt: float | None = None,
    max_loss: float = 0.01,
    guarantee: str | None = None,
    seeds: int = 5,
    storage: str = "",
    out: Path | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Find a protection of labels and columns within limits; the same command continues an interrupted search.

    Exit code 4 means that nothing meets the limits.

    Args:
        max_leak: Largest leak of the strongest attack: max(AUC, 1 - AUC), of a regression of the concordance.
        max_excess: In place of --max-leak: largest leak minus what the party's own columns reveal.
        max_rebuilt: Largest share of a partner's columns that an attack rebuilds: R², or values read exactly, 0 to 1.
        max_loss: Largest loss of the test metric against the job without protection.
        guarantee: eps=NUMBER: only protections with a label epsilon of at most this.
        seeds: Number of fresh seeds of the final check.
        storage: A file or database that machines share; default: recommend.log in --out.
        out: The folder to create or continue; default: runs/NAME-recommend next to NAME.yaml.

    Example: cutlayer recommend job.yaml --max-excess 0.02 --max-loss 0.01 --guarantee eps=2
    """
    from cutlayer.config.load import load_whole_job
    from cutlayer.errors import LimitsNotMet

    load_whole_job(job)  # which says what is wrong with the file before Optuna and PyTorch are loaded
    from cutlayer.cli.progress import progress_for
    from cutlayer_sweep.recommend import Limits, SearchRequest, parse_guarantee, recommended_diff, verdict
    from cutlayer_sweep.recommend import recommend as search

    limits = Limits(max_leak, max_excess, max_loss, parse_guarantee(guarantee), max_rebuilt)
    request = SearchRequest(job, limits, out or job.parent / "runs" / f"{job.stem}-recommend", storage, seeds)
    keys = keys_for(job.parent, None)
    with progress_for(quiet=quiet or json) as progress:
        result = search(request, keys, progress)
        diff = recommended_diff(result, job, request.out)
    if json:
        print_json({**result.to_json(), "verdict": verdict(result), "diff": diff})
    else:
        _show(result, diff, request.out, Console())
    if result.chosen is None:
        raise typer.Exit(LimitsNotMet.exit_code)


def _show(result: Recommendation, diff: str, folder: Path, console: Console) -> None:
    from cutlayer.report.terminal import print_named, rich_table
    from cutlayer_sweep.metrics import CHOICE_IS_NOT_COUNTED
    from cutlayer_sweep.recommend import check_table, front_table, verdict
    from cutlayer_sweep.recommend.result import names_by_reason
    from cutlayer_sweep.recommend.wording import lowest_columns

    console.print(Text(f"{printable(verdict(result))}.", "bold"))
    if below := lowest_columns(result):
        console.print(Text(f"{printable(below)}.", "yellow"))
    console.print(Text("\nLast rung: full length, the job's seed, on the rows that the epoch is chosen by", "dim"))
    console.print(rich_table(front_table(result)))
    console.print(Text("Trained again with fresh seeds, on test rows", "dim"))
    console.print(rich_table(check_table(result)))
    for statement in result.statements.get(result.best or "", ()):
        console.print(Text(f"{printable(statement)}"))
    if left_out := names_by_reason(result.left_out):
        console.print(Text(f"Not tried: {printable(left_out)}", "dim"))
    price = f"{count(result.trainings)} trainings of {count(result.epochs)} epochs in all, {seconds(result.seconds)}"
    console.print(Text(f"Price of this search: {price}. {CHOICE_IS_NOT_COUNTED}", "dim"))
    if diff:
        nearest = "" if result.chosen is not None else " of the nearest protection, which is not within the limits"
        console.print(Text(f"\nChanges{nearest}:"))
        for line in diff.splitlines():
            style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
            console.print(Text(printable(line), style), soft_wrap=True)
        advice = "Put them into the job file: a job in another folder has another secret and ledger."
        console.print(Text(f"\n{advice}\n", "dim"))
    elif result.best is not None:
        console.print(Text("\nThe job file states this protection already: nothing to change.\n"))
    print_named(console, ("job file", folder / "recommended.yaml"))
