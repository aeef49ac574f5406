"""Ends a run the same way for every verb: report files, terminal summary, exit code."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from cutlayer.cli.app import emit
from cutlayer.report import Report, build, print_report, render_markdown, write_html, write_junit
from cutlayer.training.folder import RunFolder

GATE_FAILED = 1


def finish(folder: RunFolder, *, as_json: bool, as_markdown: bool = False) -> int:
    """Write the report's files into the run folder and show it.

    Returns:
        The exit code: 1 where a gate failed, or a guarantee that was tested does not hold.
    """
    with folder.locked("a report"):
        report = write_report(folder.path)
    if as_json:
        emit(report.model_dump(mode="json"))
    elif as_markdown:
        sys.stdout.write(render_markdown(report))
    else:
        print_report(report, Console())
    failed = any(not gate.passed for gate in report.gates) or any(test.exceeded for test in report.guarantees)
    return GATE_FAILED if failed else 0


def write_report(path: Path) -> Report:
    """Build the report of a run folder: `report.json`, `report.html` and, where there are gates, `gates.xml`."""
    report = build(path)
    report.write(path / "report.json")
    write_html(report, path / "report.html")
    if report.gates:
        write_junit(report, path / "gates.xml")
    return report
