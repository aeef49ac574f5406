"""The record of what a party's grades carry of its columns, which the party keeps and its report shows."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cutlayer.config import FrozenModel


class CarriedAttribute(FrozenModel):
    """What a row's grade carries of one attribute, of all rows that are released.

    Attributes:
        column: Name of the column.
        attribute: The attribute in words: a value, or a threshold.
        rows: Share of the rows that have it.
        bits: Information of the drawn grade about it, in bits a row.
        share: The same over the attribute's entropy: 1 where the grade tells it exactly.
        undrawn: Of grades together, share of the attribute of the column before they are drawn of which they add most.
        alone: What the best of them carries of it; of a number, of any of its attributes, as `undrawn` is.
    """

    column: str
    attribute: str
    rows: float = Field(ge=0, le=1)
    bits: float = Field(ge=-1e-9)
    share: float = Field(le=1 + 1e-9)
    undrawn: float | None = None
    alone: float = 0.0


class Lowered(FrozenModel):
    """Why grades were drawn at a lower epsilon than the settings of their party state.

    Attributes:
        epsilon: The one that they state.
        attribute: The attribute of which grades at it would carry too much; empty where that was found by an earlier
            run of the same draws.
        share: How much they would.
        limit: Its limit.
        by_default: Whether one without a stated limit looked as if the labels were it, here or at a step in between.
    """

    epsilon: float
    attribute: str = ""
    share: float = 0.0
    limit: float = 1.0
    by_default: bool = False


NO_FEATURE = " (no feature)"
"""Mark of a column, in words."""


class Carried(FrozenModel):
    """What the grades of a party carry of its columns: computed by the party itself, before anything is sent.

    Attributes:
        of: What the grades are of: drawn labels, or the columns alone (cells).
        grades: Number of grades.
        epsilon: Privacy of a draw; `None` where grades are sent as they are.
        bits: Information of a drawn grade about the grade, in bits a row: no more of a row's columns is in it.
        attributes: The attribute of each column of which most is carried, the largest share first.
        former: Number of earlier grades of the same rows that `together` is of, besides this one.
        unknown: Number of earlier grades of the same rows that it is not of: this party has them no more, or too few
            rows have all of so many.
        together: As `attributes`, of all these grades together; what chance alone carries is taken off.
        lowered: Why `epsilon` is lower than that of the settings; `None` where it is not.
        no_features: Names of the columns that are no features, whose limit is stated.
        numbers: Those of them that hold numbers.
    """

    of: Literal["labels", "columns"] = "labels"
    grades: int = Field(ge=1)
    epsilon: float | None
    bits: float = Field(ge=-1e-9)
    attributes: tuple[CarriedAttribute, ...]
    former: int = Field(default=0, ge=0)
    unknown: int = Field(default=0, ge=0)
    together: tuple[CarriedAttribute, ...] = ()
    lowered: Lowered | None = None
    no_features: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
