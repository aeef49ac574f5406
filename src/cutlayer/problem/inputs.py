"""Shape of a bottom model's input."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Inputs:
    """The encoded columns a bottom model reads.

    Attributes:
        cardinalities: Number of codes of each categorical column.
        numbers: Number of numeric columns, the pixels of an image included.
        image: Channels, height and width of the image whose pixels are the last of the numbers, channel by channel, row
            by row; None if there is no image.
        has_rare_categories: Whether most categories of some column are too rare to learn from.
    """

    cardinalities: tuple[int, ...] = ()
    numbers: int = 0
    image: tuple[int, int, int] | None = None
    has_rare_categories: bool = False
