"""How a check states a fault."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cutlayer.errors import CutlayerError


def expect(holds: bool, wanted: str, got: object, remedy: str = "") -> None:
    """State a fault unless something holds.

    Raises:
        AssertionError: It does not.
    """
    if not holds:
        raise AssertionError(str(CutlayerError.expected(wanted, got, remedy)))


@contextmanager
def refuses(error: type[CutlayerError], name: str, what: str) -> Iterator[None]:
    """Expect an error with a text in it.

    Args:
        error: Class of the error.
        name: Text that its message must have.
        what: Description of what must be refused.

    Raises:
        AssertionError: There was no such error.
    """
    wanted = f"{error.__name__} with {name!r} in its message for {what}"
    try:
        yield
    except error as failure:
        expect(name in str(failure), wanted, failure)
    else:
        raise AssertionError(str(CutlayerError.expected(wanted, "none")))


def states_its_paper(kind: Any) -> None:
    """A name, and the paper with its year, which the docstring has as well."""
    expect(re.fullmatch(r"[a-z][a-z0-9_]*", kind.name) is not None, "a `name` as in a_name_2", repr(kind.name))
    dated = re.search(r"\d{4}|this project", kind.reference) is not None
    expect(dated, "a `reference` with a paper's year, or 'this project'", repr(kind.reference))
    expect("Reference:" in (kind.__doc__ or ""), "a paragraph `Reference:` in the docstring", "none")
    tasks = {"binary", "multiclass", "regression"}
    expect(kind.tasks <= tasks, f"`tasks` of {sorted(tasks)}", sorted(kind.tasks))


def reads_more(kind: Any, what: object, found: float, limit: float) -> None:
    """A leak is above a limit."""
    turned = "higher scores must mean the positive class: turn the sign" if found < 0.5 else ""
    expect(found > limit, f"{kind.name} on {what} above {limit} undefended", f"{found:.3f}", turned)
