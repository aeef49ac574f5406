"""How a number of a result is written: without pydantic, which the start of a verb need not wait for."""

from __future__ import annotations

NOT_AVAILABLE = "n/a"
"""Text of a number that is not defined."""


def decimals(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals and a minus sign (not a hyphen) below 0; never −0.000, and n/a for `None`.

    >>> decimals(0.12345), decimals(-0.25), decimals(-0.0001), decimals(-0.25, 4), decimals(None)
    ('0.123', '−0.250', '0.000', '−0.2500', 'n/a')
    """
    if value is None:
        return NOT_AVAILABLE
    return minus(f"{round(value, digits) + 0.0:.{digits}f}")


def minus(text: str) -> str:
    """A formatted number with a minus sign in place of a leading hyphen."""
    return f"−{text[1:]}" if text.startswith("-") else text
