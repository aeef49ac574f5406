"""Shared by the verbs that predict or release rows: their drift against the training, and its limit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from cutlayer.cli.app import print_error
from cutlayer.errors import ConfigError, DriftExceeded

if TYPE_CHECKING:
    from cutlayer.serving.party_drift import DriftStatistic

MAX_DRIFT_LINES = 5
"""Statistics that are printed; `--json` has all."""


def checked_max_drift(limit: float | None) -> float | None:
    """The limit of `--max-drift`.

    Raises:
        ConfigError: It is no positive number.
    """
    if limit is not None and not (math.isfinite(limit) and limit > 0):
        raise ConfigError.expected("--max-drift above 0", limit, "0.25 is a shift by convention")
    return limit


def drift_lines(rows: Sequence[DriftStatistic]) -> Iterator[str]:
    """Lines on the greatest statistics."""
    known = [(row, row.psi) for row in rows if row.psi is not None]
    if not known:
        yield "  drift against training: not measured, of too few rows"
        return
    yield "  drift against training (PSI; by convention 0.25 is a shift):"
    yield from (f"    {psi:6.3f}  {row.of} at {row.party}" for row, psi in known[:MAX_DRIFT_LINES])
    if len(known) > MAX_DRIFT_LINES:
        yield f"    and {len(known) - MAX_DRIFT_LINES} more, which are lower"


def exit_if_drifted(rows: Sequence[DriftStatistic], limit: float | None, consequence: str) -> None:
    """End the command with the exit code of drift where a statistic is above the limit, after its result is printed."""
    from cutlayer.serving.party_drift import check_drift

    if limit is None:
        return
    try:
        check_drift(rows, limit, consequence)
    except DriftExceeded as failure:
        print_error(str(failure))
        raise typer.Exit(failure.exit_code) from None
