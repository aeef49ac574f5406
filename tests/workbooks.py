"""Writes Excel workbooks for tests, as other programs do."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def write_workbook(path: Path, sheets: Mapping[str, Iterable[Sequence[Any]]]) -> None:
    """Write sheets by name; cells are numbers, texts, truth values, dates, or None."""
    named = list(enumerate(sheets.items(), 1))
    listed = "".join(f'<sheet name="{escape(name)}" sheetId="{n}" r:id="r{n}"/>' for n, (name, _) in named)
    links = "".join(f'<Relationship Id="r{n}" Type="{_OFFICE}/worksheet" Target="s{n}.xml"/>' for n, _ in named)
    styles = '<numFmts/><cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
    with zipfile.ZipFile(path, "w") as book:
        parts = "".join(f'<Override PartName="/xl/s{n}.xml" ContentType="x"/>' for n, _ in named)
        book.writestr("[Content_Types].xml", f"<Types>{parts}</Types>")
        main = f'<Relationship Id="r1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
        book.writestr("_rels/.rels", f'<Relationships xmlns="{_RELATIONS}">{main}</Relationships>')
        sheet_list = f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{listed}</sheets></workbook>'
        book.writestr("xl/workbook.xml", sheet_list)
        style = f'<Relationship Id="rs" Type="{_OFFICE}/styles" Target="styles.xml"/>'
        related = f'<Relationships xmlns="{_RELATIONS}">{links}{style}</Relationships>'
        book.writestr("xl/_rels/workbook.xml.rels", related)
        book.writestr("xl/styles.xml", f'<styleSheet xmlns="{_MAIN}">{styles}</styleSheet>')
        for number, (_, rows) in named:
            lines = "".join(f'<row r="{at}">{"".join(map(_cell, row))}</row>' for at, row in enumerate(rows, 1))
            book.writestr(f"xl/s{number}.xml", f'<worksheet xmlns="{_MAIN}"><sheetData>{lines}</sheetData></worksheet>')


def _cell(value: Any) -> str:
    if value is None:
        return "<c/>"
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, date):
        return f'<c s="1"><v>{(value - date(1899, 12, 30)).days}</v></c>'
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
    return f"<c><v>{value!r}</v></c>"
