"""Gates as a JUnit XML file, which build servers read: a leak above its limit is a failed test."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Xml

from cutlayer.report.rounding import printable, value_and_limit
from cutlayer.results.finding import Gate
from cutlayer.results.report import Report
from cutlayer.storage.durable import write_whole


def write_junit(report: Report, path: Path | str) -> Path:
    """Write one test case per gate and return the path; a report without gates gives an empty suite."""
    failed = sum(not gate.passed for gate in report.gates)
    root = Xml.Element("testsuites", tests=str(len(report.gates)), failures=str(failed), errors="0")
    about = {"name": printable(f"cutlayer gates of {report.run.name}"), "timestamp": report.run.created}
    suite = Xml.SubElement(root, "testsuite", root.attrib, skipped="0", time=f"{report.run.seconds:.3f}", **about)
    properties = Xml.SubElement(suite, "properties")
    for name, value in (("run", report.run.id), ("folder", report.run.folder), ("job_digest", report.run.job_digest)):
        Xml.SubElement(properties, "property", name=name, value=printable(value))
    for gate in report.gates:
        suite.append(_case(gate, report.run.name))
    Xml.indent(root)
    path = Path(path)
    write_whole(path, Xml.tostring(root, encoding="utf-8", xml_declaration=True))
    return path


def _case(gate: Gate, job: str) -> Xml.Element:
    worst, limit = value_and_limit(gate.worst, gate.limit)
    name = printable(f"{gate.name} <= {limit}")
    case = Xml.Element("testcase", classname=printable(f"cutlayer.gates.{job}"), name=name, time="0")
    text = printable(f"{gate.name}: worst {worst}, limit {limit} ({gate.where})")
    if gate.passed:
        Xml.SubElement(case, "system-out").text = text
    elif gate.undecided:
        failure = Xml.SubElement(case, "failure", type="GateUndecided", message=text)
        failure.text = "expected all attacks of the default catalogue, got an audit that leaves some out"
    else:
        failure = Xml.SubElement(case, "failure", type="GateFailed", message=text)
        failure.text = f"expected at most {gate.limit!r}, got {gate.worst!r} ({printable(gate.where)})"
    return case
