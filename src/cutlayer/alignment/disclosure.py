"""What an alignment makes known: which ids of which party become known to whom, in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from cutlayer.config import FrozenModel

if TYPE_CHECKING:
    from cutlayer.alignment.common_rows import CommonRows
    from cutlayer.alignment.points import AligningSide

Method = Literal["psi", "plain", "agreed", "row numbers"]


class TableSize(FrozenModel):
    """The size of a party's table in an alignment.

    Attributes:
        rows: Number of its ids; `None` where the party ran elsewhere.
        stated: Number that it stated to the other side, which `pad_to` can make larger.
    """

    rows: int | None
    stated: int

    @property
    def known(self) -> int:
        """The number of ids, or the stated one where that is all that is known."""
        return self.stated if self.rows is None else self.rows


class LinkIds(FrozenModel):
    """The ids of the active party and of one passive party, as the writer of this record knows them.

    Attributes:
        party: Name of the passive party.
        active: Size of the active party's table.
        passive: Size of the passive party's table.
        common: Number of ids that both have; `None` where the writer does not know it.
        run: Number of the passive party's ids in the run, which the alignment shows to it.
        by_key: With several keys the number of ids that each matched, as far as the writer knows.
    """

    party: str
    active: TableSize
    passive: TableSize
    common: int | None
    run: int
    by_key: tuple[int, ...] = ()


class AlignmentRecord(FrozenModel):
    """What a run's alignment made known, as one party knows it.

    Attributes:
        method: How the rows were matched: `agreed` before the run, or by `row numbers`, which are no secret.
        rows: Whether the run is on the rows that all parties have, or on all rows of the active party.
        active: Name of the active party.
        passives: Names of all passive parties.
        keys: Number of keys that identify a row.
        referring: Whether rows of the active party refer to those of each partner by ids of their own.
        crossed: Whether ids crossed between processes; in one process nothing left the machine.
        links: The active party's with each passive party; of a passive party its own.
    """

    method: Method
    rows: Literal["common", "all"]
    active: str
    passives: tuple[str, ...]
    keys: int = 1
    referring: bool = False
    crossed: bool = True
    links: tuple[LinkIds, ...]

    @property
    def disclosures(self) -> tuple[Disclosure, ...]:
        """What each party learned, link by link; nothing where ids are row numbers."""
        if self.method == "row numbers":
            return ()
        return tuple(disclosure for link in self.links for disclosure in self._of_link(link))

    def _of_link(self, link: LinkIds) -> Iterator[Disclosure]:
        if self.method == "agreed":
            yield from self._agreed_before(link)
            return
        own, ids, is_stated = link.active.known, link.passive.known, link.passive.rows is None
        by_key = link.by_key if self.keys > 1 else ()
        known = link.run if link.common is None else link.common
        absent = None if link.common is None else own - known
        guessable = ids if self.method == "plain" else None
        yield Disclosure(
            self.active,
            (link.party,),
            own,
            known,
            absent,
            link.passive,
            by_key=by_key,
            is_stated=link.active.rows is None,
            at_least=link.common is None,
            guessable=guessable,
        )
        others = tuple(name for name in self.passives if name != link.party)
        if self.rows == "all" or not others or (self.keys > 1 and self.method == "psi"):
            # In the round of each key, a passive party sees which of its rows the active party has, whoever else does.
            yield Disclosure(
                link.party, (self.active,), ids, known, ids - known, link.active, by_key=by_key, is_stated=is_stated
            )
        if self.rows == "common" and others:
            every = (self.active, *others)
            yield Disclosure(link.party, every, ids, link.run, ids - link.run, link.active, is_stated=is_stated)

    def _agreed_before(self, link: LinkIds) -> Iterator[Disclosure]:
        """What is sure of an alignment before the run: the run has the rows that it chose, and no size of a table.

        In a run on all rows of the active party, which it is who knows them, those that a partner lacks are among them.
        """
        known = link.run if link.common is None else link.common
        absent = link.active.known - known if self.rows == "all" else 0
        own, least = (link.active.known, False) if absent else (None, True)
        yield Disclosure(self.active, (link.party,), own, known, absent or None, None, at_least=least)
        others = () if self.rows == "all" else tuple(name for name in self.passives if name != link.party)
        yield Disclosure(link.party, (self.active, *others), None, link.run, None, None, at_least=True)


class Disclosure(NamedTuple):
    """Which of its own ids one party learned to be, and not to be, in the tables of others.

    Attributes:
        learner: The party that learned it.
        about: The parties whose tables it is about. Of an id that is not in all of them it does not learn which lacks
            it.
        own_ids: Number of the learner's ids, or the number that it stated; `None` where the writer does not know it.
        present_ids: Number of these ids that all of `about` have.
        absent_ids: Number of these ids that one of `about` lacks; `None` where the writer does not know it.
        size: Size of the first of these tables, which was stated to the learner; `None` where the writer does not
            know it.
        by_key: With several keys the number of ids that each matched.
        is_stated: Whether `own_ids` is what the learner stated, which can be more than it has.
        at_least: Whether `present_ids` can be more than the writer of the record knows.
        guessable: Number of the other party's ids of which the learner got a digest, which a guessed id can be compared
            with; `None` for none.
    """

    learner: str
    about: tuple[str, ...]
    own_ids: int | None
    present_ids: int
    absent_ids: int | None
    size: TableSize | None
    by_key: tuple[int, ...] = ()
    is_stated: bool = False
    at_least: bool = False
    guessable: int | None = None


def active_record(
    sides: Sequence[AligningSide], each: Sequence[CommonRows], stated: Mapping[str, int], *, referring: bool
) -> AlignmentRecord | None:
    """The record of the active party; `None` of an alignment that did not name the rows.

    Args:
        sides: The active party's side with all partners, or with each.
        each: What it learned at each, of its different ids.
        stated: Number of rows that it stated to each partner.
        referring: Whether it has ids of their own for the partners' rows.
    """
    if any(aligned.positions is None for aligned in each):
        return None
    links = tuple(link for side, aligned in zip(sides, each, strict=True) for link in _links_of(side, aligned, stated))
    found = _record(sides[0], sides[0].name, tuple(stated), links, all_rows=sides[0].all_rows)
    return found.model_copy(update={"referring": referring})


def _links_of(side: AligningSide, aligned: CommonRows, stated: Mapping[str, int]) -> Iterator[LinkIds]:
    pairwise = side.all_rows or side.alignment.method != "agreed" or len(side.ports) == 1
    for peer in side.ports:
        common = aligned.sizes[peer] if pairwise else None
        yield LinkIds(
            party=peer,
            active=TableSize(rows=side.table.rows, stated=stated[peer]),
            passive=_stated(side, peer),
            common=common,
            run=(common or 0) if side.all_rows else len(aligned.positions if aligned.positions is not None else ()),
            by_key=aligned.by_key.get(peer, ()),
        )


def passive_record(
    side: AligningSide, aligned: CommonRows, stated: int, passives: tuple[str, ...], *, all_rows: bool
) -> AlignmentRecord | None:
    """The record of a passive party; `None` of an alignment that did not name the rows.

    Args:
        side: The passive party's side.
        aligned: What it learned.
        stated: Number of rows that it stated.
        passives: Names of all passive parties.
        all_rows: Whether the run is on all rows of the active party.
    """
    if aligned.positions is None:
        return None
    run, by_key = len(aligned.positions), next(iter(aligned.by_key.values()), ())
    common = run if all_rows or side.is_only_passive else sum(by_key) if by_key else None
    link = LinkIds(
        party=side.name,
        active=_stated(side, side.port.peer),
        passive=TableSize(rows=side.table.rows, stated=stated),
        common=common,
        run=run,
        by_key=by_key,
    )
    return _record(side, side.port.peer, passives, (link,), all_rows=all_rows)


def _record(
    side: AligningSide, active: str, passives: tuple[str, ...], links: tuple[LinkIds, ...], *, all_rows: bool
) -> AlignmentRecord:
    method = "row numbers" if side.table.id_kind == "row" else side.alignment.method
    return AlignmentRecord.model_validate(
        {
            "method": method,
            "rows": "all" if all_rows else "common",
            "active": active,
            "passives": passives,
            "keys": max(1, len(side.table.keys)),
            "links": links,
        }
    )


def _stated(side: AligningSide, peer: str) -> TableSize:
    """The size of a peer's table: it cannot be padded where a digest of every id is sent."""
    stated = side.rows[peer]
    return TableSize(rows=None if side.alignment.method == "psi" else stated, stated=stated)
