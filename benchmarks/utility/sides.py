"""Both sides of the comparison: the job that `cutlayer init --yes` writes, and scikit-learn on the same rows."""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyarrow import parquet
from ruamel.yaml import YAML
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.utility.datasets import DataSet
from cutlayer.cli.init import init
from cutlayer.config import Job, SplitConfig, validated
from cutlayer.data.ids import row_digests
from cutlayer.data.split import split_rows
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.held_out_predictions import predictions_path
from cutlayer.training.keys import Keys

TEST = 0.2
MAX_CATEGORIES = 254
"""Most categories of a column that scikit-learn's gradient boosting takes; rarer ones count as missing."""
EARLY_STOPPING_ROWS = 5_000
"""Number of rows from which on the network stops early: there it predicts better so, and takes less time."""
BLOCKS = 5
ID, LABEL = "id", "label"
_NUMBERS, _TEXTS = make_column_selector(dtype_include="number"), make_column_selector(dtype_exclude="number")

Scores = dict[str, list[float]]
"""Of each model the metric of all test rows, then that of each of `BLOCKS` parts of them."""


def ours(data: DataSet, seed: int, changes: Mapping[str, Any] | None = None) -> tuple[Scores, dict[str, Any]]:
    """Run the job that `init --yes` writes, with a seed and a fifth of the rows for testing; no audit, no baselines.

    Args:
        data: Columns by party, and labels.
        seed: Seed of the job, which decides which rows are held out.
        changes: Sections of the job in which others are tried.

    Returns:
        The scores, and what the fit chose.
    """
    with tempfile.TemporaryDirectory(prefix="cutlayer-utility-") as scratch:
        folder = Path(scratch)
        write_tables(data, folder)
        with redirect_stdout(io.StringIO()):
            init(folder, label=LABEL, protect="labels", yes=True)
        job = written_job(folder, seed, changes or {})
        if job.task != data.task:
            raise ValueError(f"expected task {data.task} from init, got {job.task}")
        run = execute(job, folder / "run", Options(Keys(folder / "keys")), Progress())
        predicted = parquet.read_table(predictions_path(run))
        fit = run.summary.utility.choice
    order = np.argsort(predicted.column(ID).to_numpy())
    if not np.array_equal(predicted.column(ID).to_numpy()[order], test_rows(len(data.labels), seed)):
        raise ValueError("expected the test rows of the references in the job, got others")
    columns = [column.to_numpy() for column in predicted.columns[1:-1]]
    scores = {"cutlayer": _scores(data, seed, np.stack(columns, axis=1)[order])}
    return scores, {} if fit is None else {"chosen": fit.chosen, **{c.name: c.score for c in fit.candidates}}


def write_tables(data: DataSet, folder: Path) -> None:
    """Write the table of each party into a folder, for `init`."""
    ids = np.arange(len(data.labels))
    data.bank.assign(**{ID: ids, LABEL: data.labels}).to_parquet(folder / "bank.parquet", index=False)
    data.partner.assign(**{ID: ids}).to_parquet(folder / "partner.parquet", index=False)


def table_in(folder: Path, table: str | dict[str, Any]) -> str | dict[str, Any]:
    """The section of a table, by its path or with further keys, whose path was relative to a folder."""
    return {**table, "path": str(folder / table["path"])} if isinstance(table, dict) else str(folder / table)


def written_job(folder: Path, seed: int, changes: Mapping[str, Any]) -> Job:
    """The job that `init` wrote into a folder, with a seed, no audit of the bank and no baselines.

    Args:
        folder: Folder of the job and of the tables.
        seed: Seed of the job.
        changes: Sections of the job in which others are tried.
    """
    raw = YAML(typ="safe").load(folder / "job.yaml")
    raw["parties"]["bank"] |= {"audit": {"every": "never", "attacks": []}}
    for party in raw["parties"].values():
        party["table"] = table_in(folder, party["table"])
    del raw["compare"]
    raw["train"] |= {"seed": seed, "threads": 1, "split": {"test": TEST}}
    return validated(Job, _merged(raw, changes), "job")


def _merged(values: Any, changes: Any) -> Any:
    if not isinstance(changes, Mapping):
        return changes
    return {**(values or {}), **{key: _merged((values or {}).get(key), change) for key, change in changes.items()}}


def references(
    data: DataSet,
    seed: int,
    columns: Sequence[str] = ("all", "own"),
    models: Sequence[str] = ("linear", "boosting", "MLP"),
) -> Scores:
    """The metric of scikit-learn's models on the same test rows: on all columns in one place, and on the bank's.

    They train on all other rows, as the job does.

    Args:
        data: Columns by party, and labels.
        seed: Seed of the split.
        columns: Whose columns.
        models: Names of the models.
    """
    test = test_rows(len(data.labels), seed)
    training = np.setdiff1d(np.arange(len(data.labels)), test)
    scores = {}
    for whose in columns:
        capped = _capped(data.joined if whose == "all" else data.bank, training)
        for name in models:
            model = _models(data.task, len(training), seed)[name]
            model.fit(capped.iloc[training], data.labels[training])
            scores[f"{whose} {name}"] = _scores(data, seed, _predicted(data, model, capped.iloc[test]))
    return scores


def _predicted(data: DataSet, model: Any, table: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Predictions as `_scores` takes them; a class without a training row has a probability of 0."""
    if data.task == "regression":
        return np.asarray(model.predict(table), dtype=np.float64).reshape(len(table), 1)
    classes = np.unique(data.labels)
    every = np.zeros((len(table), len(classes)))
    every[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(table)
    return every[:, 1:] if data.task == "binary" else every


def test_rows(rows: int, seed: int) -> npt.NDArray[np.int64]:
    """Ids of the rows that a job tests on, ascending.

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


def _models(task: str, rows: int, seed: int) -> dict[str, Any]:
    dense = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    columns = make_column_transformer((dense, _NUMBERS), (OneHotEncoder(handle_unknown="ignore"), _TEXTS))
    early = rows > EARLY_STOPPING_ROWS
    if task == "regression":
        linear, network = Ridge(), MLPRegressor(random_state=seed, early_stopping=early)
        trees = HistGradientBoostingRegressor(random_state=seed)
    else:
        linear, network = LogisticRegression(max_iter=1000), MLPClassifier(random_state=seed, early_stopping=early)
        trees = HistGradientBoostingClassifier(random_state=seed)
    return {"linear": make_pipeline(columns, linear), "boosting": trees, "MLP": make_pipeline(columns, network)}


def _scores(data: DataSet, seed: int, predicted: npt.NDArray[np.float64]) -> list[float]:
    """The metric of all test rows, then of parts of them with the same shares of the classes.

    Args:
        data: Data set.
        seed: Seed of the split.
        predicted: Probabilities of the classes, of the greater one of two, or values, (test rows, ...).
    """
    truth = data.labels[test_rows(len(data.labels), seed)]
    order = np.argsort(truth, kind="stable")
    rows = [np.arange(len(truth)), *(order[start::BLOCKS] for start in range(BLOCKS))]
    if data.task == "binary":
        return [float(roc_auc_score(truth[some], predicted[some, 0])) for some in rows]
    if data.task == "regression":
        return [float(r2_score(truth[some], predicted[some, 0])) for some in rows]
    answers = np.unique(data.labels)[predicted.argmax(axis=1)]
    return [float(accuracy_score(truth[some], answers[some])) for some in rows]


def quiet() -> None:
    """Leave out scikit-learn's warnings that its network did not converge in its default number of iterations."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", message="Found unknown categories")
