"""How pages are made from templates: every text escaped and plain, every missing name an error."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined

from cutlayer.report import rounding


def environment(package: str, filters: Iterable[str]) -> Environment:
    """Templates of one package.

    Args:
        package: whose folder `templates` is read.
        filters: names of functions of `rounding` that the templates use.
    """
    made = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: rounding.plain(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in filters:
        made.filters[name] = getattr(rounding, name)
    return made


def asset(name: str) -> str:
    """A style sheet or script that all pages share, as text."""
    return resources.files("cutlayer.report").joinpath("templates", name).read_text(encoding="utf-8").strip()
