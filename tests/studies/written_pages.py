"""The page of a study as a reader finds it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from studies import write_page
from studies.base import Found, Study


def page_of(study: Study, found: list[Found], out: Path) -> str:
    """The page as written; its figures are there, are pictures, and there are no others."""
    out.mkdir()
    write_page(study, found, out, 3)
    page = (out / "page.md").read_text()
    shown = re.findall(r"!\[[^]]+\]\(figures/([^)]+)\)", page)
    assert sorted(shown) == sorted(path.name for path in (out / "figures").iterdir())
    for name in shown:
        assert ElementTree.parse(out / "figures" / name).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    return page
