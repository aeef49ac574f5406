"""Findings about the columns that went in: those that are misread, say nothing, or say everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cutlayer.audit.checks import FindingContext, Occurrence, check
from cutlayer.data.column_note import ColumnNote, OddKind

COLUMN_CHECK_KINDS: Mapping[str, tuple[OddKind, ...]] = {
    "CL120": ("misread",),
    "CL121": ("idle", "rare"),
    "CL123": ("unseen",),
}
"""Kinds of oddities by the code of their finding."""
MAX_NAMED = 8
"""Columns of a party that are findings of their own; the rest are named in one."""


@check("CL119", "warning")
def _copied(context: FindingContext) -> Iterator[Occurrence]:
    """A column gives the labels.

    Remedy: name it in features.exclude, unless it is known before the label is.
    """
    for copy in context.copies:
        yield Occurrence(copy.party, f"{copy.party}.{copy.column}: {copy}")


def column_occurrences(notes: Mapping[str, Sequence[ColumnNote]], *kinds: OddKind) -> Iterator[Occurrence]:
    """Each column with an oddity of these kinds, by party; of many columns the first, and the number of the rest."""
    for party, odd in notes.items():
        chosen = [note for note in odd if note.kind in kinds]
        for note in chosen[:MAX_NAMED]:
            yield Occurrence(party, f"{party}.{note.column}: {note.text.removesuffix('; exclude it')}")
        if more := chosen[MAX_NAMED:]:
            names = ", ".join(note.column for note in more[:MAX_NAMED])
            others = f" and {len(more) - MAX_NAMED:,} others" if len(more) > MAX_NAMED else ""
            detail = f"{party}: {len(more):,} more columns, {names}{others}; check says what is odd of each"
            yield Occurrence(party, detail)


@check("CL120", "warning")
def _misread(context: FindingContext) -> Iterator[Occurrence]:
    """A column may be misread.

    Remedy: correct the table or its settings and run again: what the model, and each party, adds may change.
    """
    return column_occurrences(context.notes, *COLUMN_CHECK_KINDS["CL120"])


@check("CL121", "note")
def _uninformative(context: FindingContext) -> Iterator[Occurrence]:
    """A column has little to learn from.

    Remedy: name it in features.exclude.
    """
    return column_occurrences(context.notes, *COLUMN_CHECK_KINDS["CL121"])


@check("CL123", "warning")
def _unseen(context: FindingContext) -> Iterator[Occurrence]:
    """Held-out rows have values that training rows lack.

    Remedy: look at how the column changes over the rows of the split; leave it out, or state coarser values.
    """
    return column_occurrences(context.notes, *COLUMN_CHECK_KINDS["CL123"])
