"""`cutlayer align`: find the rows that all parties have, without a training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cutlayer.cli.app import print_result
from cutlayer.cli.exchange import EXIT_WAITING, print_waiting
from cutlayer.cli.organisation import load_party
from cutlayer.cli.run import keys_for
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.alignment.intersection import Purpose
    from cutlayer.jobs.align import AlignmentResult


class Reveal(StrEnum):
    """Who learns the common rows."""

    BOTH = "both"
    ACTIVE = "active"


@verb()
def align(
    job: Path,
    *,
    name: str,
    local: Path,
    dry_run: bool = False,
    reveal: Reveal | None = None,
    out: Path | None = None,
    timeout: float = 300.0,
    deadline: float = 3600.0,
    reconnect: float | None = None,
    plaintext: bool = False,
    exchange: Path | None = None,
    wait: float = 0.0,
    json: bool = False,
) -> None:
    """Find the rows that all parties have by private set intersection, without training; all parties run it.

    Args:
        dry_run: Find only how many rows are common, and write no file.
        reveal: Who learns the common rows; all parties must give the same value. Default: both.
        out: The CSV file to write; default: runs/JOB-NAME-aligned.csv next to the private file.
        exchange: Exchange files in this folder in place of connections; run it again for each.
        wait: With --exchange: seconds to wait for each file.

    Example: cutlayer align job.yaml --as telco --local telco.yaml --dry-run
    """
    setup = load_party(job, name, local, plaintext=plaintext, timeout=timeout, deadline=deadline, reconnect=reconnect)
    from cutlayer.cli.progress import progress_for
    from cutlayer.jobs.align import align_party
    from cutlayer.jobs.exchange import WaitingForFile

    file = out or setup.base.with_name(f"{setup.base.name}-aligned.csv")
    purpose = purpose_of(dry_run, reveal)
    secret = keys_for(local.parent, None).secret_of(name, setup.private)
    with progress_for(quiet=json) as progress:
        try:
            result = align_party(setup.job, name, file, purpose, progress, setup.links, exchange, wait, secret)
        except WaitingForFile as waiting:
            print_waiting(waiting, as_json=json)
            raise typer.Exit(EXIT_WAITING) from None
    document = {**asdict(result), "out": str(result.out) if result.out else None, "next": None}
    print_result(json, document, *_lines(result))


def purpose_of(dry_run: bool, reveal: Reveal | None) -> Purpose:
    """The purpose that the options name.

    Raises:
        ConfigError: A dry run reveals rows to nobody.
    """
    from cutlayer.alignment.intersection import Purpose

    if dry_run and reveal is not None:
        raise ConfigError.expected("no --reveal with --dry-run, which reveals numbers alone", reveal.value)
    if dry_run:
        return Purpose.SIZE
    return Purpose.ALIGN_ACTIVE if reveal is Reveal.ACTIVE else Purpose.ALIGN


def _lines(result: AlignmentResult) -> Iterator[str]:
    for reason, count in result.left_out.items():
        yield f"{count:,} rows of the file of {result.party} are left out, {reason}"
    for number, count in enumerate(result.repeated, 1):
        if count:
            yield f"{count:,} rows of {result.party} share key {number} with other rows: it identifies none of them"
    for peer, count in result.shared.items():
        yield f"{count:,} of {result.rows:,} rows of {result.party} are common with {peer}"
        if counts := result.by_key.get(peer):
            yield "  matched " + ", ".join(f"{matched:,} by key {number}" for number, matched in enumerate(counts, 1))
        if conflicts := result.conflicts.get(peer):
            yield f"  two keys would match {conflicts:,} with different rows of {peer}; the first that matches decides"
    if result.common is not None and len(result.shared) > 1:
        yield f"{result.common:,} with all"
    if result.common is None and not result.shared:
        yield f"{result.party}: done; the active party alone learned the common rows"
    if result.out is not None:
        yield f"rows and ids: {result.out}"
