"""One thing that is checked before a run, without PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cutlayer.errors import CutlayerError


@dataclass(frozen=True)
class PreflightCheck:
    """One thing that was checked.

    Attributes:
        name: What was checked.
        result: What was seen.
        problem: What is wrong and how to fix it; empty if all is well.
        caution: Whether `result` is something that the party may not have meant; it stops nothing.
    """

    name: str
    result: str = ""
    problem: str = ""
    caution: bool = False


def run_check(name: str, check: Callable[[], str]) -> PreflightCheck:
    """The check of what a function returns, or of the error that it raises."""
    try:
        return PreflightCheck(name, check())
    except CutlayerError as failure:
        return PreflightCheck(name, problem=str(failure))
