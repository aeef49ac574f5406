"""`cutlayer trail`: what left a party, by its own record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cutlayer.channel.message import Kind
from cutlayer.channel.trail import TrailFile, Verified, verify
from cutlayer.cli.app import BAD_INPUT, Json, app, emit
from cutlayer.report.rounding import plain, size

trail = typer.Typer(no_args_is_help=True, help="Verify and show what left this party.")
app.add_typer(trail, name="trail")

Folder = Annotated[
    Path, typer.Argument(help="The folder of the trail, such as .cutlayer/NAME.key.trail.", show_default=False)
]

MEANINGS: Mapping[Kind, str] = {
    Kind.HELLO: "digest of the job, versions, and the number of rows of the table",
    Kind.ALIGN: "the beginning of a private set intersection: no ids",
    Kind.MASKED: "own ids, masked by a secret key: not readable without it",
    Kind.REMASKED: "the other party's masked ids, masked once more",
    Kind.COMMON: "how many rows are common",
    Kind.PROOF: "a proof that both sides have the same common rows",
    Kind.IDS: "digests of row ids: an id that can be guessed can be recognised",
    Kind.ORDER: "which rows of the other party are common, and their order",
    Kind.READY: "a digest of the order of the rows, and the width of the embedding",
    Kind.EMBEDDING: "numbers computed from the columns of training rows",
    Kind.GRADIENT: "numbers computed from labels and embeddings of training rows",
    Kind.REQUEST: "a request for a batch of rows",
    Kind.EVALUATION: "numbers computed from the columns of held-out rows",
    Kind.RELEASE: "numbers computed from the columns of rows, released once",
    Kind.EPOCH_END: "whether training goes on, and whether the epoch was the best",
    Kind.COMMITTED: "that a checkpoint was saved here",
    Kind.EVIDENCE: "what this party's protections covered",
    Kind.CLOSE: "the end of the link, and its reason",
    Kind.OFFER: "which model predicts, and the width of its embeddings",
    Kind.LOOKUP: "digests of the ids that are asked about",
    Kind.LOOKED_UP: "numbers computed from the columns of rows that were asked about",
    Kind.PROBE: "a question whether the other party answers",
    Kind.ALIVE: "the answer to that question",
}
"""What each kind of message is, for a reader who does not know the protocol."""


@trail.command(name="verify")
def verify_(folder: Folder, json: Json = False) -> None:
    """Compare every line with its hash; exit code 2 if a line was changed, removed or added."""
    found = verify(folder)
    if json:
        emit({"intact": not found.problems, "lines": found.lines, "hash": found.hash, "problems": list(found.problems)})
    else:
        _print(_verdict(found))
    raise typer.Exit(BAD_INPUT if found.problems else 0)


@trail.command()
def show(folder: Folder, json: Json = False) -> None:
    """Show what left this party: to whom, when, how much, and what it is; and whether the record is intact."""
    found = verify(folder)
    if json:
        emit(
            {"intact": not found.problems, "problems": list(found.problems), "starts": [_plain(f) for f in found.files]}
        )
    else:
        for file in found.files:
            _print(_page(file))
        _print(_verdict(found))
    raise typer.Exit(BAD_INPUT if found.problems else 0)


def _page(file: TrailFile) -> Iterator[str]:
    about = file.about
    yield f"{about.get('party')}: {file.first} to {file.last} ({file.name})"
    yield f"  job {about.get('job')}, digest {about.get('digest')}, run {about.get('run')}"
    yield f"  identity {about.get('identity') or 'none: links without certificates, on one machine'}"
    for statement in about.get("ledger") or ["no protection of this party has a formal guarantee here"]:
        yield f"  guarantee: {statement}"
    by_receiver: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for (receiver, kind), (count, octets) in file.sent.items():
        by_receiver[receiver].append((kind, count, octets))
    for receiver, entries in by_receiver.items():
        yield f"  to {receiver}:"
        for kind, count, octets in entries:
            meaning = MEANINGS[Kind(kind)] if kind in {each.value for each in Kind} else "unknown to this version"
            yield f"    {count:>9,} x {kind:<10} {size(octets):>8}  {meaning}"
    if file.incomplete:
        yield "  the last line was cut off when the process or the machine went down"
    yield ""


def _verdict(found: Verified) -> Iterator[str]:
    for problem in found.problems:
        yield f"changed: {problem}"
    state = "was changed" if found.problems else "is intact"
    starts = "start" if len(found.files) == 1 else "starts"
    yield f"the record {state}: {found.lines:,} lines of {len(found.files):,} {starts}, last hash {found.hash}"


def _plain(file: TrailFile) -> dict[str, object]:
    sent = [
        {"to": receiver, "kind": kind, "messages": count, "bytes": octets}
        for (receiver, kind), (count, octets) in file.sent.items()
    ]
    return {**asdict(file), "sent": sent}


def _print(lines: Iterator[str]) -> None:
    console = Console()
    for line in lines:
        console.print(plain(line), soft_wrap=True, highlight=False, markup=False)
