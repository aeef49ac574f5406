"""What is measured by day is of that day's rows, from the run's own models and transcript."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.config import Job, validated
from cutlayer.data.split import split_rows
from cutlayer.kernels.roc import roc_auc
from cutlayer.runs.execute import Progress
from cutlayer.runs.folder import RunFolder
from cutlayer.runs.watch import read_truth
from studies.base import Cell, Found, run_cell
from studies.by_day import held_out_logits, measure_days
from studies.claims import Runs
from studies.days import TEST, Days
from studies.gradient_leakage import GradientLeakage

ROWS = 1200
SHARES = {"14102105": 0.2, "14102223": 0.5, "14102300": 0.8}


def table() -> pa.Table:
    """Three days, row after row, whose share of positives differs."""
    draw = np.random.default_rng(3)
    hours = np.array(list(SHARES))[np.arange(ROWS) % 3]
    labels = draw.random(ROWS) < np.array([SHARES[hour] for hour in hours])
    x = labels + draw.normal(size=ROWS)
    return pa.table({"click": labels.astype(int), "hour": hours, "a": x, "b": draw.normal(size=ROWS)})


def cell(privacy: dict[str, Any]) -> Cell:
    owner = {"role": "active", "label": "click", "features": {"include": "none"}, "privacy": privacy}
    raw = {
        "parties": {
            "bank": {**owner, "audit": {"attacks": ["norm", "spectral"], "rows": ROWS, "layers": False}},
            "shop": {"role": "passive", "features": {"include": ["a", "b"]}},
        },
        "model": {"bottom": {"kind": "mlp", "hidden": [16], "embedding": 4}, "top": {"kind": "mlp", "hidden": [16]}},
        "train": {
            "epochs": 10,
            "batch_size": 120,
            "optimizer": {"lr": 0.01},
            "seed": 5,
            "threads": 1,
            "split": {"test": 0.3, "validation": 0.05},
        },
    }
    job: Job = validated(Job, raw, "days")
    return Cell("Avazu, by day", "undefended", 5, job, {"bank": table(), "shop": table()})


class Looking(GradientLeakage):
    """Keeps what else is needed to check the figures."""

    def measure(self, cell: Cell, folder: RunFolder) -> dict[str, Any]:
        truth, _ = read_truth(folder.transcript("bank"))
        test = split_rows(ROWS, cell.job.train.split, 5).part("test")
        own = roc_auc(held_out_logits(cell.job, folder, test), truth[test] == 1)
        return {**measure_days(cell, folder), "auc": own, "rows": len(test), "positives": int((truth[test] == 1).sum())}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    work = tmp_path_factory.mktemp("days") / "work"
    return Found(**run_cell(Looking(), cell({}), work, Progress()))


def test_the_models_answer_as_they_did_in_the_run(found: Found) -> None:
    assert found.measured["auc"] == pytest.approx(found.metric, abs=1e-12)


def test_every_test_row_is_of_its_day(found: Found) -> None:
    days = found.measured["days"]
    assert list(days) == ["141021", "141022", "141023"]
    assert sum(day["rows"] for day in days.values()) == found.measured["rows"]
    assert sum(day["positives"] for day in days.values()) == found.measured["positives"]
    for day, share in zip(days.values(), SHARES.values(), strict=True):
        assert day["positives"] / day["rows"] == pytest.approx(share, abs=0.12)
        assert 0.6 < day["auc"] < 0.95
        assert 0.01 < day["deviation"] < 0.1


def test_every_leak_is_measured_on_every_day(found: Found) -> None:
    for day in found.measured["days"].values():
        assert day["leaks"].keys() == found.leaks.keys()
        assert day["leaks"]["gradient/spectral"] == pytest.approx(found.leaks["gradient/spectral"]["auc"], abs=0.1)


def made(setting: str, tests: dict[tuple[int, str], float], leak: float = 0.8) -> list[Found]:
    """Results whose test AUC is given by seed and day."""
    return [
        Found(
            "by day",
            setting,
            seed,
            0.7,
            1.0,
            {"gradient/norm": {"auc": leak, "epoch": 1, "last": leak}},
            {},
            {
                "days": {
                    day: {"rows": 9, "positives": 3, "auc": auc, "deviation": 0.03, "leaks": {"gradient/norm": leak}}
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
        Runs([*made("undefended", base), *made("noise", lost, 0.3)]), "by day", ("undefended", "noise"), ("norm",)
    )
    by_day, by_seed = (days.difference("undefended", "noise", TEST, by) for by in ("day", "seed"))
    assert by_day is not None
    assert by_seed is not None
    assert by_day.value == pytest.approx(0.015)
    assert by_seed.value == pytest.approx(0.015)
    assert by_day.half == pytest.approx(0, abs=1e-9)
    assert by_seed.half == pytest.approx(12.706 * 0.005, rel=1e-3)
    assert days.values("noise", "gradient/norm") == pytest.approx(dict.fromkeys(base, 0.2))


def test_a_day_with_one_class_only_is_left_out() -> None:
    results = made("undefended", {(1, "a"): float("nan"), (1, "b"): 0.7, (2, "a"): 0.6, (2, "b"): 0.7})
    days = Days(Runs(results), "by day", ("undefended",), ())
    assert days.values("undefended", TEST) == {(1, "b"): 0.7, (2, "a"): 0.6, (2, "b"): 0.7}
