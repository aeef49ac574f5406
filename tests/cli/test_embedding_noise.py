"""What `check` says of noisy embeddings before anything runs: the total, its condition and the bound on any attack."""

from __future__ import annotations

import pytest

TELCO = "parties.telco.privacy"
NOISE = {"clip": 1.0, "epsilon": 8.0, "delta": 1.0e-5}


def test_check_shows_total_condition_and_bound(place):
    place.change({TELCO: {"dp_embedding": NOISE}, "train.epochs": 20})
    result = " ".join(place.call("check", place.file).out.split())
    assert "the features of telco, towards bank: epsilon 8 at delta 1e-05 per row (exact Gaussian" in result
    assert "conditional on the bottom model and the encoding" in result
    assert "two values of one row, all else known, cannot be distinguished better than AUC 0.881" in result
    (total,) = [t for t in place.call("check", place.file, "--json").document()["totals"] if t["party"] == "telco"]
    assert total["epsilon"] == pytest.approx(8.0, rel=1e-9)
    assert total["releases"] == 20


def test_the_cost_per_release_adds_up(place):
    place.change({TELCO: {"dp_embedding": {**NOISE, "per": "release"}}, "train.epochs": 20})
    (total,) = [t for t in place.call("check", place.file, "--json").document()["totals"] if t["party"] == "telco"]
    assert total["epsilon"] > 40


def test_bad_noise_is_an_error_that_names_its_place(place):
    place.change({TELCO: {"dp_embedding": {"clip": 0.0, "epsilon": 8.0, "delta": 1.0}}})
    found = place.call("check", place.file)
    assert found.code == 2
    assert f"{TELCO}.dp_embedding.clip: expected greater than 0" in found.error
    assert f"{TELCO}.dp_embedding.delta: expected less than 1" in found.error
