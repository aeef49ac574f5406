"""A numeric column as scaled float32, by training rows or by a public range."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cutlayer.config import FrozenModel, NumbersConfig
from cutlayer.config.table import Infinite
from cutlayer.data.faults import fault
from cutlayer.storage.row_arrays import chosen_rows, chunks_of

Floats = npt.NDArray[np.float64]
SMOOTH_LIMIT = 3.0
"""Magnitude that numbers of the scale `robust` approach and never exceed."""


class NumberEncoder(FrozenModel):
    """The fitted encoding of a numeric column; plain values, so that it can be saved as JSON.

    A value x becomes (t(x) - offset) / width, where t is the transform; a missing one becomes (fill - offset) / width.
    With `smooth`, the result z becomes z / sqrt(1 + (z / 3)^2): nearly z around 0, and between -3 and 3 for any number.

    Attributes:
        name: Name of the column.
        transform: `none`, or `log1p`: sign(x) * log(1 + |x|).
        fill: Replaces a missing value after the transform; unused if `missing` is `error`.
        offset: Value that becomes 0.
        width: Value above the offset that becomes 1; 0 marks a column that was constant in training, which becomes 0.
        clipped: Values outside of the training range are cut to 0 and 1 (`minmax`).
        smooth: Whether the result is smoothly clipped (`robust`).
        missing: `fill`, or `error` to refuse missing values.
        infinite: `error` to refuse infinite values, or `missing`.
        low: Lowest value of the stated range that values are clipped to before the transform; `None` without a range.
        high: Highest value of that range.
        seen: Lowest and highest number of the training rows; `None` where they had none, or were not looked at.

    Reference of `robust`: Holzmueller, Grinsztajn, Steinwart 2024 (arXiv 2407.04491), section 3. It differs where the
    quartiles are equal, as of a column that is mostly zero: the width is then the standard deviation, not half of the
    range, in which all but the largest values would be nearly the median.
    """

    kind: Literal["number"] = "number"
    name: str
    transform: Literal["none", "log1p"] = "none"
    fill: float = 0.0
    offset: float = 0.0
    width: float = 1.0
    clipped: bool = False
    smooth: bool = False
    missing: Literal["fill", "error"] = "fill"
    infinite: Infinite = "error"
    low: float | None = None
    high: float | None = None
    seen: tuple[float, float] | None = None

    @classmethod
    def from_range(cls, name: str, span: tuple[float, float], config: NumbersConfig) -> NumberEncoder:
        """The scale of a public range, without a look at the rows.

        `minmax` maps the range to 0 to 1; `standard` gives numbers spread evenly over the transformed range mean 0 and
        deviation 1, and `robust` median 0 and interquartile range 1. A missing number becomes the middle of the
        transformed range, or zero as near as the range has it.

        Args:
            name: Name of the column.
            span: Lowest and highest value, finite and ascending.
            config: Transform, scale, and what a missing number becomes.
        """
        ends = transformed(np.array([*span, min(max(0.0, span[0]), span[1])]), config.transform)
        low, high, zero = (float(end) for end in ends)
        middle = low + (high - low) / 2
        offset, width = {
            "standard": (middle, (high - low) / math.sqrt(12)),
            "minmax": (low, high - low),
            "robust": (middle, (high - low) / 2),
            "none": (0.0, 1.0),
        }[config.scale]
        scale = zero if config.missing == "zero" else middle, offset, width
        return cls._scaled(name, config, scale, low=span[0], high=span[1])

    @classmethod
    def fit(cls, name: str, values: Floats, config: NumbersConfig, where: str) -> NumberEncoder:
        """Fit the fill value and the scale.

        Args:
            name: Name of the column.
            values: float64 (n,), training rows only, NaN where missing, no infinity; overwritten.
            config: Transform, scale, and what a missing number becomes.
            where: Name of the data, for error messages.

        Raises:
            DataError: The numbers are too large to be scaled.
        """
        seen = _ends(values)
        with np.errstate(over="ignore", invalid="ignore"):
            for start, end in chunks_of(len(values)):
                values[start:end] = transformed(values[start:end], config.transform)
            fill = _fill(values, config.missing)
            for start, end in chunks_of(len(values)):
                np.copyto(values[start:end], fill, where=np.isnan(values[start:end]))
            scale = fill, *_scale(values, config.scale)
        if not np.isfinite(scale).all():
            raise fault(where, f"numbers below 1e150 in column {name!r}", "larger ones", "or transform: log1p")
        return cls._scaled(name, config, scale, seen=seen)

    @classmethod
    def _scaled(cls, name: str, config: NumbersConfig, scale: tuple[float, float, float], **span: Any) -> NumberEncoder:
        """With the fill value, the offset and the width."""
        fill, offset, width = scale
        return cls(
            name=name,
            transform=config.transform,
            fill=fill,
            offset=offset,
            width=width,
            clipped=config.scale == "minmax",
            smooth=config.scale == "robust",
            missing="error" if config.missing == "error" else "fill",
            infinite=config.infinite,
            **span,
        )

    def apply(self, values: Floats) -> npt.NDArray[np.float32]:
        """Scaled numbers.

        Args:
            values: float64 (n,), NaN where missing.

        Returns:
            float32 (n,); infinite where the result does not fit.
        """
        if self.width == 0:
            return np.zeros(len(values), dtype=np.float32)
        if self.low is not None:
            values = np.clip(values, self.low, self.high)
        values = transformed(values, self.transform)
        values = np.where(np.isnan(values), self.fill, values)
        with np.errstate(over="ignore"):
            scaled = (values - self.offset) / self.width
            if self.smooth:
                scaled = scaled / np.hypot(1, scaled / SMOOTH_LIMIT)  # a square would overflow
            return (np.clip(scaled, 0, 1) if self.clipped else scaled).astype(np.float32)

    def restored(self, scaled: npt.NDArray[np.float32]) -> Floats:
        """Numbers in the units of the table, float64 (n,), from scaled ones: the inverse of `apply`, up to rounding."""
        values = scaled.astype(np.float64)
        if self.smooth:
            inside = np.clip(values / SMOOTH_LIMIT, -1 + 1e-12, 1 - 1e-12)
            values = values / np.sqrt(1 - inside * inside)
        values = values * self.width + self.offset
        return values if self.transform == "none" else np.copysign(np.expm1(np.abs(values)), values)


def transformed(values: Floats, transform: str) -> Floats:
    """Numbers after the transform `none` or `log1p`."""
    return values if transform == "none" else np.copysign(np.log1p(np.abs(values)), values)


def present_values(values: Floats) -> Floats:
    """A copy of the numbers that are not missing."""
    return chosen_rows(len(values), np.float64, lambda part: values[part][~np.isnan(values[part])])


def _ends(values: Floats) -> tuple[float, float] | None:
    """Lowest and highest number, NaN left out; `None` of none."""
    low, high = np.inf, -np.inf
    for start, end in chunks_of(len(values)):
        part = values[start:end]
        low, high = min(low, np.fmin.reduce(part)), max(high, np.fmax.reduce(part))  # NaN compares as neither
    return (float(low), float(high)) if low <= high else None


def _fill(values: Floats, missing: str) -> float:
    present = present_values(values)
    if missing in ("zero", "error") or not len(present):
        return 0.0
    return float(np.median(present, overwrite_input=True) if missing == "median" else present.mean())


def _scale(values: Floats, scale: str) -> tuple[float, float]:
    """Offset and width; the values are overwritten."""
    if scale == "none" or not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    if low == high:
        return low, 0.0
    if scale == "minmax":
        return low, high - low
    if scale == "standard":
        return float(values.mean()), _deviation(values)
    # Where the quartiles are equal, the standard deviation takes the place of their distance.
    copied = present_values(values)
    first, median, third = (float(end) for end in np.quantile(copied, [0.25, 0.5, 0.75], overwrite_input=True))
    return median, third - first if third > first else _deviation(values)


def _deviation(values: Floats) -> float:
    """Standard deviation as `numpy.std`, which would make another array as long; the values are overwritten."""
    values -= values.mean()
    values *= values
    return math.sqrt(values.mean())
