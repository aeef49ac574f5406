"""`cutlayer check`: validate a job and forecast what it costs, without training."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from cutlayer.cli.app import Json, app, emit
from cutlayer.cli.run import JobFile
from cutlayer.config.load import load_job
from cutlayer.runs.forecast import Forecast, forecast


@app.command()
def check(job: JobFile, json: Json = False) -> None:
    """Validate everything without training; forecast bytes, memory and time."""
    found = forecast(load_job(job))
    if json:
        emit(asdict(found))
        return
    _show(found, Console())


def _show(found: Forecast, console: Console) -> None:
    console.print(
        f"[green]ok[/]  {found.rows:,} common rows: {found.train:,} train, {found.validation:,} validation, "
        f"{found.test:,} test; {found.steps_per_epoch:,} steps an epoch, {found.epochs} epochs at most"
    )
    heads = ("party", "role", "own rows", "columns", "cut width", "parameters", "sent per epoch", "store")
    table = Table(*heads, box=None)
    for party in found.parties:
        table.add_row(
            party.name,
            party.role,
            f"{party.rows:,}",
            f"{party.categorical} + {party.numeric}",
            str(party.width or "-"),
            f"{party.parameters:,}",
            f"{party.bytes_per_epoch / 1e6:.1f} MB",
            f"{party.store_bytes / 1e6:.1f} MB",
        )
    console.print(table)
    console.print(
        f"memory about {found.memory_bytes / 1e9:.2f} GB; about {found.seconds_per_epoch:.1f} s an epoch on "
        f"{found.threads} thread(s), timed on three steps; transcript up to {found.transcript_bytes / 1e6:.0f} MB"
    )
    for line in found.guarantees:
        console.print(f"  {line}", highlight=False)
