"""The formats in which people write dates, numbers and truth values as text, one for each column that has one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field

from cutlayer.config.base import FrozenModel

_NUMBER = re.compile(r"(?P<before>[^\d.,+-]*)[+-]?(?P<digits>\d(?:[\d.,' \u00a0\u202f]*\d)?)(?P<after>[^\d]*)")
_SEPARATORS = ".,' \u00a0\u202f"
_DIRECTIVES = frozenset("aAbBdmyYHIpMSfzZjT-")
_DATE_PARTS = ({"Y", "y"}, {"m", "b", "B"}, {"d"})


class NumberLayout(FrozenModel):
    """How a number is written.

    Attributes:
        before: Text before the number, such as the sign of a currency; spaces around it do not count.
        after: Text after it, such as `€` or `%`.
        thousands: Character between groups of three digits; empty without one.
        decimal: Character before the decimals.
    """

    before: str = ""
    after: str = ""
    thousands: str = ""
    decimal: str = "."

    @classmethod
    def of(cls, example: str) -> NumberLayout:
        """The layout of an example.

        Raises:
            ValueError: It is no number, or it does not tell which character comes before the decimals.

        >>> layout = NumberLayout.of("1.234,50 €")
        >>> layout.after, layout.thousands, layout.decimal
        ('€', '.', ',')
        """
        match = _NUMBER.fullmatch(example.strip())
        if match is None:
            raise ValueError(f"an example of a number, such as 1.234,50 €, got {example!r}")
        digits = match["digits"]
        found = [character for character in digits if character in _SEPARATORS]
        kinds = list(dict.fromkeys(found))
        groups = re.split(f"[{re.escape(_SEPARATORS)}]", digits)
        grouped = [len(group) == 3 for group in groups[1:]]
        unclear = f"an example that shows thousands and decimals, such as 1{kinds[0] if kinds else ','}234"
        if len(kinds) > 2 or (len(kinds) == 2 and (found.count(kinds[1]) > 1 or not all(grouped[:-1]))):
            raise ValueError(f"an example of a number, such as 1.234,50 €, got {example!r}")
        around = {"before": match["before"].strip(), "after": match["after"].strip()}
        if len(kinds) == 2:
            return cls(thousands=kinds[0], decimal=kinds[1], **around)
        if not kinds:
            return cls(**around)
        if len(found) > 1 or kinds[0] not in ".,":
            if not all(grouped):
                raise ValueError(f"an example of a number, such as 1.234,50 €, got {example!r}")
            return cls(thousands=kinds[0], decimal="," if kinds[0] == "." else ".", **around)
        if grouped == [True]:
            raise ValueError(f"{unclear}{'.' if kinds[0] == ',' else ','}50, got {example!r}, which may be either")
        return cls(decimal=kinds[0], thousands="", **around)


def _date(layout: str) -> str:
    directives = re.findall(r"%-?(.)", layout.replace("%%", ""))
    if unknown := [letter for letter in directives if letter not in _DIRECTIVES]:
        raise ValueError(f"directives of strptime such as %Y, %m and %d, got %{unknown[0]}")
    if "j" not in directives and not all(part & set(directives) for part in _DATE_PARTS):
        raise ValueError(f"a date with year, month and day, such as %d.%m.%Y, got {layout!r}")
    return layout


def _number(example: str) -> str:
    NumberLayout.of(example)
    return example


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"a time zone such as Europe/Berlin, got {name!r}") from None
    return name


class ColumnFormat(FrozenModel):
    """The format of a column of text. Exactly one of `date`, `number` and `boolean` is stated.

    Attributes:
        date: Layout of a date, or of a date with a time, as `strptime` has it: `%d.%m.%Y`.
        zone: Time zone of a time that states none, such as `Europe/Berlin`; UTC by default.
        number: Example of a number, with its unit and its separators: `$25,050.13`, `1.234,50 €` or `16.1 %`. The value
            is the number as it is written: 16.1, not .161.
        boolean: The word that means true, then the word that means false; capital letters do not count.
    """

    date: Annotated[str, AfterValidator(_date)] | None = None
    zone: Annotated[str, AfterValidator(_zone)] | None = None
    number: Annotated[str, AfterValidator(_number)] | None = None
    boolean: Annotated[tuple[str, str], Field(min_length=2, max_length=2)] | None = None

    @property
    def layout(self) -> NumberLayout | None:
        """How its numbers are written; `None` of another kind."""
        return None if self.number is None else NumberLayout.of(self.number)

    def _faults(self) -> Iterator[str]:
        stated = [name for name in ("date", "number", "boolean") if getattr(self, name) is not None]
        if len(stated) != 1:
            yield f"one of date, number and boolean, got {' and '.join(stated) or 'none'}"
        if self.zone is not None and self.date is None:
            yield "zone with date alone, got it without"
        if self.boolean is not None and self.boolean[0].strip().lower() == self.boolean[1].strip().lower():
            yield f"two words, the one for true first, got {self.boolean[0]!r} twice"
