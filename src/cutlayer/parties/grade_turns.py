"""The grades that rows had in one release: the newest, and those before it by the turns in which they changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cutlayer.data.row_values import ValueWords
from cutlayer.parties.carried_together import GradedRows

_MAX_TURNS = 16
"""Number of turns from which on it is known which grades a row had, each once, and not when: so the memory has no more
than 31 earlier grades of a row. Before it, when a grade changed can tell what no grade does. In a turn no row has two
grades, however many notes it is of: else a reader that asks for one changed row at a time would soon use them up."""


class Release(NamedTuple):
    """Rows of a release, ascending by the words of their ids, and the further grades that some had before.

    Attributes:
        ids: Words of their ids, int64 (n,).
        grades: The newest grade of each, int64 (n,).
        values: Words of their values, int64 (n,).
        noted: The turn in which each was noted last, int64 (n,), from 0; see `_MAX_TURNS`.
        earlier_ids: Words of the ids of rows with other grades before, ascending, int64 (m,).
        earlier_grades: These grades, those of a row in their order in time, int64 (m,).
        earlier_turns: The turn that replaced each, from 1, int64 (m,).
    """

    ids: npt.NDArray[np.int64]
    grades: npt.NDArray[np.int64]
    values: ValueWords
    noted: npt.NDArray[np.int64]
    earlier_ids: npt.NDArray[np.int64] = np.zeros(0, np.int64)
    earlier_grades: npt.NDArray[np.int64] = np.zeros(0, np.int64)
    earlier_turns: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def turn(self) -> int:
        """The newest turn."""
        return min(int(max(self.noted.max(initial=0), self.earlier_turns.max(initial=0))), _MAX_TURNS)


def indices_among(words: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each of some words is among others, which are ascending, int64 (n,); -1 for those that are not."""
    if not len(known):
        return np.full(len(words), -1)
    at = np.minimum(np.searchsorted(known, words), len(known) - 1)
    return np.where(known[at] == words, at, -1)


def row_words(words: npt.NDArray[np.int64], grades: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Rows with their grades as one word each, int64 (n,): two ids of different spelling may have one word."""
    return (words << 8) ^ grades


def rows_at(release: Release, rows: npt.NDArray[np.generic]) -> Release:
    """Some rows of a release, whose earlier grades stay those of all."""
    return release._replace(**{name: getattr(release, name)[rows] for name in ("ids", "grades", "values", "noted")})


def both_of(before: Release, after: Release) -> Release:
    """A release with the rows of both, and the earlier grades of those whose grade is another by now."""
    at = indices_among(before.ids, after.ids)
    changed = (at >= 0) & ~np.isin(row_words(before.ids, before.grades), row_words(after.ids, after.grades))
    turn = min(before.turn + bool((before.noted[changed] == before.turn).any()), _MAX_TURNS)
    after = after._replace(noted=np.full_like(after.ids, turn))
    rest = rows_at(before, at < 0)
    every = Release(*(np.concatenate(each) for each in zip(rest[:4], after[:4], strict=True)))
    every = rows_at(every, np.argsort(every.ids, kind="stable"))
    return every._replace(**_with_changes(before, before.ids[changed], before.grades[changed], turn))


def _with_changes(
    before: Release, words: npt.NDArray[np.int64], replaced: npt.NDArray[np.int64], turn: int
) -> dict[str, npt.NDArray[np.int64]]:
    """The earlier grades of a release, with those that a turn replaces, by the ids (m,) of their rows."""
    ids, grades = np.r_[before.earlier_ids, words], np.r_[before.earlier_grades, replaced]
    newest = turn if turn < _MAX_TURNS else 3 * _MAX_TURNS  # after all that a row has
    turns = np.r_[before.earlier_turns, np.full(len(words), newest)]
    late = np.flatnonzero(turns >= _MAX_TURNS)
    first = np.unique(row_words(ids[late], grades[late]), return_index=True)[1]
    stay = np.r_[np.flatnonzero(turns < _MAX_TURNS), late[np.sort(first)]]
    stay = stay[np.lexsort((turns[stay], ids[stay]))]
    ids, grades, turns = ids[stay], grades[stay], turns[stay]
    late = np.flatnonzero(turns >= _MAX_TURNS)
    turns[late] = _MAX_TURNS + np.arange(len(late)) - np.searchsorted(ids[late], ids[late])
    return {"earlier_ids": ids, "earlier_grades": grades, "earlier_turns": turns}


def grades_in_turn(
    release: Release, bands: int, epsilon: float | None, at: npt.NDArray[np.int64], own: npt.NDArray[np.int64] | None
) -> Iterator[GradedRows]:
    """The grades of rows in a release before each turn that changed some, the oldest first, and the newest ones.

    A reader sees whether the grade of a row changed, and that alone may tell an attribute. So rows that had the grade
    that they have now are no rows that are not known: they have a code of their own, which no noise hides. A reader of
    draws, of which equal ones may be of different grades, knows no more.

    Args:
        release: The release.
        bands: Number of grades.
        epsilon: Privacy of a draw; `None` without noise.
        at: Place of each row among its rows, int64 (n,), -1 for none.
        own: Grades by the same draws that rows have now; `None` of other draws, of which the newest are those.
    """
    there = np.flatnonzero(at >= 0)
    ids, grades = release.ids[at[there]], release.grades[at[there]]
    now, turns = grades if own is None else own[there], [grades]
    for turn in np.unique(release.earlier_turns)[::-1]:
        of_turn = np.flatnonzero(release.earlier_turns == turn)
        before = indices_among(ids, release.earlier_ids[of_turn])
        turns.append(np.where(before >= 0, release.earlier_grades[of_turn][before], turns[-1]))
    for each in turns[::-1]:
        is_whole = own is None and each is grades
        same = np.zeros(len(there), np.bool_) if is_whole else each == now
        if not same.all():
            of_rows = np.full(len(at), -1)
            of_rows[there] = np.where(same, bands, each)
            yield GradedRows(of_rows, bands + (not is_whole), epsilon, not is_whole)
