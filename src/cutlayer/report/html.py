"""One self-contained page: styles, charts and data inside, no request to anywhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from cutlayer.report import rounding
from cutlayer.report.glance import glance_section
from cutlayer.report.headline import headline_sentences
from cutlayer.report.history import shown_epochs
from cutlayer.report.markdown import escape_markdown
from cutlayer.report.sections import sections_of, verdict
from cutlayer.results.completion import VariantValue, best
from cutlayer.results.metric_names import name_of
from cutlayer.results.report import Report
from cutlayer.storage.durable import write_whole

if TYPE_CHECKING:
    from jinja2 import Environment


MAX_EMBEDDED = 1_000_000
_CODE = re.compile(r"(`[^`]+`|\bdocs/[\w/-]+\.md\b)")
_CLASSES = {
    name: Markup(classes)  # noqa: S704 (constants)
    for name, classes in {"number": "n", "text": "words", "statement": "words wide", "label": ""}.items()
}
"""Classes of a column's cells by its kind."""
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}

_FILTERS = ("auc", "metric", "times", "count", "seconds", "date")
"""Functions of `rounding` that templates use."""


def render_html(report: Report) -> str:
    """The page as text.

    Everything that came from a user (names, settings, the job) is escaped. A content security policy inside the page
    forbids any load, and any script but its own, whatever a name may try.
    """
    script = asset("report.js")
    data, whole = embedded_json(report)
    template = environment("cutlayer.report").get_template("report.html.j2")
    return template.render(
        report=report,
        headline=headline_sentences(report),
        verdict=verdict(report),
        glance=glance_section(report),
        sections=sections_of(report),
        style=Markup(asset("report.css")),  # noqa: S704 (the package's own file)
        script=Markup(script),  # noqa: S704 (the package's own file)
        policy=_policy(script),
        data=data,
        whole=whole,
    )


def write_html(report: Report, path: Path | str) -> Path:
    """Write the page whole or not at all, and return its path."""
    path = Path(path)
    write_whole(path, render_html(report))
    return path


def embedded_json(report: Report) -> tuple[Markup, bool]:
    """The report's JSON, safe inside a script element, and whether it is the whole.

    A history of thousands of epochs would take the page over its size: then the epochs the page shows stand for all.
    """
    text = report.model_dump_json()
    whole = len(text) <= MAX_EMBEDDED
    if not whole:
        text = report.model_copy(update={"history": shown_epochs(report)}).model_dump_json()
    for character, written in _UNSAFE.items():
        text = text.replace(character, written)
    return Markup(text), whole  # noqa: S704 (nothing in it can end the element)


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def environment(package: str) -> Environment:
    """The templates of a package, and those of the report, which it may import; of HTML all values are escaped.

    Args:
        package: Package with a folder `templates`.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("cutlayer.report")]),
        autoescape=select_autoescape(["html.j2"], ["md.j2"], default=True),  # in Markdown a user's text passes `md`
        undefined=StrictUndefined,
        finalize=lambda value: rounding.printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(rounding, name) for name in _FILTERS} | {
        "best": _best,
        "css": _CLASSES.__getitem__,
        "kind": lambda value: type(value).__name__,
        "marked": mark_code,
        "md": escape_markdown,
        "name_of": name_of,
    }
    return environment


def _best(variants: Sequence[VariantValue]) -> str:
    strongest = best(variants)
    return rounding.metric(strongest.value if strongest else None)


def mark_code(text: str) -> Markup:
    """Escaped text, in which what stands in backticks, or is the path of a page of the documentation, is set as code.

    >>> mark_code("see `cutlayer list` and docs/concepts.md"), mark_code("`<b>`")
    (Markup('see <code>cutlayer list</code> and <code>docs/concepts.md</code>'), Markup('<code>&lt;b&gt;</code>'))
    """
    parts = _CODE.split(rounding.printable(text))  # plain text, code, plain text, ...
    if len(parts) == 1:  # most cells of most tables
        return escape(parts[0])
    template = Markup("<code>{}</code>")
    return Markup("").join(template.format(part.strip("`")) if index % 2 else part for index, part in enumerate(parts))


def asset(name: str) -> str:
    """A style sheet or script that all pages share, as text."""
    return resources.files("cutlayer.report").joinpath("templates", name).read_text(encoding="utf-8").strip()
