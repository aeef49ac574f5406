"""`cutlayer trail`: what left a party, by its own record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from cutlayer.channel.kinds import meaning_of
from cutlayer.cli.app import EXIT_BAD_INPUT, app, print_result
from cutlayer.cli.verb import verb
from cutlayer.report.rounding import printable, size

if TYPE_CHECKING:
    from cutlayer.channel.trail import TrailFile, VerifiedTrail

trail = typer.Typer(no_args_is_help=True, help="Verify and show what left this party.")
app.add_typer(trail, name="trail")


@verb("verify", of=trail, consent=("path",))
def verify_(folder: Path, *, json: bool = False) -> None:
    """Compare every line with its hash; exit code 2 if a line was changed, removed or added.

    Args:
        folder: The folder of the trail, such as .cutlayer/NAME.key.trail.

    Example: cutlayer trail verify .cutlayer/telco.key.trail
    """
    record = _verified(folder)
    _end(record, json, {"lines": record.lines, "hash": record.hash, "problems": record.problems}, ())


@verb(of=trail, consent=("path",))
def show(folder: Path, *, json: bool = False) -> None:
    """Show what left this party: to whom, when, how much, and what it is; and whether the record is intact.

    Args:
        folder: The folder of the trail, such as .cutlayer/NAME.key.trail.

    Example: cutlayer trail show .cutlayer/telco.key.trail
    """
    record = _verified(folder)
    document = {"problems": record.problems, "starts": [_as_json(file) for file in record.files]}
    _end(record, json, document, _pages(record.files))


def _end(record: VerifiedTrail, as_json: bool, document: dict[str, Any], pages: Iterable[str]) -> NoReturn:
    """Print what a record says, and last whether it is intact, and exit: with 2 where it is not."""
    print_result(as_json, {"intact": not record.problems, **document}, *_shown([*pages, *_verdict(record)]))
    raise typer.Exit(EXIT_BAD_INPUT if record.problems else 0)


def _verified(folder: Path) -> VerifiedTrail:
    """What the trail in a folder says, which may come from somebody else."""
    from cutlayer.channel.trail import verify_trail
    from cutlayer.consent import check_files

    check_files(folder)
    return verify_trail(folder)


def _pages(files: Sequence[TrailFile]) -> Iterator[str]:
    """A page for each start; what is as at the start before is not written out again."""
    before: list[str] | None = None
    for file in files:
        promised = [*_promised(file.about)]
        yield from _page(file, promised if promised != before else ["guarantees and limits: as above"])
        before = promised


def _promised(about: Mapping[str, Any]) -> Iterator[str]:
    for statement in about.get("ledger") or ["no protection of this party has a formal guarantee here"]:
        yield f"guarantee: {statement}"
    if limits := about.get("limits"):
        yield f"fit.limits: {', '.join(map(str, limits))}"


def _page(file: TrailFile, promised: Iterable[str]) -> Iterator[str]:
    about = file.about
    yield f"{about.get('party')}: {file.first} to {file.last} ({file.name})"
    yield f"  job {about.get('job')}, digest {about.get('digest')}, run {about.get('run')}"
    yield f"  identity {about.get('identity') or 'none: links without certificates, on one machine'}"
    yield from (f"  {line}" for line in promised)
    for record in about.get("approvals", []):
        yield f"  approval: {record}"
    by_receiver: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for (receiver, kind), (count, octets) in file.sent.items():
        by_receiver[receiver].append((kind, count, octets))
    for receiver, entries in by_receiver.items():
        yield f"  to {receiver}:"
        for kind, count, octets in entries:
            yield f"    {count:>9,} x {kind:<10} {size(octets):>8}  {meaning_of(kind)}"
    if file.incomplete:
        yield "  the last line was cut off when the process or the machine went down"
    yield ""


def _verdict(record: VerifiedTrail) -> Iterator[str]:
    for problem in record.problems:
        yield f"changed: {problem}"
    state = "was changed" if record.problems else "is intact"
    starts = "start" if len(record.files) == 1 else "starts"
    yield f"the record {state}: {record.lines:,} lines of {len(record.files):,} {starts}, last hash {record.hash}"


def _as_json(file: TrailFile) -> dict[str, object]:
    sent = [
        {"to": receiver, "kind": kind, "messages": count, "bytes": octets}
        for (receiver, kind), (count, octets) in file.sent.items()
    ]
    return {**file._asdict(), "sent": sent}


def _shown(lines: Iterable[str]) -> Iterator[str]:
    """Each on one line, also with a line break in an entry: another party names runs, and anyone can write a trail."""
    return ("\ufffd".join(printable(line).splitlines()) for line in lines)
