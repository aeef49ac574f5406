"""What the grades of a party carry of its own columns."""

from __future__ import annotations

from cutlayer.config import FrozenModel


class CarriedAttribute(FrozenModel):
    """What a row's grade carries of one attribute, of all rows that are released.

    Attributes:
        column: Name of the column.
        attribute: The attribute in words: a value, or a threshold.
        rows: Share of the rows that have it.
        bits: Information of the drawn grade about it, in bits a row.
        share: The same over the attribute's entropy: 1 where the grade tells it exactly.
    """

    column: str
    attribute: str
    rows: float
    bits: float
    share: float


class Carried(FrozenModel):
    """What the grades of a party carry of its columns: computed by the party itself, before anything is sent.

    Attributes:
        grades: Number of grades.
        epsilon: Privacy of a draw; `None` where grades are sent as they are.
        bits: Information of a drawn grade about the grade, in bits a row: no more of a row's columns is in it.
        attributes: The attribute of each column of which most is carried, the largest share first.
    """

    grades: int
    epsilon: float | None
    bits: float
    attributes: tuple[CarriedAttribute, ...]
