from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Xml

from cutlayer.report.junit import write_junit
from cutlayer.results.report import Report
from tests.report.samples import regression


def test_one_case_per_gate_and_a_failure_with_its_reason(report: Report, tmp_path: Path) -> None:
    root = Xml.parse(write_junit(report, tmp_path / "gates.xml")).getroot()
    suite = root[0]
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["label_auc <= 0.600", "utility_drop <= 0.020"]
    failure = cases[0].find("failure")
    assert failure is not None
    assert failure.get("message") == "label_auc: worst 0.612, limit 0.600 (census/gradient/spectral, epoch 3)"
    assert cases[1].find("failure") is None


def test_no_gate_is_an_empty_suite(tmp_path: Path) -> None:
    path = write_junit(Report.model_validate(regression()), tmp_path / "gates.xml")
    assert Xml.parse(path).getroot().get("tests") == "0"


def test_names_cannot_break_the_xml(hostile_report: Report, tmp_path: Path) -> None:
    root = Xml.parse(write_junit(hostile_report, tmp_path / "gates.xml")).getroot()
    failure = root.find(".//failure")
    assert failure is not None
    assert "<script>alert(1)</script>" in str(failure.get("message"))


def test_an_unmeasured_gate_fails(report: Report, tmp_path: Path) -> None:
    gate = report.gates[0].model_copy(update={"worst": None, "where": "nothing measured"})
    path = write_junit(report.model_copy(update={"gates": (gate,)}), tmp_path / "gates.xml")
    failure = Xml.parse(path).getroot().find(".//failure")
    assert failure is not None
    assert failure.get("message") == "label_auc: worst n/a, limit 0.600 (nothing measured)"
