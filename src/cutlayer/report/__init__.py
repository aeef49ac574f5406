"""The run's report: one JSON document, and its views as a page, in a terminal, as JUnit XML and as Markdown."""

from cutlayer.report.build import build
from cutlayer.report.html import render_html, write_html
from cutlayer.report.junit import write_junit
from cutlayer.report.markdown import features_markdown, kept_markdown, matrix_markdown, quitting_markdown
from cutlayer.report.terminal import print_report
from cutlayer.results.report import Report

__all__ = [
    "Report",
    "build",
    "features_markdown",
    "kept_markdown",
    "matrix_markdown",
    "print_report",
    "quitting_markdown",
    "render_html",
    "write_html",
    "write_junit",
]
