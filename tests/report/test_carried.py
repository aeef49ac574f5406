"""The table of what grades carry: on a partner's page, in its annex, and in the report of a run in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutlayer.data.carried import Carried, CarriedAttribute
from cutlayer.errors import RunFolderError
from cutlayer.report.card.annex import annex_html, annex_markdown
from cutlayer.report.card.passive import passive_card
from cutlayer.report.carried import carried_section
from cutlayer.report.passive.build import build_passive
from cutlayer.report.passive.page import passive_html, passive_markdown
from cutlayer.report.section import Fold
from cutlayer.report.sections import sections_of
from cutlayer.results.report import Report
from tests.report.passive_samples import passive_report
from tests.report.samples import binary
from tests.report.test_passive import folder_of

EVIL = "<script>alert(1)</script>"


def attribute(column: str, share: float) -> CarriedAttribute:
    return CarriedAttribute(column=column, attribute=f"{column} = yes", rows=0.25, bits=0.5 * share, share=share)


def found(columns: int = 7, **changes: object) -> Carried:
    names = ("health", *(f"column {number}" for number in range(columns - 1)))
    each = tuple(attribute(name, 0.66 - 0.05 * at) for at, name in enumerate(names))
    return Carried(**{"grades": 16, "epsilon": 8.0, "bits": 3.67, "attributes": each} | changes)


def test_the_worst_attribute_is_in_sight_and_the_rest_is_folded() -> None:
    report = passive_report(carried={"telco": found()})
    for page in (passive_html(report), annex_html(passive_card(report)), annex_markdown(passive_card(report))):
        assert "A grade of telco is one of 16, drawn at epsilon 8: 3.7 bits of a row at most, on average." in page
        assert "66.0\u00a0%" in page
    section = carried_section(report.carried)
    assert section is not None
    assert len(section.answers[0].text.split()) < 40
    (fold,) = [block for block in section.blocks if isinstance(block, Fold)]
    assert "column 5" in str(fold)
    assert "column 5" not in str([block for block in section.blocks if block is not fold])
    assert "column 5" not in passive_markdown(report)
    assert carried_section({}) is None
    assert "carried" not in {section.anchor for section in sections_of(Report.model_validate(binary()))}


def test_cells_are_said_to_reveal_columns() -> None:
    report = Report.model_validate(binary()).model_copy(update={"carried": {"telco": found(of="columns")}})
    (section,) = [section for section in sections_of(report) if section.anchor == "carried"]
    assert "A cell of telco" in section.answers[0].text
    assert "R² .63" in section.answers[0].text
    assert "R²" not in str(carried_section({"telco": found()}))


@pytest.mark.parametrize("text", ["{", "[]", '{"grades": 16}', found().model_dump_json().replace("3.67", "-4")])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    path = folder_of(tmp_path / "run") / "checkpoint" / "telco" / "carried.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(RunFolderError, match=r"carried\.json is damaged .*; run the job again"):
        build_passive(tmp_path / "run")


def test_names_of_a_record_are_escaped(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "run") / "checkpoint" / "telco" / "carried.json"
    path.parent.mkdir(parents=True)
    path.write_text(found(attributes=(attribute(EVIL, 0.5),)).model_dump_json())
    report = build_passive(tmp_path / "run")
    for page in (passive_html(report), annex_html(passive_card(report))):
        assert EVIL not in page
        assert "&lt;script&gt;" in page
