"""`cutlayer check`: validate a job and forecast what it costs, without training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cutlayer.cli.app import print_json
from cutlayer.cli.run import keys_for
from cutlayer.cli.verb import verb
from cutlayer.report.rounding import printable, size, times

if TYPE_CHECKING:
    from cutlayer.consent import Reach
    from cutlayer.jobs.forecast import Forecast


MAX_COLUMNS = 40
"""Columns of a party that a terminal shows; `--json` has all."""


@verb(consent=("host", "model", "path"))
def check(
    job: Path, *, name: str | None = None, local: Path | None = None, device: str | None = None, json: bool = False
) -> None:
    """Validate a job and its tables without training; forecast bytes, memory, time and privacy cost.

    Args:
        name: Check the half of this party alone, with --local.
        local: The private file of the party of --as.

    Example: cutlayer check job.yaml --as telco --local telco.yaml
    """
    if name is not None or local is not None:
        raise typer.Exit(_check_own_part(job, name, local, device, as_json=json))
    from cutlayer.config.lines import locating_errors
    from cutlayer.config.load import load_whole_job, with_device
    from cutlayer.config.reaches import reaches
    from cutlayer.consent import is_in

    loaded = with_device(load_whole_job(job), device)
    from cutlayer.jobs.forecast import forecast

    with locating_errors(job):
        result = forecast(loaded, keys_for(job.parent, None).folder)
    outside = [reach for reach in reaches(loaded) if not is_in(job.parent, reach)]
    if json:
        print_json(result.model_dump(mode="json") | {"outside": [f"{reach.where} {reach.act}" for reach in outside]})
        return
    console = Console()
    grid = Table.grid(padding=(0, 2, 0, 0))
    for title, text in _lines(result, outside):
        grid.add_row(printable(title), printable(text))  # names of columns and classes, from any table
    console.print(grid, highlight=False)
    console.print()
    console.print(_parties(result))
    console.print()
    console.print(_columns(result))


def _check_own_part(job: Path, name: str | None, local: Path | None, device: str | None, *, as_json: bool) -> int:
    """Check one party's own part, from its private file; returns the exit code."""
    from cutlayer.cli.party import show_checks
    from cutlayer.config.lines import with_lines
    from cutlayer.config.load import load_closed_job, load_private_part, with_device, with_private_part
    from cutlayer.errors import ConfigError

    if name is None or local is None:
        raise ConfigError.expected("--as and --local together", "--as alone" if local is None else "--local alone")
    private = load_private_part(local)
    part = with_device(with_private_part(load_closed_job(job), name, private), device, name)
    from cutlayer.consent import allowed
    from cutlayer.jobs.preflight import check_own_part

    with allowed(*private.allow_models):
        checks = check_own_part(part, name)
    located = [replace(check, problem=with_lines(check.problem, job, local)) for check in checks]
    return show_checks(located, as_json=as_json)


def _lines(result: Forecast, outside: Sequence[Reach]) -> Iterator[tuple[str, str]]:
    from cutlayer.accounting.wording import with_bound
    from cutlayer.data.classes import class_listing

    held_out = f"{result.validation:,} validation, {result.test:,} test"
    active = next(party for party in result.parties if party.role == "active")
    of_all = f"rows of {active.name}, {result.common:,} with every party"
    which = "common rows" if result.rows == result.common else of_all
    yield "[green]ok[/]", f"{result.rows:,} {which}: {result.train:,} train, {held_out}"
    if result.rows < active.rows:
        left_out = f"{active.rows - result.rows:,} of the {active.rows:,} rows of {active.name} are left out"
        yield "rows", f"{left_out}; rows: all would take them" if result.fits_top else left_out
    for party, count in result.lacking.items():
        if count and (count > active.rows - result.rows or len(result.lacking) > 1):
            yield "", f"{count:,} of these {active.rows:,} rows are not at {party}"
    yield from _identified(result)
    if not result.fits_top:
        yield "", f"{result.steps_per_epoch:,} steps an epoch, {result.epochs:,} epochs at most"
    if result.warmup_epochs:
        sent = ", ".join(f"{party.name} sends {size(party.bytes_warmup)}" for party in result.parties)
        epochs = "the first epoch" if result.warmup_epochs == 1 else f"the first {result.warmup_epochs} epochs"
        yield "warm-up", f"{epochs}; in each {sent}"
    for where, path in result.imports.items():
        yield "imports", f"{path} for {where}"
    for reach in outside:
        yield "outside", f"{reach.where} {reach.act}"
    for column in result.columns:
        if column.classes and column.distinct is not None:
            title, classes = class_listing(column.classes, column.distinct, column.positive)
            yield title, escape(classes)
    seconds = f"{result.seconds_per_epoch:,.{0 if result.seconds_per_epoch >= 10 else 2}f} s an epoch"
    if result.fits_top:
        once = f"{result.seconds_per_epoch:,.{0 if result.seconds_per_epoch >= 10 else 1}f}"
        yield "time", f"about {once} s for the model, which is fitted at once; audit and references take more"
    else:
        yield "time", f"{seconds}, by three steps timed on {times(result.threads, 'thread')}"
    yield "trains on", f"{', '.join(dict.fromkeys(result.devices.values()))}, {result.precision}"
    yield "memory", f"about {size(result.memory_bytes)} at most, with the libraries"
    yield "recorded", f"{size(result.transcript_bytes)} of transcript at most"
    for line in result.guarantees:
        name, _, statement = line.partition(": ")
        yield name, statement
    for party, read in result.readable.items():
        yield f"columns of {party}", read
    for line in result.notes:
        name, _, note = line.partition(": ")
        yield f"[yellow]note[/] {name}", note
    for line in result.warnings:
        name, _, warning = line.partition(": ")
        yield f"[yellow]warning[/] {escape(name)}", escape(warning)
    for total in result.totals:
        yield "in total", with_bound(total)
    for total in result.all_runs:
        yield "all runs", total.statement


