"""The index of all studies' pages: what each source claims, what was found, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from cutlayer.storage.durable import write_whole
from studies.claims import LEVEL, MAX_STUDY_SEEDS, MIN_SPREAD_SEEDS, RULES, Claim, Kind, counted
from studies.page import Table, folded, wrapped
from studies.record import Record
from studies.registry import STUDIES
from studies.results import Results
from studies.trials import Study

_BEYOND = (
    "- *Adaptive leaks.* A defence of labels is published with the attack that it hides from. "
    "[Attacks that read the whole run](adaptive-audit.md) read every label of the published forms of Marvell, of max "
    "norm alignment and of distance correlation.",
    "- *Whole-run budgets.* An epsilon is published for one release. A run releases each row in every epoch; "
    "[at a total budget](embedding-budget.md) a single release is the better use of it.",
    "- *A floor.* A party's own columns reveal something about the labels without any message. The audit states the "
    "excess over that; the papers compare with chance.",
    "- *Malicious parties.* [What hijacks, probes and backdoors gain](malicious.md) over curious attacks, and what a "
    "guard sees of them.",
)


def write_index(records: Path, pages: Path) -> Path:
    """Write `index.md` from the results of all studies.

    Args:
        records: Folder with the results as `NAME.json`; studies without results are left out.
        pages: Folder of the page.

    Returns:
        The page.
    """
    present = [(kind, Record.load(records / f"{name}.json")) for name, kind in STUDIES.items() if _has(records, name)]
    studies = [(kind(full=record.full), record) for kind, record in present]
    judged = [(study, study.page(Results(record.results)).claims) for study, record in studies]
    every = [claim for _, claims in judged for claim in claims]
    published, others = _divided(every)
    head = (
        "# What the papers claim, and what was found",
        f"{len(studies)} studies test {len(published)} claims for which a paper has a figure: {counted(published)}. Of "
        f"{len(others)} further claims {counted(others)}. Each study's page has every claim with both numbers, and "
        "the command that repeats it; this page is written from their results by `python -m studies --index`.",
        _table(judged).markdown(),
        "## Verdicts",
        RULES,
        "## What more seeds would not settle",
        f"Of claims *at the limit* the whole interval lies within {LEVEL:g} of the limit: the difference is too small "
        "to act on, on whichever side it is.",
        folded(_at_the_limit(judged)),
        "## What the seeds here do not resolve",
        f"We set {MAX_STUDY_SEEDS} seeds as the limit. These claims have {MIN_SPREAD_SEEDS} or more, and "
        f"differ from their limit by less than {MAX_STUDY_SEEDS} of the same spread would settle (95 % interval, "
        "Student's t). *Difference* is that of the mean from the limit, *resolved* the smallest that would be settled, "
        "*needed* the seeds at which this mean and spread would be. Both are estimates from the seeds run.",
        folded(_unresolved(judged)),
        "## What none of the papers says",
        "\n".join(_BEYOND),
        "Claims that do not hold here do not hold with these data and settings. Each page has them, and says how it "
        "differs from the paper; [some reasons were tested](reasons.md).",
    )
    path = pages / "index.md"
    write_whole(path, wrapped("\n\n".join(head) + "\n"), mode=0o644)
    return path


def _has(folder: Path, name: str) -> bool:
    return (folder / f"{name}.json").exists()


def _divided(claims: Iterable[Claim]) -> tuple[list[Claim], list[Claim]]:
    """The claims with a figure of a paper, and the others."""
    parts: tuple[list[Claim], list[Claim]] = [], []
    for claim in claims:
        parts[not claim.published].append(claim)
    return parts


def _table(judged: Iterable[tuple[Study, list[Claim]]]) -> Table:
    rows = []
    for study, claims in judged:
        published, others = (_counts(part) for part in _divided(claims))
        rows.append((f"[{study.title}]({study.name}.md)", published, others, _conclusion(study.advice)))
    heads = ("study", "published claims", "further claims", "what to do")
    return Table(heads, tuple(rows))


def _claims_of(judged: Iterable[tuple[Study, list[Claim]]], kind: Kind) -> Iterator[tuple[str, Claim]]:
    """Link of the study and claim, of all claims of that verdict."""
    for study, claims in judged:
        for claim in claims:
            if claim.verdict.kind is kind:
                yield f"[{study.name}]({study.name}.md)", claim


def _at_the_limit(judged: Iterable[tuple[Study, list[Claim]]]) -> Table:
    rows = [(link, claim.text, claim.ours) for link, claim in _claims_of(judged, Kind.LEVEL)]
    return Table(("study", "claim", "here"), tuple(rows))


def _unresolved(judged: Iterable[tuple[Study, list[Claim]]]) -> Table:
    rows = [
        (
            link,
            claim.text,
            "yes" if claim.published else "no",
            claim.ours,
            f"{claim.verdict.distance:.3f}",
            f"{claim.verdict.resolved:.3f}",
            f"{claim.verdict.seeds}",
            claim.verdict.needed,
        )
        for link, claim in _claims_of(judged, Kind.BEYOND)
    ]
    heads = ("study", "claim", "a paper's", "here", "difference", "resolved", "seeds", "needed")
    return Table(heads, tuple(rows))


def _conclusion(advice: str) -> str:
    """The first sentence, up to its colon; the reasons are on the study's page."""
    first = re.split(r"(?<=[.])\s|: ", advice, maxsplit=1)[0]
    return f"{first.rstrip('.')}."


def _counts(claims: list[Claim]) -> str:
    return counted(claims) or "none"
