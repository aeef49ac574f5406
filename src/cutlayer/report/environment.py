"""Templates of pages: every text is escaped and free of control characters, every missing name an error."""

from __future__ import annotations

from functools import cache
from importlib import resources

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from cutlayer.report import rounding


@cache
def environment(package: str) -> Environment:
    """The templates of a package, and those of the report, which it may import.

    Args:
        package: Package with a folder `templates`.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("cutlayer.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: rounding.plain(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("auc", "metric", "name_of", "times", "count", "seconds", "date"):
        made.filters[name] = getattr(rounding, name)
    made.filters["kind"] = lambda value: type(value).__name__
    return made


def asset(name: str) -> str:
    """A style sheet or script that all pages share, as text."""
    return resources.files("cutlayer.report").joinpath("templates", name).read_text(encoding="utf-8").strip()
