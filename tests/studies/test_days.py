"""What is measured by day is of that day's rows, from the run's own models and transcript."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.config import Job, validated
from cutlayer.data.split import split_rows
from cutlayer.jobs.options import Progress
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.training.folder import RunFolder
from cutlayer.training.recorder import read_truth
from studies.claims import Verdict
from studies.gradient_leakage.by_day import held_out_logits, measure_days
from studies.gradient_leakage.days import TEST, Days
from studies.gradient_leakage.study import GradientLeakageStudy
from studies.results import Results, TrialResult
from studies.trials import Trial, run_trial

ROWS = 1200
KEYS = "gradient/norm", "gradient/direction"
SHARES = {"14102105": 0.2, "14102223": 0.5, "14102300": 0.8}


def table() -> pa.Table:
    """Three days, row after row, whose share of positives differs."""
    draw = np.random.default_rng(3)
    hours = np.array(list(SHARES))[np.arange(ROWS) % 3]
    labels = draw.random(ROWS) < np.array([SHARES[hour] for hour in hours])
    x = labels + draw.normal(size=ROWS)
    return pa.table({"click": labels.astype(int), "hour": hours, "a": x, "b": draw.normal(size=ROWS)})


def trial(privacy: dict[str, Any]) -> Trial:
    owner = {"role": "active", "label": "click", "features": {"include": "none"}, "privacy": privacy}
    raw = {
        "parties": {
            "bank": {**owner, "audit": {"attacks": ["norm", "spectral"], "rows": ROWS, "layers": False}},
            "shop": {"role": "passive", "features": {"include": ["a", "b"]}},
        },
        "model": {"bottom": {"kind": "mlp", "hidden": [16], "embedding": 4}, "top": {"kind": "mlp", "hidden": [16]}},
        "train": {
            "epochs": 5,
            "batch_size": 120,
            "optimizer": {"lr": 0.01},
            "seed": 5,
            "threads": 1,
            "split": {"test": 0.3, "validation": 0.05},
        },
    }
    job: Job = validated(Job, raw, "days")
    return Trial("Avazu, by day", "undefended", 5, job, {"bank": table(), "shop": table()})


class Looking(GradientLeakageStudy):
    """Keeps what else is needed to check the figures."""

    def measure(self, trial: Trial, folder: RunFolder) -> dict[str, Any]:
        truth, _ = read_truth(folder.transcript("bank"))
        test = split_rows(ROWS, trial.job.train.split, 5).part("test")
        own = roc_auc(held_out_logits(trial.job, folder, test), truth[test] == 1)
        return {
            **measure_days(trial, folder),
            "auc": own,
            "rows": len(test),
            "positives": int((truth[test] == 1).sum()),
        }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> TrialResult:
    work = tmp_path_factory.mktemp("days") / "work"
    return TrialResult(**run_trial(Looking(), trial({}), work, Progress()))


def test_the_models_answer_as_they_did_in_the_run(results: TrialResult) -> None:
    assert results.measured["auc"] == pytest.approx(results.metric, abs=1e-12)


def test_every_test_row_is_of_its_day(results: TrialResult) -> None:
    days = results.measured["days"]
    assert list(days) == ["141021", "141022", "141023"]
    assert sum(day["rows"] for day in days.values()) == results.measured["rows"]
    assert sum(day["positives"] for day in days.values()) == results.measured["positives"]
    for day, share in zip(days.values(), SHARES.values(), strict=True):
        assert day["positives"] / day["rows"] == pytest.approx(share, abs=0.12)
        assert 0.6 < day["auc"] < 0.95
        assert 0.01 < day["deviation"] < 0.1


def test_every_leak_is_measured_on_every_day(results: TrialResult) -> None:
    for day in results.measured["days"].values():
        assert day["leaks"].keys() == results.leaks.keys()
        assert day["leaks"]["gradient/spectral"] == pytest.approx(results.leaks["gradient/spectral"]["auc"], abs=0.1)


def made(setting: str, tests: dict[tuple[int, str], float], leak: float = 0.8) -> list[TrialResult]:
    """Results whose test AUC is given by seed and day."""
    return [
        TrialResult(
            "by day",
            setting,
            seed,
            0.7,
            1.0,
            {key: {"auc": leak, "epoch": 1, "last": leak} for key in KEYS},
            {},
            {
                "days": {
                    day: {"rows": 9, "positives": 3, "auc": auc, "deviation": 0.03, "leaks": dict.fromkeys(KEYS, leak)}
                    for (own, day), auc in tests.items()
                    if own == seed
                }
            },
        )
        for seed in (1, 2)
    ]


def test_intervals_are_over_days_or_over_seeds() -> None:
    """The loss differs by seed alone: days agree with each other, seeds do not."""
    base = {(seed, day): 0.7 for seed in (1, 2) for day in ("a", "b", "c")}
    lost = {(seed, day): 0.7 - 0.01 * seed for seed, day in base}
    days = Days(
        Results([*made("undefended", base), *made("noise", lost, 0.3)]), "by day", ("undefended", "noise"), ("norm",)
    )
    by_day, by_seed = (days.difference("undefended", "noise", TEST, by) for by in ("day", "seed"))
    assert by_day is not None
    assert by_seed is not None
    assert by_day.value == pytest.approx(0.015)
    assert by_seed.value == pytest.approx(0.015)
    assert by_day.half_width == pytest.approx(0, abs=1e-9)
    assert by_seed.half_width == pytest.approx(12.706 * 0.005, rel=1e-3)
    assert days.values("noise", "gradient/norm") == pytest.approx(dict.fromkeys(base, 0.2))


def test_a_day_with_one_class_only_is_left_out() -> None:
    results = made("undefended", {(1, "a"): float("nan"), (1, "b"): 0.7, (2, "a"): 0.6, (2, "b"): 0.7})
    days = Days(Results(results), "by day", ("undefended",), ())
    assert days.values("undefended", TEST) == {(1, "b"): 0.7, (2, "a"): 0.6, (2, "b"): 0.7}


def test_a_fall_holds_where_days_and_seeds_agree_and_only_the_norm_attack_is_the_reports() -> None:
    """Ten days of three trainings are no thirty trainings: a fall that differs by seed is not settled by its days."""
    base = {(seed, day): 0.7 for seed in (1, 2) for day in ("a", "b", "c")}
    noisy = [replace(result, measured=_leaking(result, 0.75 - 0.1 * result.seed)) for result in made("noise", base)]
    days = Days(Results([*made("undefended", base), *noisy]), "by day", ("undefended", "noise"), ("norm", "direction"))
    norm, direction = days.claims(("undefended", "noise"), {})
    assert norm.published
    assert not direction.published
    assert norm.verdict == Verdict.OPEN
    assert "over the days" in norm.ours
    assert "over the seeds" in norm.ours


def _leaking(result: TrialResult, leak: float) -> dict[str, Any]:
    return {"days": {day: {**own, "leaks": dict.fromkeys(KEYS, leak)} for day, own in result.measured["days"].items()}}
