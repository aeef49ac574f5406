"""Counts with exposure, times until an event, and intervals: from `init` to predictions, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet
from ruamel.yaml import YAML
from sklearn.metrics import d2_tweedie_score

from cutlayer.config.load import load_job
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.training.folder import RunFolder
from tests.cli.jobs import Place

ROWS = 400
TOP = {"kind": "linear"}
UNAUDITED: Mapping[str, Any] = {"attacks": []}
JOB: Mapping[str, Any] = {
    "task": "count",
    "parties": {
        "bank": {"role": "active", "table": "bank.csv", "id": "id", "label": "claims", "exposure": "years"},
        "telco": {
            "role": "passive",
            "table": "telco.csv",
            "id": "id",
            "fit": {"kind": "sketch", "map": "permutation"},
            "audit": UNAUDITED,
        },
    },
    "model": {"bottom": {"bank": {"kind": "auto"}, "telco": {"kind": "linear", "width": 32}}, "top": TOP},
    "train": {"release": "once", "split": {"validation": 0.2, "test": 0.3}},
}


def write(place: Place) -> None:
    """Claims in some years, and a time until an event, of which both follow a number of each party."""
    draw = np.random.default_rng(5)
    own, other, years = draw.normal(size=ROWS), draw.normal(size=ROWS), draw.uniform(0.2, 2.0, ROWS).round(3)
    rate = np.exp(0.5 * own + 0.7 * other - 0.3)
    claims, times = draw.poisson(rate * years), draw.exponential(1 / rate).round(3)
    ends = draw.uniform(0.2, 3.0, ROWS).round(3)
    died = (times <= ends).astype(int)
    lines = zip(range(ROWS), own.round(4), claims, years, np.minimum(times, ends), died, strict=True)
    head = "id,own,claims,years,days,died"
    (place.folder / "bank.csv").write_text("\n".join([head, *(",".join(map(str, line)) for line in lines)]) + "\n")
    lines = zip(range(ROWS), other.round(4), strict=True)
    (place.folder / "telco.csv").write_text("\n".join(["id,other", *(f"{a},{b}" for a, b in lines)]) + "\n")


def job(**owner: object) -> dict[str, object]:
    """The job with other keys of its label's owner, `None` for none, and `task` and `compare` of the job."""
    shared: dict[str, object] = {key: owner.pop(key) for key in ("task", "compare", "model", "train") if key in owner}
    bank = {**JOB["parties"]["bank"], **owner}
    bank = {key: value for key, value in bank.items() if value is not None}
    return {**JOB, **shared, "parties": {**JOB["parties"], "bank": bank}}


def ran(place: Place, **owner: object) -> RunFolder:
    write(place)
    place.write(job(**owner))
    result = place.call("run", place.file, "--json")
    assert result.code == 0, result.err
    return RunFolder.open(place.run_folder)


def plain(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if value is not None}


def predicted(place: Place) -> dict[str, np.ndarray]:
    new = ("--data", "bank=bank.csv", "--data", "telco=telco.csv")
    told = place.call("predict", place.run_folder, "--out", "s.parquet", *new)
    assert told.code == 0, told.err
    table = parquet.read_table(place.folder / "s.parquet")
    return {name: table[name].to_numpy() for name in table.column_names if name != "contributed"}


def columns(path: Path) -> dict[str, np.ndarray]:
    head, *rows = path.read_text().splitlines()
    return dict(
        zip(head.split(","), np.array([[float(cell) for cell in row.split(",")] for row in rows]).T, strict=True)
    )


def test_intervals_stand_beside_an_undefended_model_that_is_trained_by_steps(place: Place) -> None:
    """Its validation rows choose its epoch, so that no interval is theirs."""
    train = {**JOB["train"], "epochs": 1}
    owner = {"task": "regression", "label": "days", "exposure": None, "coverage": 0.8, "train": train}
    run = ran(place, **owner, privacy={"label_free": None}, compare=["undefended"], audit=UNAUDITED)
    assert [row.run.label for row in run.summary.utility.rows][:2] == ["this run", "undefended"]
    assert run.summary.quality.metrics["coverage"] is not None


