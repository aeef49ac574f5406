"""The table of pilots beside full runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import pilot_parts
from benchmarks.pilot import page


def line(value: float, low: float, high: float, kind: str = "grades", truth: float = 0.2) -> dict[str, Any]:
    found = {"party": "partner", "rows": 100, "own": 0.7, "value": value, "low": low, "high": high}
    return {
        "data": "toy",
        "kind": kind,
        "seed": 0,
        "rows": 400,
        "metric": "AUC",
        "truth": truth,
        "matters": 0.02,
        "pilot": found | {"further": 0.0, "curve": [0.1]},
        "account": {"read": 0.1},
    }


def test_an_interval_is_compared_with_the_mean_of_the_full_runs() -> None:
    full = [
        {"data": "toy", "seed": seed, "own": 0.5, "8": {"grade": 0.5 + gain, "recovered": 0.3}}
        for seed, gain in enumerate((0.2, 0.4))
    ]
    text = "\n".join(page([line(0.25, 0.21, 0.36)], full))
    assert "| toy | AUC | 400 | 100 | 0.700 | +0.300 | +0.250 (+0.210 to +0.360) | adds | 0.50 | 0.100, 0.300 |" in text
    assert "full runs is in 1 of 1 intervals, of its seed in 0." in text
    assert "Median width 0.50" in text
    assert "(+0.100 to +0.250, missed)" in "\n".join(page([line(0.2, 0.1, 0.25)], full))


def test_a_partner_of_noise_adds_nothing() -> None:
    text = "\n".join(page([line(0.0, -0.01, 0.01, "noise", 0.0), line(0.05, 0.03, 0.07, "noise", 0.0)], ()))
    assert 'It says "nothing" in 1 of 2.' in text
    assert "full runs is in 1 of 2 intervals" in text


def test_the_parts_of_an_interval_are_those_of_a_table_whose_grades_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilot_parts, "PILOTS", 12)
    monkeypatch.setattr(pilot_parts, "REPEATED", 2)
    draw = np.random.default_rng(0)
    own, theirs = draw.normal(size=(2, 6000))
    labels = draw.random(6000) < 1 / (1 + np.exp(-own - theirs))
    table = pilot_parts.Table(labels, own, np.c_[own, theirs, own * theirs])
    small, gain = pilot_parts.parts_of(table, 400)
    large, same = pilot_parts.parts_of(table, 1600)
    assert gain == same > 0.05
    assert small.stated / large.stated == pytest.approx(2, rel=0.25)
    assert small.found / small.stated == pytest.approx(1, rel=0.6)
    # The control variate takes out how hard the rows are; what remains is the rows, whatever the model was fitted to.
    assert small.stated < 0.95 * small.plain
    assert small.richer == pytest.approx(small.stated, rel=0.1)
    assert small.fixed == pytest.approx(small.stated, rel=0.1)
    assert max(small.training, small.folds) < small.found / 2
