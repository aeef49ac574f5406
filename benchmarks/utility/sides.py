"""Both sides of the comparison: a job of default settings, and scikit-learn on the same rows, all columns joined."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.utility.datasets import LABEL, DataSet
from cutlayer.config import Job, SplitConfig, validated
from cutlayer.data.ids import row_digests
from cutlayer.data.split import split_rows
from cutlayer.errors import DataError
from cutlayer.jobs.execute import Options, Progress, execute
from cutlayer.training.keys import Keys
from cutlayer.training.test_predictions import reported_ids

TEST = 0.2
MAX_CATEGORIES = 254
"""Most categories of a column that scikit-learn's gradient boosting takes; rarer ones count as missing."""
_NUMBERS, _TEXTS = make_column_selector(dtype_include="number"), make_column_selector(dtype_exclude="number")


def ours(data: DataSet, seed: int, changes: Mapping[str, Any] | None = None) -> float:
    """The headline metric of a job of default settings on the test rows; NaN where the job is refused.

    Args:
        data: Columns by party, and labels.
        seed: Seed of the job, which decides which rows are held out.
        changes: Sections of the job that differ from the default.
    """
    job = _job(data, seed, changes or {})
    tables = {name: pa.Table.from_pandas(part, preserve_index=False) for name, part in data.parts.items()}
    tables[job.active] = tables[job.active].append_column(LABEL, pa.array(data.labels))
    with tempfile.TemporaryDirectory(prefix="cutlayer-utility-") as folder:
        try:
            run = execute(job, Path(folder) / "run", Options(Keys(Path(folder) / "keys"), tables=tables), Progress())
        except DataError:
            return math.nan
        tested = reported_ids(run).cast(pa.int64()).to_numpy()
        if not np.array_equal(np.sort(tested), test_rows(len(data.labels), seed)):
            raise ValueError(f"expected the test rows of the references in the job on {data.name}, got others")
        return float(run.summary.utility.rows[0].metrics[run.summary.utility.metric] or 0.0)


def _job(data: DataSet, seed: int, changes: Mapping[str, Any]) -> Job:
    active, *passives = data.parts
    features = changes.get("features", {})
    parties: dict[str, Any] = {
        active: {"role": "active", "label": LABEL, "audit": {"every": "never", "attacks": []}, "features": features},
        **{name: {"role": "passive", "features": features} for name in passives},
    }
    train = {**changes.get("train", {}), "seed": seed, "threads": 1, "split": {"test": TEST}}
    sections = {key: value for key, value in changes.items() if key not in ("train", "features")}
    return validated(Job, {"task": data.task, "parties": parties, "train": train, **sections}, data.name)


def references(data: DataSet, seed: int) -> dict[str, float]:
    """The same metric of scikit-learn's models on the same test rows, by name.

    They train on all other rows: those that the job trains on, and those that it validates on.
    """
    test = test_rows(len(data.labels), seed)
    training = np.setdiff1d(np.arange(len(data.labels)), test)
    table = _capped(data.joined, training)
    return {
        name: _score(data.task, model.fit(table.iloc[training], data.labels[training]), table, data.labels, test)
        for name, model in _models(data.task, seed).items()
    }


def test_rows(rows: int, seed: int) -> npt.NDArray[np.int64]:
    """Numbers of the rows, in the order of the tables, that a job without an id column tests on.

    A job splits its rows in the order of the digests of their ids, which here are the rows' numbers.

    Args:
        rows: Number of rows of the tables.
        seed: Seed of the job.
    """
    order = np.lexsort(row_digests(pa.array(np.arange(rows))).T[::-1])
    return np.sort(order[split_rows(rows, SplitConfig(test=TEST), seed).test])


def _capped(table: pd.DataFrame, training: npt.NDArray[np.int64]) -> pd.DataFrame:
    """The table with every text column as the most frequent categories of its training rows; others are missing."""
    texts = table.select_dtypes(exclude="number")
    common = {name: column.iloc[training].value_counts().index[:MAX_CATEGORIES] for name, column in texts.items()}
    return table.assign(**{name: pd.Categorical(table[name], categories=values) for name, values in common.items()})


def _models(task: str, seed: int) -> dict[str, Any]:
    dense = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    columns = make_column_transformer((dense, _NUMBERS), (OneHotEncoder(handle_unknown="ignore"), _TEXTS))
    if task == "regression":
        linear, trees, network = (
            Ridge(),
            HistGradientBoostingRegressor(random_state=seed),
            MLPRegressor(random_state=seed),
        )
    else:
        linear, network = LogisticRegression(max_iter=1000), MLPClassifier(random_state=seed)
        trees = HistGradientBoostingClassifier(random_state=seed)
    return {"linear": make_pipeline(columns, linear), "boosting": trees, "MLP": make_pipeline(columns, network)}


def _score(task: str, model: Any, joined: pd.DataFrame, labels: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> float:
    table, truth = joined.iloc[rows], labels[rows]
    if task == "binary":
        return float(roc_auc_score(truth, model.predict_proba(table)[:, 1]))
    score = r2_score if task == "regression" else accuracy_score
    return float(score(truth, model.predict(table)))


def quiet() -> None:
    """Leave out scikit-learn's warnings that its network did not converge in its default number of iterations."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", message="Found unknown categories")
