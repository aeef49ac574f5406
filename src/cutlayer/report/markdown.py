"""The leak matrix, and the utility that is left when parties leave, as Markdown tables."""

from __future__ import annotations

from cutlayer.report.completions import kept_of
from cutlayer.report.features import told_of
from cutlayer.report.matrix import Column, Matrix, Row, matrix_of
from cutlayer.report.quitting import quitting_of
from cutlayer.report.rounding import auc, interval, name_of, plain
from cutlayer.results.report import Report

_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>|#~&"} | {"\n": " ", "\r": " "})


def matrix_markdown(report: Report) -> str:
    """A line per party, message and attack, a column per run; leak, 95 % interval and worst epoch."""
    matrix = matrix_of(report)
    if not matrix.columns:
        return "No leak was measured.\n"
    head = ["Party", "Message", "Attack", *(_heading(row) for row in matrix.rows)]
    rule = ["---", "---", "---", *("---:" for _ in matrix.rows)]
    return _table([head, rule, *(_line(matrix, column) for column in matrix.columns)])


def quitting_markdown(report: Report) -> str:
    """A line per set of absent parties: this run's headline metric, its drop, and what others reach."""
    found = quitting_of(report)
    if found is None:
        return "Nobody's leaving was measured.\n"
    others = [name_of(name) for name in found.others]
    figures = [name_of(report.utility.metric), "95 % interval", "Drop", *map(_escaped, found.columns), *others]
    lines = [
        [_escaped(line.absent), _escaped(line.contributed), line.value, line.bounds, line.drop, *rest]
        for line in found.lines
        for rest in [(*line.beside, *line.others)]
    ]
    return _table([["Absent", "Contributed", *figures], ["---", "---", *("---:" for _ in figures)], *lines])


def kept_markdown(report: Report) -> str:
    """A line per completed model: its strongest variant, from scratch on the same labels, and all parties together."""
    found = kept_of(report)
    if found is None:
        return "Nobody's model was completed.\n"
    words = ["Party", "Run", "Attack", "Labels", "Strongest variant"]
    figures = [name_of(report.utility.metric), "95 % interval", "From scratch", "95 % interval", "All parties"]
    lines = [
        [
            *map(_escaped, (line.party, line.run, line.attack, line.labels, line.variant)),
            *(line.strongest, line.bounds, line.scratch, line.scratch_bounds, line.joint),
        ]
        for line in found.lines
    ]
    return _table([words + figures, ["---"] * len(words) + ["---:"] * len(figures), *lines])


def features_markdown(report: Report) -> str:
    """A line per attack on features and release of the embeddings, beside an attacker that saw no embedding."""
    found = told_of(report)
    if found is None:
        return "No attack on features was run.\n"
    words = ["Party", "Run", "Attack", "Column", "Embeddings read", "Measure"]
    figures = ["Reached", "95 % interval", "Without embedding", "Known rows", "Attacked rows", "Further"]
    lines = [
        [
            *map(_escaped, (line.party, line.run, line.attack, line.column, line.release, line.measure)),
            *(line.value, line.bounds, line.baseline, line.known, line.rows),
            "; ".join(_escaped(f"{name} {value}") for name, value in line.further),
        ]
        for line in found.lines
    ]
    return _table([words + figures, ["---"] * len(words) + ["---:"] * len(figures), *lines])


def _table(lines: list[list[str]]) -> str:
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
    return f"**{auc(leak.leak)}** ({interval(leak.low, leak.high)}), epoch {leak.epoch}"


def _escaped(text: str) -> str:
    return plain(text).translate(_SPECIAL)
