"""The run's report: one JSON document, and its views as a page, in a terminal, as JUnit XML and as Markdown."""

from cutlayer.report.build import build
from cutlayer.report.html import render_html, write_html
from cutlayer.report.junit import write_junit
from cutlayer.report.markdown import matrix_markdown
from cutlayer.report.model import Report
from cutlayer.report.terminal import print_report

__all__ = ["Report", "build", "matrix_markdown", "print_report", "render_html", "write_html", "write_junit"]
