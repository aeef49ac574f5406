"""The benchmark of release forms, on a small table of scikit-learn."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.release_forms import FORMS, measured
from benchmarks.utility.datasets import load
from tests.cli.jobs import audit_briefly
from tests.models.estimator_rows import fit_briefly

pytestmark = pytest.mark.slow


def test_a_form_has_its_utility_and_both_leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit_briefly(monkeypatch)
    fit_briefly(monkeypatch)
    form = "permutation of intervals"
    result = measured("wine", load("wine", tmp_path), form, None, 0)
    assert (result.data, result.form, result.epsilon, result.metric) == ("wine", form, None, "accuracy")
    assert result.utility is not None
    assert result.utility > 0.8
    assert result.own is not None
    assert 0.5 <= (result.label_leak or 0) <= 1
    assert (result.feature_leak or 0) > 0.3
    assert form in FORMS
