"""What grades carry of each column of the party that released them, as that party computed it before they left."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from pydantic import ValidationError

from cutlayer.data.carried import NO_FEATURE, Carried, CarriedAttribute
from cutlayer.errors import RunFolderError
from cutlayer.parties.session.checkpoint import CARRIED_FILE
from cutlayer.report.rounding import amount, count, metric, share
from cutlayer.report.section import Answer, Block, Column, Fold, Paragraph, Section, Table, number, table
from cutlayer.training.folder import RunFolder

CELLS = (
    "its cells say where a row lies among all its columns: of these an attack with 512 known rows read R² .63 at "
    "epsilon 8 on Adult, and .25 where grades are of drawn labels"
)
"""Measured in docs/results/grades.md, on 4,000 rows."""
MAX_COLUMNS_IN_SIGHT = 5
"""Number of columns in sight; all others are folded."""
_HOW = (
    "Computed from the columns and the grades before anything was sent, for frequent values, sets of values and parts "
    "of each column by itself: what two columns say only together has no line. The share is of what there is to know "
    "of the attribute (its entropy): 100 % where a grade tells it for certain. It is of one drawn grade, then of all "
    "that the party released of the same rows. Who knows more of a row can read more: see the attacks."
)


def carried_of(folder: RunFolder, parties: Collection[str]) -> dict[str, Carried]:
    """What the grades of each party carry that released some, by party.

    Args:
        folder: Run folder.
        parties: Parties of the job.

    Raises:
        RunFolderError: A record is damaged.
    """
    found = {}
    for party in parties:
        name = f"checkpoint/{party}/{CARRIED_FILE}"
        if (folder.path / name).exists():
            try:
                found[party] = Carried.model_validate(folder.read_json(name))
            except ValidationError as damage:
                why = damage.errors()[0]["msg"]
                raise RunFolderError(f"{folder.path / name} is damaged ({why}); run the job again") from None
    return found


def carried_section(carried: Mapping[str, Carried]) -> Section | None:
    """The section of a report; `None` where nobody released grades."""
    if not carried:
        return None
    blocks: list[Block] = [Paragraph(_HOW, "lead")]
    brief: list[Block] = []
    for party, found in carried.items():
        every = found.attributes
        title = f"The columns of {party} of which most is carried"
        some = [_table(title, every[:MAX_COLUMNS_IN_SIGHT], found)] if every else []
        sentence = Paragraph(" ".join(_sentences(party, found)), "warn" if found.of == "columns" else "")
        brief += [sentence, *some]
        blocks += [sentence, *some]
        if len(every) > MAX_COLUMNS_IN_SIGHT:
            blocks.append(Fold(f"All columns of {party}", (_table(f"All columns of {party}", every, found),)))
        if found.together:
            title = f"What {found.former + 1} releases of {party} carry together of the same rows"
            blocks.append(_table(title, found.together, found))
    parties = ", ".join(carried)
    texts = (sentence for party, found in carried.items() for sentence in _sentences(party, found))
    title = f"What grades carry of the columns of {parties}"
    return Section("carried", title, blocks, brief, "Carried", (Answer("Carried", " ".join(texts)),))


def _sentences(party: str, found: Carried) -> Iterator[str]:
    """What crosses of a row in all, the attribute of which most does, and what cells are."""
    what = "cell" if found.of == "columns" else "grade"
    noise = "sent as it is" if found.epsilon is None else f"drawn at epsilon {amount(found.epsilon)}"
    most = f"{found.bits:.1f} bits of a row at most, on average"
    yield f"A {what} of {party} is one of {count(found.grades)}, {noise}: {most}."
    if (lowered := found.lowered) is not None:
        why = (
            "as in its first release"
            if not lowered.attribute
            else (
                f"at which {share(lowered.share, 1)} of {lowered.attribute} would leave, above the limit of "
                f"{share(lowered.limit, 1)}"
            )
        )
        yield f"{party} took that epsilon in place of {amount(lowered.epsilon)}, {why}."
    if found.attributes:
        first = found.attributes[0]
        part = share(max(first.share, 0), 1)
        yield f"Most is carried of {first.attribute}: {part} of what there is to know of it."
    if found.former and found.together:
        joint, others = found.together[0], count(found.former)
        yield (
            f"With the grades of {others} other releases of the same rows, most is carried of "
            f"{joint.attribute}: {share(joint.share, 1)}, beyond what chance does."
        )
    if found.unknown:
        yield (
            f"Not in this: {count(found.unknown)} more releases of grades of the same rows, which {party} has no "
            "longer, or which are too many. What these carry with it is not known; the epsilons add up."
        )
    if found.of == "columns":
        yield f"{party}: {CELLS}."


def _table(title: str, attributes: Sequence[CarriedAttribute], found: Carried) -> Table:
    return table(
        title,
        attributes,
        ("Column", lambda each: f"{each.column}{NO_FEATURE * (each.column in found.no_features)}"),
        (Column("Worst attribute", "text"), lambda each: each.attribute),
        (number("Rows that have it"), lambda each: share(each.rows, 1)),
        (number("Bits"), lambda each: metric(each.bits)),
        (number("Share carried"), lambda each: share(max(each.share, 0), 1)),
        layout="stack",
    )
