"""Views of a run's results: a page, a terminal, Markdown and JUnit XML."""

from cutlayer.report.build import build
from cutlayer.report.html import render_html, write_html
from cutlayer.report.junit import write_junit
from cutlayer.report.markdown import render_markdown
from cutlayer.report.terminal import print_report
from cutlayer.results.report import Report

__all__ = ["Report", "build", "print_report", "render_html", "render_markdown", "write_html", "write_junit"]
