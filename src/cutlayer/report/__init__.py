"""Views of a run's results: a page, a terminal, Markdown and JUnit XML."""

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.report.html import render_html, write_html
    from cutlayer.report.junit import write_junit
    from cutlayer.report.markdown import render_markdown
    from cutlayer.report.terminal import print_report
    from cutlayer.results.report import Report
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "Report": "cutlayer.results.report",
            "print_report": ".terminal",
            "render_html": ".html",
            "render_markdown": ".markdown",
            "write_html": ".html",
            "write_junit": ".junit",
        },
    )

__all__ = ["Report", "print_report", "render_html", "render_markdown", "write_html", "write_junit"]
