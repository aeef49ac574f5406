"""The leak matrix as a Markdown table."""

from __future__ import annotations

from cutlayer.report.matrix import Column, Matrix, Row, matrix_of
from cutlayer.report.model import Report
from cutlayer.report.rounding import auc, interval, plain

_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>|#~&"} | {"\n": " ", "\r": " "})


def matrix_markdown(report: Report) -> str:
    """A line per party, message and attack, a column per run; leak AUC, 95 % interval and worst epoch."""
    matrix = matrix_of(report)
    if not matrix.columns:
        return "No leak was measured.\n"
    head = ["Party", "Message", "Attack", *(_heading(row) for row in matrix.rows)]
    rule = ["---", "---", "---", *("---:" for _ in matrix.rows)]
    lines = [head, rule, *(_line(matrix, column) for column in matrix.columns)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _heading(row: Row) -> str:
    return _escaped(row.run) + (f"<br>{_escaped(row.note)}" if row.note else "")


def _line(matrix: Matrix, column: Column) -> list[str]:
    words = [_escaped(column.party), _escaped(column.message), _escaped(column.attack)]
    return words + [_cell(matrix, row, column) for row in matrix.rows]


def _cell(matrix: Matrix, row: Row, column: Column) -> str:
    leak = matrix.cell(row.run, column)
    if leak is None:
        return "not run"
    return f"**{auc(leak.auc)}** ({interval(leak.low, leak.high)}), epoch {leak.epoch}"


def _escaped(text: str) -> str:
    return plain(text).translate(_SPECIAL)
