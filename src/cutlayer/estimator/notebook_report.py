"""The report of a fit, which a notebook shows as the page that a run folder has."""

from __future__ import annotations

import html

from cutlayer.report.html import render_html
from cutlayer.results.report import Report

HEIGHT = 640
"""Height of the frame in pixels; the page scrolls inside."""


class NotebookReport(Report):
    """A report that notebooks display as its page instead of its fields."""

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that its styles and the notebook's do not meet."""
        page = html.escape(render_html(self), quote=True)
        style = f"width: 100%; height: {HEIGHT}px; border: 1px solid #8888"
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" title="Cutlayer report" style="{style}"></iframe>'


def for_notebook(report: Report) -> NotebookReport:
    """The same report, as a notebook displays it."""
    return NotebookReport.model_construct(report.model_fields_set, **dict(report))