def test_counts_are_rates_by_exposure_with_intervals_that_hold_as_many_as_stated(place: Place) -> None:
    run = ran(place, coverage=0.8, audit=UNAUDITED)
    assert run.summary.task.target == "count"
    metrics = plain(run.summary.utility.rows[0].metrics)
    held_out = parquet.read_table(place.run_folder / "predictions.parquet")
    bank, at = columns(place.folder / "bank.csv"), held_out["id"].to_numpy().astype(np.int64)
    rates, years = bank["claims"][at] / bank["years"][at], bank["years"][at]
    value = held_out["value"].to_numpy()
    assert metrics["d2"] == pytest.approx(d2_tweedie_score(rates, value, power=1, sample_weight=years), rel=1e-5)
    assert metrics["d2"] > 0.15
    inside = (held_out["low"].to_numpy() <= rates + 1e-6) & (rates - 1e-6 <= held_out["high"].to_numpy())
    assert run.summary.quality.metrics["coverage"] == pytest.approx(inside.mean(), abs=0.01)
    assert 0.68 < inside.mean() < 0.92  # 120 rows
    every = predicted(place)
    np.testing.assert_allclose(every["value"][at], value, rtol=1e-6)
    assert (every["low"] >= 0).all()
    assert set(every) == {"id", "value", "low", "high"}


def test_survival_is_ranked_and_has_probabilities_that_fall(place: Place) -> None:
    run = ran(place, task="survival", label="days", event="died", exposure=None, compare=["alone", "boosting"])
    metrics = {str(row.name): plain(row.metrics) for row in run.summary.utility.rows}
    assert metrics["this run"]["concordance"] > metrics["bank alone"]["concordance"] > 0.55
    assert metrics["this run"]["integrated_brier"] < metrics["chance"]["integrated_brier"]
    assert metrics["chance"]["concordance"] == pytest.approx(0.5)
    assert not run.audit.runs["this run"].leaks
    assert Task.of(load_job(place.file)).metric == "concordance", "as sweeps and comparisons name it"
    every = predicted(place)
    names = [name for name in every if name.startswith("survival_")]
    assert len(names) == 3
    falling = np.stack([every[name] for name in names], axis=1)
    assert (np.diff(falling, axis=1) <= 0).all()
    assert ((falling > 0) & (falling < 1)).all()
    order = np.argsort(every["value"])
    assert (np.diff(falling[order], axis=0) <= 1e-12).all()  # a greater hazard survives less


