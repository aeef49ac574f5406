"""`cutlayer check`: validate a job and forecast what it costs, without training."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from cutlayer.cli.app import Json, app, emit
from cutlayer.cli.run import AllowModel, JobFile
from cutlayer.config.load import load_job
from cutlayer.jobs.forecast import Forecast, forecast
from cutlayer.models import allowed_models


@app.command()
def check(job: JobFile, allow_model: AllowModel = None, json: Json = False) -> None:
    """Validate everything without training; forecast bytes, memory, time and what the run costs in privacy."""
    with allowed_models(*allow_model or ()):
        found = forecast(load_job(job))
    if json:
        emit(asdict(found))
        return
    _show(found, Console())


def _show(found: Forecast, console: Console) -> None:
    out = Table.grid(padding=(0, 2, 0, 0))
    held_out = f"{found.validation:,} validation, {found.test:,} test"
    out.add_row("[green]ok[/]", f"{found.rows:,} common rows: {found.train:,} train, {held_out}")
    out.add_row("", f"{found.steps_per_epoch:,} steps an epoch, {found.epochs:,} epochs at most")
    if found.warmup_epochs:
        sent = ", ".join(f"{party.name} sends {size(party.bytes_warmup)}" for party in found.parties)
        epochs = "the first epoch" if found.warmup_epochs == 1 else f"the first {found.warmup_epochs} epochs"
        out.add_row("warm-up", f"{epochs}; in each {sent}")
    for where, path in found.imports.items():
        out.add_row("imports", f"{path} for {where}")
    seconds = f"{found.seconds_per_epoch:,.{0 if found.seconds_per_epoch >= 10 else 2}f} s an epoch"
    out.add_row("time", f"{seconds}, by three steps timed on {found.threads} thread{'s' * (found.threads != 1)}")
    out.add_row("memory", f"about {size(found.memory_bytes)} at most, with the libraries")
    out.add_row("recorded", f"{size(found.transcript_bytes)} of transcript at most")
    for line in found.guarantees:
        name, _, statement = line.partition(": ")
        out.add_row(name, statement)
    for total in found.totals:
        out.add_row("in total", total.statement)
    console.print(out, highlight=False)
    console.print()
    console.print(_parties(found))


def _parties(found: Forecast) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("party", max_width=16, overflow="ellipsis", no_wrap=True)
    table.add_column("role", no_wrap=True)
    for head in ("rows", "cat.", "num.", "cut", "weights", "sent/epoch", "on disk"):
        table.add_column(head, justify="right", no_wrap=True)
    for party in found.parties:
        table.add_row(
            party.name,
            party.role,
            f"{party.rows:,}",
            str(party.categorical),
            str(party.numeric),
            str(party.width or "-"),
            f"{party.parameters:,}",
            f"{size(party.bytes_once)} once" if party.bytes_once else size(party.bytes_per_epoch),
            size(party.store_bytes),
        )
    return table


def size(count: int) -> str:
    """Bytes as people read them.

    >>> size(0), size(9_600), size(10_002_944)
    ('0 B', '9.6 kB', '10.0 MB')
    """
    amount, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
