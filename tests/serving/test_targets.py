"""Counts, times and intervals wherever a run is used: predictions, batches, the service, an export, and a resume."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import cutlayer_batches as batches
from cutlayer.config import Job, validated
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.serving.models import PartyModel
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer_export.part import export_part
from cutlayer_loggers.pyfunc import _load_pyfunc
from tests.models.estimator_rows import fit_briefly
from tests.serving.world import ACTIVE, own_table, world

TELCO, ROWS = "telco", 400
LABELS: dict[str, dict[str, Any]] = {
    "count": {"label": "claims", "exposure": "years", "coverage": 0.8},
    "amount": {"label": "amount", "coverage": 0.8},
    "survival": {"label": "days", "event": "died"},
    "binary": {"label": "died", "coverage": 0.8},
}
RESUMED = ("count", "survival")
"""Tasks whose labels have another column beside them."""


def write_tables(folder: Path) -> None:
    draw = np.random.default_rng(4)
    age, calls = draw.normal(size=(2, ROWS))
    rate, years = np.exp(0.3 + 0.5 * age + 0.5 * calls), draw.uniform(0.5, 2, ROWS)
    days, ends = draw.exponential(1 / rate), draw.exponential(1.5, ROWS)
    labels = {
        "claims": draw.poisson(rate * years),
        "amount": draw.gamma(2, rate),
        "days": np.minimum(days, ends) + 0.01,
    }
    bank = {"id": np.arange(ROWS), "age": age, "years": years, "died": (days <= ends).astype(int), **labels}
    parquet.write_table(pa.table(bank), folder / "bank.parquet")
    parquet.write_table(pa.table({"id": np.arange(ROWS), "calls": calls}), folder / "telco.parquet")


def job_of(folder: Path, task: str) -> Job:
    features = {"features": {"include": ["age"]}}
    quiet = {"audit": {"attacks": [], "every": "never"}}
    parties = {
        ACTIVE: {
            "role": "active",
            "table": str(folder / "bank.parquet"),
            "id": "id",
            **quiet,
            **features,
            **LABELS[task],
        },
        TELCO: {
            "role": "passive",
            "table": str(folder / "telco.parquet"),
            "id": "id",
            "fit": {"kind": "sketch"},
            **quiet,
        },
    }
    model = {"bottom": {ACTIVE: {"kind": "auto"}, TELCO: {"kind": "linear", "width": 2}}, "top": {"kind": "linear"}}
    split = {"validation": 0.2, "test": 0.2}
    train = {"release": "once", "seed": 1, "split": split}
    return validated(Job, {"task": task, "parties": parties, "model": model, "train": train}, "")


@pytest.fixture(scope="module", params=LABELS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Job, Path]:
    """A run, for two of the tasks one that was killed once its partner had released, and resumed."""
    folder = tmp_path_factory.mktemp(request.param)
    write_tables(folder)
    job, keys = job_of(folder, request.param), Keys(folder / "keys", bytes(32))
    with pytest.MonkeyPatch.context() as patched:
        fit_briefly(patched)

        def killed(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

        if request.param in RESUMED:
            execute(job, folder / "whole", Options(keys), Progress())
            with patched.context() as broken:
                broken.setattr("cutlayer.models.top_estimators.linear.StandardInputs.fitted", killed)
                with pytest.raises(KeyboardInterrupt):
                    execute(job, folder / "run", Options(keys), Progress())
        execute(job, folder / "run", Options(keys, resume=request.param in RESUMED), Progress())
    return request.param, job, folder / "run"


def test_every_way_has_the_same_predictions(trained: tuple[str, Job, Path], tmp_path: Path) -> None:
    task, job, run = trained
    given = {name: parquet.read_table(own_table(run, name)) for name in (ACTIVE, TELCO)}
    wanted = {}
    for name in ("run", "whole") if task in RESUMED else ("run",):
        predict(job, RunFolder(run.with_name(name)), tmp_path / f"{name}.csv", PredictionRequest(given))
        wanted[name] = csv.read_csv(tmp_path / f"{name}.csv")
    assert all(each.equals(wanted["run"]) for each in wanted.values()), "a resumed run is one that was not killed"
    scores = wanted["run"].drop_columns(["contributed"]).to_pandas()
    columns = [name for name in scores if name != "id"]
    if "low" in columns:
        assert ((scores["low"] <= scores["value"]) & (scores["value"] <= scores["high"])).all()
    assert len(columns) == (4 if job.target == "survival" else 3)

    own = batches.identifier(run, ACTIVE)(given[ACTIVE])
    joined = own.join(batches.releaser(run, TELCO, key=key_file(tmp_path))(given[TELCO]), "release_id", "id")
    batch = batches.predictor(run, ACTIVE)(joined).to_pandas().sort_values("id")
    np.testing.assert_allclose(batch[columns].to_numpy(float), scores[columns].to_numpy(), rtol=1e-5)

    exported = export_part(job, PartyModel.load(job, RunFolder(run), ACTIVE), tmp_path / "out")
    loaded = _load_pyfunc(str(exported.folder)).predict(joined.to_pandas())
    np.testing.assert_allclose(loaded[columns].to_numpy()[np.argsort(joined["id"])], batch[columns], rtol=1e-5)

    async def served() -> Any:
        async with world(run, (TELCO,)) as service:
            status = (await service.client.get("/v1/status")).json()
            assert status["task"] == (job.task if job.target == "value" else job.target)
            rows = await service.predict(range(5))
            arrays = (await service.predict(range(5), answer="columns"))["predictions"]
            further = [arrays["further"][name] for name in columns[1:]]
            assert np.array(further).T.tolist() == [[*row["further"].values()] for row in rows["predictions"]]
            return rows

    answer = asyncio.run(served())
    metric = answer["subsets"][0]["expected"]["metric"]
    assert metric == {"survival": "concordance", "value": "auc"}.get(job.target, "d2")
    field = "probability" if job.task == "binary" else "value"
    for row, line in zip(answer["predictions"], scores[columns].to_numpy(), strict=False):
        np.testing.assert_allclose([row[field], *row["further"].values()], line, rtol=1e-5)
        assert [*row["further"]] == columns[1:]


def key_file(folder: Path) -> Path:
    (folder / "run.key").write_bytes(bytes(32))
    (folder / "run.key").chmod(0o600)
    return folder / "run.key"
