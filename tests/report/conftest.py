from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import pytest

from cutlayer.report.html import render_html
from cutlayer.results.report import Report
from tests.report.reading import Page
from tests.report.samples import binary, broken, hostile, multiclass, regression, short


@dataclass(frozen=True)
class Sample:
    """A report and its page, which takes longer to render and to read than most tests: shared, and never changed."""

    report: Report

    @cached_property
    def html(self) -> str:
        return render_html(self.report)

    @cached_property
    def page(self) -> Page:
        return Page(self.html)


@cache
def sample_of(make: Callable[[], dict[str, Any]]) -> Sample:
    return Sample(Report.model_validate(make()))


@pytest.fixture
def sample() -> Sample:
    return sample_of(binary)


@pytest.fixture
def report(sample: Sample) -> Report:
    return sample.report


@pytest.fixture
def brief() -> Report:
    """Few items of each list, for pages of reports that a test changes."""
    return sample_of(short).report


@pytest.fixture
def hostile_sample() -> Sample:
    return sample_of(hostile)


@pytest.fixture
def hostile_report(hostile_sample: Sample) -> Report:
    return hostile_sample.report


@pytest.fixture(params=[regression, multiclass, broken, hostile], ids=lambda make: make.__name__)
def any_sample(request: pytest.FixtureRequest) -> Sample:
    """`hostile` is `binary` with other names."""
    return sample_of(request.param)


@pytest.fixture
def any_report(any_sample: Sample) -> Report:
    return any_sample.report