def test_new_rows_need_no_column_of_the_label_that_has_a_format(place: Place) -> None:
    write(place)
    head, *lines = (place.folder / "bank.csv").read_text().splitlines()[: ROWS // 3]
    words = [f"{line[:-1]}{'ja' if line[-1] == '1' else 'nein'}" for line in lines]
    (place.folder / "bank.csv").write_text("\n".join([head, *words]) + "\n")
    task = ("--label", "days", "--task", "survival", "--event", "died")
    made = place.call("init", ".", *task, "--yes", "--overwrite")
    assert made.code == 0, made.err
    assert "died: {boolean: [ja, nein]}" in place.file.read_text()
    made_job = YAML(typ="safe").load(place.file)
    for party in made_job["parties"].values():
        party["audit"] = UNAUDITED
    place.write(made_job)
    assert place.call("run", place.file, "--json").code == 0
    new = "\n".join(["id,own,claims,years", *(line.rsplit(",", 2)[0] for line in lines[:7])])
    (place.folder / "new.csv").write_text(f"{new}\n")
    told = place.call(
        "predict", place.run_folder, "--out", "s.csv", "--data", "bank=new.csv", "--data", "telco=telco.csv"
    )
    assert told.code == 0, told.err
    assert len((place.folder / "s.csv").read_text().splitlines()) == 8


@pytest.mark.parametrize("what", ["columns", "nothing"])
def test_what_is_trained_by_steps_is_not_compared_with_counts(place: Place, what: str) -> None:
    write(place)
    place.write(job(privacy={"label_free": None}))
    told = place.call("compare", place.file, "--protect", "labels", "--protect", what, "--seeds", "2")
    assert (told.code, f"expected labels or both with task count, got {what}" in told.err) == (2, True), told.err


REFUSED = {
    "no event": ({"task": "survival", "label": "days", "exposure": None}, "parties.bank.event with task survival"),
    "exposure of a value": ({"task": "regression"}, "parties.bank.exposure with task count or amount alone"),
    "steps": ({"train": {"release": "every"}}, "train.release"),
    "a network": ({"model": {**JOB["model"], "top": {"kind": "mlp"}}}, "model.top.kind as one of auto"),
    "undefended": ({"compare": ["undefended"]}, "compare with alone and boosting alone"),
    "drawn labels": ({"privacy": {"label_dp": {"eps": 1.0}}}, "label_dp"),
    "an attack": (
        {"task": "survival", "label": "days", "event": "died", "exposure": None, "audit": {"attacks": ["few_labels"]}},
        "few_labels",
    ),
    "a wide interval": ({"coverage": 1.0}, "parties.bank.coverage"),
    "two purposes": ({"exposure": "claims"}, "two columns for exposure and label"),
    "no such column": ({"exposure": "yaers"}, "yaers"),
    "no counts": ({"label": "own"}, "whole numbers, 0 or more"),
    "no positive amounts": ({"task": "severity", "exposure": None}, "amounts above 0"),
    "no events": ({"task": "survival", "label": "days", "event": "claims", "exposure": None}, "or 0, a censored row"),
    "no exposures": ({"exposure": "died"}, "exposures above 0 in all rows"),
    "a word": ({"task": "cuont"}, "did you mean 'count'?"),
}


@pytest.mark.parametrize(("owner", "phrase"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_defined_is_refused(place: Place, owner: dict[str, object], phrase: str) -> None:
    write(place)
    place.write(job(**owner))
    result = place.call("run", place.file)
    assert (result.code, result.out) == (2, ""), result
    assert phrase in result.error
    assert "Traceback" not in result.err


def test_init_recognises_counts_and_asks_for_events(place: Place) -> None:
    write(place)
    about = ("init", place.folder, "--labels", "bank.csv", "--yes", "--overwrite")
    told = place.call(*about, "--label", "claims", "--exposure", "years")
    assert "task: count, of claims in bank.csv, with years as exposure: whole numbers, " in told.out
    assert "exposure: years" in place.file.read_text()
    assert "labels alone (labels with a column of exposure are not drawn)" in " ".join(told.out.split())
    told = place.call(*about, "--label", "days", "--task", "survival")
    assert "labels alone (labels with a column of event are not drawn)" in " ".join(told.out.split())
    assert "task: survival, of days in bank.csv, with died as event" in told.out
    assert place.call("check", place.file).code == 0
    refused = place.call(*about, "--label", "claims", "--protect", "nothing")
    assert "--protect labels with --task count" in refused.error


def test_the_poisson_likelihood_of_rates_is_that_of_counts_with_an_offset() -> None:
    """Gradients of both agree, so that models agree too."""
    draw = np.random.default_rng(1)
    years, counts = torch.from_numpy(draw.uniform(0.5, 2, 30)), torch.from_numpy(draw.poisson(1.5, 30)).double()
    logits = torch.from_numpy(draw.normal(size=30)).requires_grad_()
    labels = torch.stack([counts / years, years], dim=1)
    task = Task.fitted("regression", (), labels, "count")
    TrainingLoss(task)(logits[:, None], labels).mul(30 * task.scale).backward()  # type: ignore[no-untyped-call]
    means = years * task.scale * logits.detach().exp()
    np.testing.assert_allclose(logits.grad, means - counts, atol=1e-9)  # type: ignore[arg-type]
