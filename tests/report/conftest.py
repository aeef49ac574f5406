from __future__ import annotations

import pytest

from cutlayer.results.report import Report
from tests.report.samples import binary, broken, hostile, multiclass, regression


@pytest.fixture
def report() -> Report:
    return Report.model_validate(binary())


@pytest.fixture
def hostile_report() -> Report:
    return Report.model_validate(hostile())


@pytest.fixture(params=[binary, regression, multiclass, broken, hostile], ids=lambda make: make.__name__)
def any_report(request: pytest.FixtureRequest) -> Report:
    return Report.model_validate(request.param())
