"""The page of a study as it is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from studies.record import Record, write_page
from studies.results import TrialResult
from studies.trials import Study


def page_of(study: Study, results: Sequence[TrialResult], out: Path) -> str:
    """The page; its figures exist, are pictures, and there are no others."""
    out.mkdir()
    write_page(study, Record(study.name, "0.0.0", 3, study.full, "", tuple(results)), out)
    page = (out / f"{study.name}.md").read_text(encoding="utf-8")
    linked = re.findall(r"!\[[^]]+\]\(figures/([^)]+)\)", page)
    folder = out / "figures"
    assert sorted(linked) == sorted(path.name for path in folder.iterdir())
    for name in linked:
        assert ElementTree.parse(folder / name).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    return page
