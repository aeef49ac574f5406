"""The table of pilots beside full runs."""

from __future__ import annotations

from typing import Any

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
