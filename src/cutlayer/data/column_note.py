"""Oddities of a party's columns that a reader of the results has to know: no value of the table is in them."""

from __future__ import annotations

from typing import Literal

from cutlayer.config.base import FrozenModel

OddKind = Literal["misread", "idle", "rare", "unseen"]


class ColumnNote(FrozenModel):
    """An oddity of a column of a party's own table.

    Attributes:
        column: Name of the column.
        kind: `misread` where it may be read as something else than it is; `idle` where it has nothing to learn from;
            `rare` where most of its categories are too rare for models that are not made for them; `unseen` where the
            training rows lack many values of the held-out rows.
        text: What is odd, and the remedy.
    """

    column: str
    kind: OddKind
    text: str
