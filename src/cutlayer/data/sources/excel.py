"""A sheet of an Excel workbook: its first line names the columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from io import BytesIO
from typing import Any

import pyarrow as pa

from cutlayer.data.faults import fault
from cutlayer.data.sources.base import FileSource, Names, first_line
from cutlayer.data.sources.excel_size import memory_of
from cutlayer.data.sources.size_limit import SHARE, SizeLimit
from cutlayer.errors import ConfigError

_EXACT = 2.0**53
"""Excel has floats alone: from here on, not every whole number."""


class ExcelSource(FileSource):
    """A sheet of a workbook, read by python-calamine; it is in memory as a whole, since it has a million rows at most.

    A column has the type that all of its cells have: truth values, whole numbers, numbers, dates or times. Others are
    text, of which the texts of `config.missing` are missing.
    """

    format = "excel"
    endings = (".xlsx",)

    def read_names(self) -> Sequence[str]:
        """Names of the columns: the cells of the first line."""
        lines = self._lines()
        names = [str(cell).strip() for cell in lines[0]] if lines else []
        rows = [[self._value(cell) for cell in line] for line in lines[1:]]
        columns = [[row[number] for row in rows] for number in range(len(names))]
        for number, (name, cells) in enumerate(zip(names, columns, strict=True), 1):
            if not name and any(cell is not None for cell in cells):
                raise fault(self.where, "a name for each column that has values", f"none for column {number:,}")
        self._columns = {name: _typed(cells) for name, cells in zip(names, columns, strict=True) if name}
        self.rows = len(lines) - 1
        return [name for name in names if name]

    def read_pieces(self, names: list[str], size: int, as_text: Names, coded: Names) -> Iterator[pa.Table]:
        """Columns of these names in this order, all rows at once."""
        yield pa.table({name: self._columns[name] for name in names})

    def _lines(self) -> list[list[Any]]:
        try:
            import python_calamine
        except ModuleNotFoundError:
            raise ConfigError.expected(
                f"{self.where}: the package python-calamine", "none", "pip install 'cutlayer[excel]'"
            ) from None
        limit = SizeLimit(self.where, self.most // SHARE)  # all of it will be in memory
        limit.add_archive(self.config.path)
        try:
            limit.add(memory_of(self.config.path))
            book = python_calamine.load_workbook(BytesIO(self.config.path.read_bytes()))  # by its content
            sheets = {name: book.get_sheet_by_name(name) for name in book.sheet_names}
            filled = [name for name, sheet in sheets.items() if sheet.height] or [*sheets][:1]
            # Not a page of notes, nor a sheet with names of columns alone.
            filled = [name for name in filled if min(sheets[name].height, sheets[name].width) > 1] or filled
            name = self.config.sheet or (filled[0] if len(filled) == 1 else "")
            if name not in sheets:
                got = repr(name) if name else f"{len(filled)} with rows"
                raise fault(
                    self.where,
                    f"table.sheet of {', '.join(filled)}",
                    got,
                    "name one of them, or save it in a file of its own",
                )
            lines: list[list[Any]] = sheets[name].to_python()
        except (python_calamine.CalamineError, python_calamine.PasswordError, ValueError) as failure:
            raise fault(self.where, "an Excel workbook without a password", first_line(failure)) from None
        except BaseException as failure:
            if type(failure).__name__ != "PanicException":  # of Rust, which is no `Exception`
                raise
            raise fault(self.where, "numbers and dates that Excel has", first_line(failure)) from None
        return lines

    def _value(self, cell: Any) -> Any:
        text = cell.strip() if isinstance(cell, str) else cell
        return None if isinstance(text, str) and text in ("", *self.config.missing) else text


def _typed(cells: list[Any]) -> pa.Array:
    """Cells of a column, `None` where one is missing, in the type of all of them."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {int, float}:
        whole = all(cell is None or (float(cell).is_integer() and abs(cell) < _EXACT) for cell in cells)
        return pa.array([None if cell is None else int(cell) if whole else float(cell) for cell in cells])
    if kinds == {bool}:
        return pa.array(cells)
    if kinds == {date}:
        return pa.array(cells, pa.date32())
    if kinds <= {date, datetime}:
        return pa.array([None if cell is None else _moment(cell) for cell in cells], pa.timestamp("us"))
    return pa.array([None if cell is None else _text(cell) for cell in cells], pa.string())


def _moment(cell: date) -> datetime:
    return cell if isinstance(cell, datetime) else datetime(cell.year, cell.month, cell.day)


def _text(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return cell.isoformat() if isinstance(cell, date) else str(cell)
