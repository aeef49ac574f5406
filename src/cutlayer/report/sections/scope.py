"""Scope of an audit: its attacks, and the limits of its measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cutlayer.attacks import REGISTRY
from cutlayer.attacks.knowledge import in_words
from cutlayer.report.rounding import times
from cutlayer.report.section import Answer, Column, Fold, table
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind


def attack_glossary(names: Iterable[str]) -> tuple[Fold, ...]:
    """Table of each attack's method and knowledge, folded; empty if none of them is known here.

    Args:
        names: Names of attacks; one may repeat.
    """
    known = [(name, REGISTRY[name]) for name in dict.fromkeys(names) if name in REGISTRY]
    if not known:
        return ()
    rows = table(
        "The attacks by name",
        known,
        ("Attack", lambda entry: entry[0]),
        (Column("What it does", "text"), lambda entry: entry[1].purpose()),
        (
            Column("What the attacker knows", "text"),
            lambda entry: "; ".join(sorted(in_words(entry[1].needs))) or "only messages",
        ),
        (Column("Source", "text"), lambda entry: entry[1].reference),
        layout="stack",
    )
    return (Fold("What each attack does", (rows,)),)


def untried_threats(report: Report) -> list[str]:
    """The threats that no attack of this run's audit was for."""
    attacked = {result.party for result in report.features if result.run == RunKind.THIS_RUN}
    missing = [name for name in report.passives if name not in attacked]
    parts = [f"reconstruction of the columns of {', '.join(missing)}"] if missing else []
    if not any(result.run == RunKind.THIS_RUN for result in report.completions):
        parts.append("model completion by a departed party")
    known = {baseline.party for baseline in report.baselines if baseline.own_columns is not None}
    sent = {leak.party for leak in report.leaks if leak.attack == "sent_labels" and leak.run == RunKind.THIS_RUN}
    stands = "drawn labels joined with the columns of {} themselves, for which its grades stand"
    parts += [stands.format(name) for name in sorted(sent - known)]
    return [*parts, *_collusion(report)]


def _collusion(report: Report) -> Iterator[str]:
    """Risks from colluding parties that no attack measured."""
    if len(report.passives) < 2:
        yield "collusion of passive parties, of which this run has one"
        return
    if not any(leak.together for leak in report.leaks if leak.run == RunKind.THIS_RUN):
        yield "label inference by passive parties that pool what they hold"
    results = [result for result in report.features if result.run == RunKind.THIS_RUN]
    pooled = {result.party for result in results if result.pooled is not None}
    if alone := [name for name in report.passives if name not in pooled]:
        yield f"inference of the columns of {', '.join(alone)} by parties that collude"


def unmeasured_answer(report: Report) -> Answer:
    """Attacks that the audit of this run did not try, so that their absence is not read as safety."""
    parts = untried_threats(report)
    if report.left_out:
        parts.append(f"{times(len(report.left_out), 'attack')} of the default catalogue")
    if report.limits:
        were = "was" if len(report.limits) == 1 else "were"
        parts.append(f"{times(len(report.limits), 'attack')} that could not be run or {were} not needed (see Leaks)")
    named = f"{'; '.join(parts)}, and " if parts else ""
    text = f"{named}attacks that are not known today."
    return Answer("Not measured", f"{text[0].upper()}{text[1:]}")
