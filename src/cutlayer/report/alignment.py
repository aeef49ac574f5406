"""What the alignment made known, in words: the same on the pages of both sides and in their annexes."""

from __future__ import annotations

from collections.abc import Iterator

from cutlayer.alignment.disclosure import AlignmentRecord, Disclosure, TableSize
from cutlayer.report.rounding import as_sentence, count
from cutlayer.report.section import Block, Cell, Column, Fold, Items, Paragraph, Section, number, table

TITLE = "What the alignment made known"
_HOW = {
    "psi": "Rows were matched by private set intersection: ids crossed under secret masks alone.",
    "plain": "Rows were matched by digests: whoever gets the digest of an id recognises the id if it can guess it.",
    "agreed": (
        "The rows were agreed before the run, by files (`cutlayer align`, `exchange`) or as tables of the same ids. "
        "This run sent a digest of their order and no id. What the alignment showed of other ids is not in its record."
    ),
    "row numbers": "Rows were matched by their numbers: no id crossed, and only the number of rows was compared.",
}
_ON_THE_LINK = "The lengths of the encrypted messages show the sizes of the tables to anyone on the network."


def alignment_section(record: AlignmentRecord | None) -> Section | None:
    """Which ids of which party became known to whom; `None` of a run that has no record of it.

    Args:
        record: What the alignment made known, as one party knows it.
    """
    if record is None:
        return None
    short = Paragraph(_lead(record))
    if not record.disclosures:
        return Section("alignment", TITLE, (short,), (short,), "Alignment")
    listed = table(
        "What each party learned of the others' tables, by its own ids",
        record.disclosures,
        ("Who learned it", lambda known: Cell(known.learner, (f"of {' and '.join(known.about)}",))),
        (number("Ids that are there"), lambda known: f"{'at least ' * known.at_least}{count(known.present_ids)}"),
        (number("Ids that are not"), _absent),
        (Column("Size of that table", "text"), lambda known: _size(known.size)),
        (Column("Besides", "text"), lambda known: "; ".join(_besides(known)) or "nothing"),
        layout="stack",
    )
    found = Items(tuple(map(learned_sentence, record.disclosures)))
    detail: tuple[Block, ...] = (listed, Items(tuple(_notes(record)))) if record.crossed else (listed,)
    blocks = (Paragraph(short.text, "lead"), found, Fold("In numbers, with the sizes of the tables", detail))
    return Section("alignment", TITLE, blocks, (short, found), "Alignment")


def alignment_line(record: AlignmentRecord | None) -> str:
    """Which ids became known to whom, in one sentence for the first screen; empty of a run that has no record of it.

    With several partners the numbers are the least and the largest of them; the section lists each.
    """
    if record is None:
        return ""
    if not record.disclosures:
        return "Rows were matched by their numbers: no id crossed."
    showed = {
        "psi": "The alignment showed",
        "agreed": "The alignment before the run showed",
        "plain": "The alignment, by digests that give away what can be guessed, showed",
    }[record.method]
    if not record.crossed:
        showed = f"Between organisations, {showed[0].lower()}{showed[1:].removesuffix('ed')}s"
    groups: dict[tuple[bool, bool], list[Disclosure]] = {}
    for known in record.disclosures:
        groups.setdefault((known.learner == record.active, len(known.about) > 1), []).append(known)
    return f"{showed} {', and '.join(_which(record, known) for known in groups.values())}."


def _which(record: AlignmentRecord, known: list[Disclosure]) -> str:
    """Who learned of which of its ids whether others have them, as a clause about one party or several alike."""
    first = known[0]
    of_active = first.learner == record.active
    least = "at least " * any(each.at_least for each in known)
    there = _range([each.present_ids for each in known])
    sizes = [each.own_ids for each in known if each.own_ids is not None]
    own = f"{_range(sizes)} {'stated ' * any(each.is_stated for each in known)}ids" if sizes else "ids"
    others = first.about[0] if len(first.about) == 1 else "all others"
    has = "have" if len(first.about) > 1 else "has"
    if len(known) == 1:
        return f"{first.learner} which {least}{there} of its {own} {others} {has}"
    if of_active:
        return f"{first.learner} which {least}{there} of its {own} each of {len(known)} partners has"
    return f"each partner which {least}{there} of its {own} {others} {has}"


