"""A page of sections without a script: the annex of a privacy card, and the report of a passive party."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from cutlayer.report.html import asset, environment
from cutlayer.report.section import Section


def render_page(
    name: str, kind: str, heading: str, sections: Sequence[Section], *, meta: str, footer: str, verdict: str = ""
) -> str:
    """The page as text; everything that came from a user is escaped, and its policy forbids any load.

    Args:
        name: Name of the job.
        kind: Kind of the page, such as `privacy annex`.
        heading: Sentences at the top.
        sections: Its sections, whose answers are below the heading.
        meta: Small print below them.
        footer: Last sentences.
        verdict: Sentence below the heading; empty for none.
    """
    texts = {"name": name, "kind": kind, "heading": heading, "verdict": verdict, "meta": meta, "footer": footer}
    answers = [answer for section in sections for answer in section.answers]
    style = Markup(asset("report.css"))  # noqa: S704 (the package's own file)
    template = environment("cutlayer.report").get_template("page.html.j2")
    return template.render(**texts, answers=answers, sections=sections, style=style)
