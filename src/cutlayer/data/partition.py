"""Splits images among parties, for simulations."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cutlayer.config.table import Part
from cutlayer.errors import DataError

Array = npt.NDArray[Any]


def part_of(images: Array, part: Part) -> Array:
    """One half of every image, or all of it.

    Args:
        images: (n, height, width) or (n, height, width, channels).
        part: `left` and `right` halve the width, `top` and `bottom` the height.

    Returns:
        A view of the images.

    Raises:
        DataError: The side to be halved is odd, or these are no images.

    >>> part_of(np.arange(8).reshape(1, 2, 4), "right").tolist()
    [[[2, 3], [6, 7]]]
    """
    if images.ndim not in (3, 4):
        raise DataError.expected("images (n, height, width) or (n, height, width, channels)", f"shape {images.shape}")
    if part == "all":
        return images
    axis, side = (2, "width") if part in ("left", "right") else (1, "height")
    size = images.shape[axis]
    if size % 2:
        raise DataError.expected(
            f"images of even {side} for part {part}", size, "crop or pad them, or take another part"
        )
    first, second = np.split(images, 2, axis=axis)
    return first if part in ("left", "top") else second


def halves(images: Array, across: Literal["width", "height"] = "width") -> dict[str, Array]:
    """Both halves of every image: `left` and `right`, or `top` and `bottom`.

    Args:
        images: (n, height, width) or (n, height, width, channels).
        across: Side that is halved.

    Raises:
        DataError: That side is odd, or these are no images.

    >>> {name: half.shape for name, half in halves(np.zeros((5, 28, 28))).items()}
    {'left': (5, 28, 14), 'right': (5, 28, 14)}
    """
    parts: tuple[Part, Part] = ("left", "right") if across == "width" else ("top", "bottom")
    return {part: part_of(images, part) for part in parts}
