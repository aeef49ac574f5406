"""Tables as LaTeX, without packages."""

from __future__ import annotations

from cutlayer.report.rounding import printable
from cutlayer.report.section import Cell, Table

_SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "±": r"$\pm$",
    "−": "$-$",
    "\u00a0": "~",
    "\n": " ",
}


def table_tex(table: Table) -> str:
    """A `tabular` in a `table`, without the columns that are for the page alone; texts of users cannot break it."""
    table = table.brief
    kinds = "".join("r" if column.kind == "number" else "l" for column in table.columns)
    head = " & ".join(escape_tex(column.name) for column in table.columns)
    rows = [" & ".join(map(_cell, row.cells)) + r" \\" for row in table.rows]
    caption = rf"\caption{{{escape_tex(table.caption)}}}"
    lines = [r"\begin{table}", r"\centering", caption, rf"\begin{{tabular}}{{{kinds}}}"]
    lines += [r"\hline", rf"{head} \\", r"\hline", *rows, r"\hline", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def escape_tex(text: str) -> str:
    r"""Text as LaTeX prints it.

    >>> escape_tex("noisy_sign & 0.5 ± 0.1")
    'noisy\\_sign \\& 0.5 $\\pm$ 0.1'
    """
    return "".join(_SPECIAL.get(character, character) for character in printable(text))


def _cell(cell: Cell) -> str:
    return escape_tex(" ".join((cell.text, *cell.lines)))
