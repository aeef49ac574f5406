"""Each coded finding by its least case, their order, and gates."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cutlayer.audit import Finding, GuaranteeTest, LeakFigure, findings_of, gates_of
from cutlayer.protections.base import Evidence
from cutlayer.results.completion import CompletionResult, VariantValue

QUIET: dict[str, Any] = {
    "undefended": None,
    "evidence": [],
    "metric": "auc",
    "utility": (0.8, 0.75, 0.5),
    "skipped": {},
}


def figure(value: float = 0.7, low: float | None = None, high: float | None = None, **more: Any) -> LeakFigure:
    """A leak with enough rows of both classes, and an interval of 0.05 to either side."""
    given = {"label": "p/gradient/norm", "attack": "norm", "positives": 100, "rows": 400, **more}
    return LeakFigure(
        value=value,
        low=max(0.5, value - 0.05) if low is None else low,
        high=value + 0.05 if high is None else high,
        **given,
    )


def found(leaks: list[LeakFigure] | None = None, **changed: Any) -> list[Finding]:
    options = QUIET | changed
    return findings_of([figure()] if leaks is None else leaks, **options)


def evidence(changed: int, sent: int = 10) -> Evidence:
    return Evidence("max_norm", "bank", "messages", covered=sent, sent=sent, changed=changed)


def completed(low: float) -> CompletionResult:
    """A completed model whose strongest variant has that lower bound; from scratch reaches 0.6 at most."""
    frozen = VariantValue(variant="frozen MLP, supervised", value=0.6, low=0.5, high=0.7)
    tuned = VariantValue(variant="tuned MLP, supervised", value=0.7, low=low, high=0.8)
    return CompletionResult(
        run="this run",
        party="telco",
        attack="model_completion",
        labels=40,
        all_labels=False,
        variants=(frozen, tuned),
        scratch=(VariantValue(variant="tuned", value=0.55, low=0.5, high=0.6),),
    )


def played(bound: float) -> GuaranteeTest:
    """A guarantee of epsilon 1, with that bound."""
    return GuaranteeTest("label_dp", "bank", "labels", 1.0, 0.0, bound, 5.0, 0.999, 1000, 3)


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def test_a_run_without_fault_has_no_findings() -> None:
    assert found() == []
    assert found(evidence=[evidence(10)], undefended=[figure(0.9)]) == []


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "CL101": ({"evidence": [evidence(0)]}, {"evidence": [evidence(1)]}),
    "CL102": ({"undefended": [figure(0.52)]}, {"undefended": [figure(0.56)]}),
    "CL104": ({"leaks": [figure(positives=49)]}, {"leaks": [figure(positives=50)]}),
    "CL105": ({"utility": (0.52, 0.49, 0.5)}, {"utility": (0.52, 0.501, 0.5)}),
    "CL106": ({"leaks": []}, {"leaks": [figure()]}),
    "CL108": ({"completions": [completed(0.61)]}, {"completions": [completed(0.59)]}),
    "CL109": ({"tested": [played(1.01)]}, {"tested": [played(1.0)]}),
    "CL107": ({"skipped": {"p/gradient/direction": "no positive"}}, {"skipped": {}}),
}


@pytest.mark.parametrize("code", CASES)
def test_a_finding_comes_where_it_must_and_not_beyond(code: str) -> None:
    triggers, spares = CASES[code]
    [finding] = found(**triggers)
    assert finding.code == code
    assert finding.title
    assert finding.detail
    assert finding.remedy
    assert found(**spares) == []


@pytest.mark.parametrize(
    "leak",
    [
        figure(positives=351),
        figure(math.nan),
        figure(positives=0, value=math.nan),
    ],
    ids=["few negatives", "undefined", "no positive"],
)
def test_few_rows_of_either_class_are_told(leak: LeakFigure) -> None:
    assert codes(found([leak])) == ["CL104"]


def test_an_undefined_twin_is_no_sign_of_a_powerless_attack() -> None:
    assert found(undefended=[figure(math.nan)]) == []


@pytest.mark.parametrize("utility", [(0.6, math.nan, 0.5), (0.5, 0.4, 0.5), (0.4, 0.3, 0.5)])
def test_a_model_that_is_not_surely_above_chance_is_told(utility: tuple[float, float, float]) -> None:
    assert codes(found(utility=utility)) == ["CL105"]


def test_a_protection_that_had_nothing_to_cover_is_not_blamed() -> None:
    assert found(evidence=[evidence(0, sent=0)]) == []


def test_errors_come_first_then_warnings_then_notes_by_code() -> None:
    findings = found(
        [figure(0.7), figure(positives=3)], evidence=[evidence(0)], skipped={"x": "y"}, undefended=[figure(0.5)]
    )
    assert codes(findings) == ["CL101", "CL102", "CL104", "CL107"]
    order = [("error", "warning", "note").index(finding.severity) for finding in findings]
    assert order == sorted(order)


def test_every_code_keeps_its_severity() -> None:
    severities = {code: found(**triggers)[0].severity for code, (triggers, _) in CASES.items()}
    assert severities == dict.fromkeys(CASES, "warning") | {"CL107": "note", "CL109": "error"}


@pytest.mark.parametrize(
    ("values", "limit", "passed", "worst"),
    [
        ([0.55, 0.59], 0.6, True, 0.59),
        ([0.55, 0.61], 0.6, False, 0.61),
        ([0.61, 0.55], 0.6, False, 0.61),
        ([0.6], 0.6, True, 0.6),
        ([math.nan, 0.55], 0.6, True, 0.55),
        ([1.0], 1.0, True, 1.0),
    ],
)
def test_a_gate_holds_the_worst_leak_against_its_limit(
    values: list[float], limit: float, passed: bool, worst: float
) -> None:
    leaks = [figure(value, label=f"p/gradient/{number}") for number, value in enumerate(values)]
    [gate] = gates_of({"label_auc": limit}, leaks)
    assert gate.passed is passed
    assert gate.worst == pytest.approx(worst)
    assert gate.where == max(leaks, key=lambda leak: -1 if math.isnan(leak.value) else leak.value).label


@pytest.mark.parametrize("leaks", [[], [figure(math.nan)]], ids=["none", "undefined"])
def test_an_unmeasured_leak_passes_no_gate(leaks: list[LeakFigure]) -> None:
    [gate] = gates_of({"label_auc": 1.0}, leaks)
    assert not gate.passed
    assert gate.where == "nothing measured"


def test_without_limits_there_are_no_gates() -> None:
    assert gates_of({}, [figure()]) == []
