"""Numbers, names and times as text: the same on the page, in the terminal and in Markdown."""

from __future__ import annotations

import re
from datetime import datetime

from cutlayer.results.decimals import NOT_AVAILABLE, decimals, minus

HUGE = 1e9
"""Magnitude from which on a metric is written with an exponent."""
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    r"""Text without control characters: a name must not steer a terminal, reverse text or break XML.

    >>> printable("telco\x1b[31m"), printable("a\nb"), printable("a\u2028b\u200f")
    ('telco�[31m', 'a\nb', 'a�b�')
    """
    return text if text.isprintable() else _CONTROL.sub("\ufffd", text)


def auc(value: float | None) -> str:
    """Three digits: a leak, or a difference of two, is rarely known better.

    >>> auc(0.55249), auc(-0.0004), auc(None)
    ('0.552', '0.000', 'n/a')
    """
    return decimals(value)


def interval(low: float | None, high: float | None) -> str:
    """Bounds with the same digits as the value between them.

    >>> interval(0.5311, 0.5729), interval(-0.1, 0.2), interval(None, None)
    ('0.531–0.573', '−0.100 to 0.200', 'n/a')
    """
    if low is None or high is None:
        return NOT_AVAILABLE
    return f"{metric(low)} to {metric(high)}" if low < 0 else f"{metric(low)}–{metric(high)}"


def bounds(low: float | None, high: float | None) -> tuple[str, ...]:
    """An interval as the small print of a cell; nothing where there is none."""
    return () if low is None else (interval(low, high),)


def metric(value: float | None) -> str:
    """A metric or a loss: three decimals, fewer when large, two significant digits of tiny and huge ones, a minus sign.

    Only the exponent of a tiny number has a hyphen, as programs write and read it. A loss can be tiny; scores and
    differences below 0 are rounded to nothing there.

    >>> metric(0.91234), metric(1.0), metric(1234.56), metric(0.00001234), metric(-0.25), metric(-0.0004), metric(-1e13)
    ('0.912', '1.000', '1,234.6', '1.2e-05', '−0.250', '0.000', '−1.0e+13')
    """
    if value is None:
        return NOT_AVAILABLE
    if -0.0005 < value <= 0:
        text = "0.000"
    elif not 0.0005 <= abs(value) < HUGE:
        text = f"{value:.1e}"
    else:
        text = f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3f}"
    return minus(text)


def value_and_limit(value: float | None, limit: float) -> tuple[str, str]:
    """A value and its limit with as many digits as show which is larger.

    >>> value_and_limit(0.6004, 0.6), value_and_limit(0.6, 0.6)
    (('0.6004', '0.6000'), ('0.600', '0.600'))
    >>> value_and_limit(-0.003, 0.0), value_and_limit(None, 0.6)
    (('−0.003', '0.000'), ('n/a', '0.600'))
    """
    digits = 3
    while value is not None and value != limit and digits < 12 and decimals(value, digits) == decimals(limit, digits):
        digits += 1
    return NOT_AVAILABLE if value is None else decimals(value, digits), decimals(limit, digits)


def difference(value: float) -> str:
    """A signed difference of two metrics.

    >>> difference(0.0123), difference(-0.0123), difference(0.0)
    ('+0.012', '−0.012', '0.000')
    """
    return f"+{metric(value)}" if value > 0 else metric(value)


def excess(value: float) -> str:
    """A signed difference of two leaks, to three digits.

    >>> excess(0.0123), excess(-0.0001), excess(-0.0123)
    ('+0.012', '0.000', '−0.012')
    """
    return difference(round(value, 3) + 0.0)  # never -0.000


def amount(value: float | None) -> str:
    """A number of unknown kind: whole numbers without decimals, others as a metric.

    >>> amount(5381.0), amount(0.2689), amount(None)
    ('5,381', '0.269', 'n/a')
    """
    return count(int(value)) if value is not None and value == int(value) else metric(value)


def setting(value: object) -> str:
    """A setting as it was written: never rounded.

    >>> setting(1e-05), setting(1.0), setting({"telco": 0.125}), setting(None)
    ('1e-05', '1.0', 'telco 0.125', 'none')
    """
    if isinstance(value, dict):
        return ", ".join(f"{key} {setting(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(setting(inner) for inner in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def count(value: int) -> str:
    """Thousands apart.

    >>> count(48842)
    '48,842'
    """
    return f"{value:,}"


def size(value: int) -> str:
    r"""Bytes in steps of 1,000.

    >>> size(0), size(999), size(12_345), size(1_234_567_890)
    ('0\xa0B', '999\xa0B', '12.3\xa0kB', '1.23\xa0GB')
    """
    if value < 1000:
        return f"{value}\u00a0B"
    amount = float(value)
    unit = 0
    while amount >= 999.5 and unit < 4:
        amount, unit = amount / 1000, unit + 1
    return f"{_three(amount)}\u00a0{('B', 'kB', 'MB', 'GB', 'TB')[unit]}"


def seconds(value: float | None) -> str:
    r"""A duration.

    >>> seconds(0.0123), seconds(48.23), seconds(192), seconds(7500)
    ('0.012\xa0s', '48.2\xa0s', '3\xa0min 12\xa0s', '2\xa0h 5\xa0min')
    """
    if value is None:
        return NOT_AVAILABLE
    if value < 60:
        return f"{_three(value)}\u00a0s" if value >= 1 else f"{value:.3f}\u00a0s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60}\u00a0min {whole % 60}\u00a0s"
    return f"{whole // 3600}\u00a0h {whole % 3600 // 60}\u00a0min"


def date(stamp: str) -> str:
    """A readable time; a text that is no ISO time stays as it is.

    >>> date("2026-03-01T14:05:09+00:00"), date("today")
    ('1 March 2026, 14:05 UTC', 'today')
    """
    try:
        time = datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    return f"{time.day} {time:%B %Y, %H:%M} {time:%Z}".rstrip()


def rate(value: float | None) -> str:
    """Rows per second.

    >>> rate(95342.7), rate(12.34)
    ('95,343', '12.3')
    """
    if value is None:
        return NOT_AVAILABLE
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def share(part: float, whole: float) -> str:
    r"""A part of a whole in percent; "<0.1" and ">99.9" where rounding would claim none or all.

    >>> share(1, 4), share(0, 4), share(1, 100_000), share(4, 4), share(1, 0)
    ('25.0\xa0%', '0\xa0%', '<0.1\xa0%', '100\xa0%', 'n/a')
    """
    if not whole:
        return NOT_AVAILABLE
    percent = 100 * part / whole
    if percent in (0, 100):
        return f"{percent:.0f}\u00a0%"
    if percent < 0.1:
        return "<0.1\u00a0%"
    return ">99.9\u00a0%" if 99.9 < percent < 100 else f"{percent:.1f}\u00a0%"


def as_sentence(text: str) -> str:
    """A phrase as a sentence.

    >>> as_sentence("no id left the machine")
    'No id left the machine.'
    """
    return f"{text[0].upper()}{text[1:]}."


def times(number: int, noun: str) -> str:
    """A number with its noun.

    >>> times(1, "error"), times(2, "party")
    ('1 error', '2 parties')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"


def _three(amount: float) -> str:
    """Three significant digits of a number from 1 to 999.

    >>> _three(1.2345), _three(12.345), _three(123.45)
    ('1.23', '12.3', '123')
    """
    return f"{amount:.0f}" if amount >= 99.95 else f"{amount:.1f}" if amount >= 9.995 else f"{amount:.2f}"