def _identified(result: Forecast) -> Iterator[tuple[str, str]]:
    """Rows that are left out of each table, and what several keys match."""
    for party in result.parties:
        for reason, count in party.left_out.items():
            yield "left out", f"{count:,} rows of the file of {party.name}, {reason}"
    for found in result.keys:
        names = [" and ".join(key) for key in found.keys]
        counts = ", ".join(f"{count:,} by {name}" for name, count in zip(names, found.matched, strict=True))
        yield "keys", f"{sum(found.matched):,} rows matched with {found.party}: {counts}"
        for name, count in found.conflicts.items():
            if count:
                other = f"{count:,} rows of {name} with two different rows of the other party"
                yield "", f"two keys would match {other}; the first key that matches decides"
    for party in result.parties:
        for number, count in enumerate(party.repeated_keys, 1):
            if count:
                shared = f"{count:,} rows of {party.name} share key {number} with other rows"
                yield "", f"{shared}: it identifies none of them"


def _table(texts: Mapping[str, int], numbers: Sequence[str]) -> Table:
    """A table of columns of text, each with its largest width, and columns of numbers."""
    # Without lines around it the table leaves room for large numbers in 80 columns.
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for head, width in texts.items():
        table.add_column(head, max_width=width, overflow="ellipsis", no_wrap=True)
    for head in numbers:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _parties(result: Forecast) -> Table:
    numbers = ("rows", "cat.", "num.", "model", "cut", "weights", "sent/epoch", "on disk")
    table = _table({"party": 16, "role": 8}, numbers)
    # Of the table as it is: the quantiles of a number are one more encoded input, and no column.
    categories = Counter(each.party for each in result.columns if (each.role, each.kind) == ("feature", "category"))
    for party in result.parties:
        sent = f"{size(party.bytes_once)} once" if party.bytes_once else size(party.bytes_per_epoch)
        columns = (str(categories[party.name]), str(party.numeric))
        model = (party.bottom or "-", str(party.width or "-"), f"{party.parameters:,}")
        table.add_row(party.name, party.role, f"{party.rows:,}", *columns, *model, sent, size(party.store_bytes))
    return table


def _columns(result: Forecast) -> Table:
    """Types of the columns; of a wide table those of the first columns, and of those with a warning."""
    table = _table({"party": 16, "column": 28, "type": 14, "taken for": 14}, ("values", "missing"))
    seen, left_out = Counter[str](), Counter[str]()
    for column in result.columns:
        seen[column.party] += 1
        if seen[column.party] <= MAX_COLUMNS or column.notes or column.role == "label":
            kind = "label" if column.role == "label" else column.kind
            distinct = "-" if column.distinct is None else f"{column.distinct:,}"
            table.add_row(
                column.party, escape(printable(column.name)), column.type, kind, distinct, f"{column.missing:,}"
            )
        else:
            left_out[column.party] += 1
    for party, count in left_out.items():
        table.add_row(party, f"and {count:,} more: --json", "", "", "", "")
    return table
