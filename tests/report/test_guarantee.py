"""The guarantee, tested: the same words on the page and in the terminal, and no section where nothing was tested."""

from __future__ import annotations

from typing import Any

import pytest

from cutlayer.accounting.events import GaussianRelease, RandomizedGrade
from cutlayer.accounting.ledger import Entry, Ledger
from cutlayer.accounting.plan import ReleasePlan
from cutlayer.accounting.wording import with_bound
from cutlayer.report.html import render_html
from cutlayer.results.report import Report
from tests.report.reading import Page
from tests.report.samples import regression, short
from tests.report.test_terminal import printed


def with_test(**changed: Any) -> Report:
    raw = short()
    raw["guarantees"][0].update(changed)
    return Report.model_validate(raw)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "no fault found"),
        ({"lower_bound": 1.0}, "no fault found"),
        ({"lower_bound": 1.01}, "DOES NOT HOLD"),
        ({"epsilon": 9.0}, "too few canaries"),
    ],
)
def test_the_verdict_is_on_the_page_and_in_the_terminal(changed: dict[str, float], verdict: str) -> None:
    report = with_test(**changed)
    (table,) = (table for table in Page(render_html(report)).tables if "what canaries show" in table)
    for text in (table, printed(report)):
        assert verdict in " ".join(text.split())
        assert "99.9 %" in text


def test_a_report_without_such_a_test_has_no_section() -> None:
    report = Report.model_validate(regression())
    assert 'id="tested"' not in render_html(report)
    assert "Guarantees tested with canaries" not in printed(report)


@pytest.mark.parametrize("noise", [None, 2.0])
def test_a_total_states_its_bound_once(noise: float | None) -> None:
    event = RandomizedGrade(2.0) if noise is None else GaussianRelease(noise, ReleasePlan(1))
    (total,) = Ledger((Entry("drawn", "telco", "features", ("bank",), event),)).totals
    assert total.auc_bound is not None
    assert with_bound(total).count("cannot be distinguished better than AUC") == 1
