"""Outcome of a run between organisations for a passive party: its releases, their price, and its own audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutlayer.cli.app import emit, say
from cutlayer.report.rounding import metric
from cutlayer.results.metric_names import name_of

if TYPE_CHECKING:
    from cutlayer.results.audit import PassiveAudit
    from cutlayer.training.folder import RunFolder


def show_outcome(ran: RunFolder, *, as_json: bool = False, trail: Path | None = None) -> None:
    """Show what a passive party did, what it cost, and what it measured of its own features.

    Args:
        ran: The party's run folder.
        as_json: Whether to print JSON.
        trail: Folder of the record of what left the party, where it is known.

    Raises:
        RunFolderError: A file of the folder is missing or damaged.
    """
    from cutlayer.results.audit import UNMEASURED_BY_PASSIVE, PassiveAudit

    outcome = ran.read_json("outcome.json")
    audit = PassiveAudit.read(ran.path / "audit.json")
    if as_json:
        emit({**outcome, **audit.model_dump(mode="json")})
        return
    lines = [f"{outcome['party']}: {outcome['epochs']} epochs, run folder {ran.path}"]
    lines += (f"  {line}" for line in _rows(outcome.get("rows"), outcome["party"]))
    lines += (f"  {line}" for line in _measured(outcome, audit))
    lines.append(f"  {UNMEASURED_BY_PASSIVE}")
    lines += (f"  {line}" for line in _cost(ran, outcome["party"]))
    if trail is not None:
        lines.append(f"  every message that left: cutlayer trail show {trail}")
    say(*lines)


def _rows(rows: Mapping[str, Any] | None, party: str) -> Iterator[str]:
    """Rows that took no part, by the reason; nothing of a run that has no record of them."""
    if rows is None:
        return
    for reason, count in rows["left_out"].items():
        yield f"{count:,} rows of the file of {party} were left out, {reason}"
    if missing := rows["table"] - rows["run"]:
        yield f"{missing:,} of the {rows['table']:,} rows of {party} are no common rows: left out"


def _measured(outcome: Mapping[str, Any], audit: PassiveAudit) -> Iterator[str]:
    for item in outcome["evidence"]:
        yield f"{item['protection']}: {item['changed']} of {item['sent']} {item['unit']} changed"
    for alarm in outcome.get("alarms", ()):
        when = f"epoch {alarm['epoch'] + 1}, step {alarm['step'] + 1}"
        yield f"alarm about {alarm['peer']} in {when}: {alarm['detail']}"
    for result in audit.features:
        attack = f"{result.attack} {result.column}".strip()
        value = f"{name_of(result.metric)} {metric(result.value)}, without embedding {metric(result.baseline)}"
        yield f"{attack}, {result.release}: {value}"
    for skipped in audit.skipped:
        yield f"{skipped.label}: {skipped.reason}"
    if not (audit.features or audit.skipped):
        yield "own columns: not attacked; `audit: {attacks: [inversion]}` in the private file does it in the next run"


def _cost(ran: RunFolder, party: str) -> Iterator[str]:
    """The ledger's totals; nothing where the folder has none."""
    from cutlayer.accounting import Ledger

    if not (ran.path / "ledger.json").exists():
        return
    totals = Ledger.from_json(ran.read_json("ledger.json")).totals
    for total in totals:
        yield f"guarantee: {total.statement}"
    if not totals:
        yield f"guarantee: none; nothing protects the features of {party}"