def _range(numbers: list[int]) -> str:
    least, most = min(numbers), max(numbers)
    return count(least) if least == most else f"{count(least)} to {count(most)}"


def alignment_sentences(record: AlignmentRecord | None) -> tuple[str, ...]:
    """The alignment as sentences, with how rows were matched; empty of a run that has no record of it."""
    return () if record is None else (_lead(record), *disclosure_sentences(record), *_notes(record))


def disclosure_sentences(record: AlignmentRecord) -> tuple[str, ...]:
    """What each party learned of its own ids, a sentence or more each."""
    return tuple(
        " ".join(filter(None, (learned_sentence(known), *map(as_sentence, _further(known)))))
        for known in record.disclosures
    )


def _lead(record: AlignmentRecord) -> str:
    how = _HOW[record.method]
    if record.method == "row numbers":
        return how
    whose = f"The run is on {'all rows of ' + record.active if record.rows == 'all' else 'the rows that all have'}."
    if record.referring:
        whose += " These refer to each partner's rows by columns of their own: how many to one, nobody was sent."
    if record.crossed:
        return f"{how} {whose}"
    method = {"psi": "private set intersection", "plain": "digests"}[record.method]
    return (
        f"All parties ran in one process: no id left the machine. Between organisations the alignment of this job, by "
        f"{method}, makes this known. {whose}"
    )


def learned_sentence(known: Disclosure) -> str:
    """What one party learned of its own ids, as a sentence."""
    where = f"the table of {known.about[0]}" if len(known.about) == 1 else f"the tables of {' and '.join(known.about)}"
    there = f"{'at least ' * known.at_least}{count(known.present_ids)}"
    ids = "its ids"
    if known.own_ids is not None:
        ids = f"the {count(known.own_ids)} ids that it stated" if known.is_stated else f"its {count(known.own_ids)} ids"
    if len(known.about) > 1:
        found = f"{known.learner} learned that {there} of {ids} are in {where}"
        return f"{found}. Of the others it did not learn who lacks them."
    absent = "" if known.absent_ids is None else f", and that {_absent(known)} are not"
    return f"{known.learner} learned that {there} of {ids} are in {where}{absent}."


def _further(known: Disclosure) -> Iterator[str]:
    if known.size is not None:
        yield f"the size stated to it is {_size(known.size)}"
    yield from _besides(known)


def _absent(known: Disclosure) -> str:
    if known.absent_ids is None:
        return "not known here"
    return f"{'up to ' * (known.is_stated and known.absent_ids > 0)}{count(known.absent_ids)}"


def _size(size: TableSize | None) -> str:
    if size is None:
        return "not known here"
    if size.rows is None:
        return f"{count(size.stated)} ids, which may be padded"
    padded = f", of which {count(size.stated - size.rows)} are padding" if size.stated > size.rows else ""
    return f"{count(size.stated)} ids{padded}"


def _besides(known: Disclosure) -> Iterator[str]:
    if known.by_key:
        yield f"by which key each is matched ({', '.join(map(count, known.by_key))})"
    if known.guessable is not None:
        yield f"a digest of each of the {count(known.guessable)} ids of {known.about[0]}: those that it can guess"


def _notes(record: AlignmentRecord) -> Iterator[str]:
    if record.method == "row numbers" or not record.crossed:
        return
    if record.keys > 1 and len(record.passives) > 1:
        yield "Partners that put their ids together see which of their rows are the same row, in common or not."
    yield _ON_THE_LINK
