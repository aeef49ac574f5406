"""The classes of a label column: how many rows each has, which is positive, and what looks like a slip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.data.feature_columns import category_text, without_dictionary, without_nan

MAX_LISTED_CLASSES = 10
"""Classes that are listed; of more, their number is stated."""
_NO = "no,n,false,f,0,nein,non,nee,nej,off,falsch,faux,não,nie,negative,neg,good,paid,fully paid,current,stayed,healthy"
_YES = "yes,y,true,t,1,ja,j,oui,o,on,wahr,vrai,sí,si,sim,tak,positive,pos,bad,charged_off,charged off,default,churned"
_NEGATIVE, _POSITIVE = frozenset(_NO.split(",")), frozenset(_YES.split(","))


def class_rows(column: pa.ChunkedArray, where: str) -> dict[str, int]:
    """Number of rows of each class, by name, in ascending order of the label values.

    Args:
        column: Labels as numbers, text or booleans; rows without one count nowhere.
        where: Name of the data, for error messages.

    Raises:
        DataError: Values that have no text.

    >>> class_rows(pa.chunked_array([["yes", "no", "no"]]), "labels")
    {'no': 2, 'yes': 1}
    """
    counted = pc.value_counts(without_nan(without_dictionary(column)).drop_null())
    order = pc.array_sort_indices(counted.field("values"))
    names = category_text(pa.chunked_array([counted.field("values").take(order)]), "label", where).to_pylist()
    return dict(zip(names, counted.field("counts").take(order).to_pylist(), strict=True))


def folded_names(names: Sequence[str]) -> list[str]:
    """Names after trimming and lower-casing, each once.

    >>> folded_names(["YES", "Yes", "no", "yes "])
    ['yes', 'no']
    """
    return list(dict.fromkeys(_fold(name) for name in names))


def spelling_note(names: Sequence[str], what: str = "labels") -> str:
    """A sentence on classes, or other values, that differ in case or in surrounding spaces alone; empty if none do.

    >>> spelling_note(["NO", "YES", "no", "yes "])
    "4 labels are 2 after trimming and lower-casing: 'NO', 'no', 'YES', 'yes '; write them one way"
    """
    distinct = folded_names(names)
    if len(distinct) == len(names):
        return ""
    groups = {fold: [name for name in names if _fold(name) == fold] for fold in distinct}
    alike = [repr(name) for group in groups.values() if len(group) > 1 for name in group]
    shown = ", ".join(alike[:MAX_LISTED_CLASSES]) + (", ..." if len(alike) > MAX_LISTED_CLASSES else "")
    return f"{len(names):,} {what} are {len(distinct):,} after trimming and lower-casing: {shown}; write them one way"


def reversed_classes_note(names: Sequence[str]) -> str:
    """A sentence on two classes of which the positive one reads as the negative one; empty otherwise.

    >>> reversed_classes_note(["Yes", "no"])
    "the positive class is 'no', the greater of the two labels; if that is reversed, write positive: 'Yes'"
    """
    if len(names) != 2 or _fold(names[0]) not in _POSITIVE or _fold(names[1]) not in _NEGATIVE:
        return ""
    return (
        f"the positive class is {names[1]!r}, the greater of the two labels; if that is reversed, write "
        f"positive: {names[0]!r}"
    )


def class_listing(rows: Mapping[str, int], distinct: int, positive: str | None = None) -> tuple[str, str]:
    """Title and text of the classes, for a terminal: of a binary task the positive one first.

    Args:
        rows: Number of rows of the first classes, in ascending order.
        distinct: Number of all classes.
        positive: The positive one of the two classes of a binary task; `None` of other tasks.

    >>> class_listing({"Yes": 580, "no": 4360}, 2, "no")
    ('positive class', 'no (4,360 rows); the other: Yes (580)')
    >>> class_listing({"Yes": 580, "no": 4360}, 2)
    ('classes', '2: Yes (580), no (4,360)')
    >>> class_listing({"gold, plus": 8, "silver": 9, "tin": 3}, 3)
    ('classes', "3: 'gold, plus' (8), silver (9), tin (3)")
    """
    if distinct == 2 and positive is not None:
        pairs = [*rows.items()]
        (other, fewer), (named, count) = pairs[::-1] if positive == pairs[0][0] else pairs
        return "positive class", f"{_plain(named)} ({count:,} rows); the other: {_plain(other)} ({fewer:,})"
    more = f" and {distinct - len(rows):,} more" if distinct > len(rows) else ""
    shown = ", ".join(f"{_plain(name)} ({count:,})" for name, count in rows.items())
    return "classes", f"{distinct:,}: {shown}{more}"


def _plain(name: str) -> str:
    return name if name and name == name.strip() and "," not in name else repr(name)


def _fold(name: str) -> str:
    return name.strip().lower()
