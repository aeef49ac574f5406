"""The reference that practitioners ask for: gradient boosting on all columns in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from torch import Tensor

from cutlayer.data.split import Split
from cutlayer.data.store import Store
from cutlayer.tasks import Task
from cutlayer.training.references import Reference

MAX_CATEGORIES = 254
"""Most categories of a column that the library takes; of more, the rarer ones count as missing."""
_SMALLEST = 1e-12


def train_boosting(
    stores: Mapping[str, Store], task: Task, labels: Tensor, split: Split, part: str, seed: int
) -> Reference:
    """Train scikit-learn's histogram gradient boosting with its default settings.

    It trains on the training and the validation rows, since it chooses nothing by the latter. It holds all encoded
    columns in memory.

    Args:
        stores: Encoded columns of every party, by name.
        task: Task, with its classes.
        labels: True labels of the common rows, (n,).
        split: Rows for training, validation and testing.
        part: Held-out rows to report: `validation`, which then do not train, or `test`.
        seed: Seed of the library's draws.
    """
    held_out = getattr(split, part)
    rows = split.train if part == "validation" else np.sort(np.concatenate([split.train, split.validation]))
    codes, numbers = _columns(stores, rows), _numbers(stores)
    columns = np.concatenate([codes, numbers], axis=1)
    kind = HistGradientBoostingRegressor if task.kind == "regression" else HistGradientBoostingClassifier
    model = kind(categorical_features=np.arange(columns.shape[1]) < codes.shape[1], random_state=seed)
    model.fit(columns[rows], labels.numpy()[rows])
    logits = _logits(model, columns[held_out], task)
    return Reference(task.evaluate(logits, labels[torch.from_numpy(held_out)]), logits, -1)


def _columns(stores: Mapping[str, Store], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Codes of all categorical columns by their frequency in some rows, float32 (n, columns); NaN for rare ones."""
    ranked = [
        _by_frequency(column, rows)
        for store in stores.values()
        for column in store.gather(torch.arange(store.rows))[0].numpy().T
    ]
    count = next(iter(stores.values())).rows
    return np.stack(ranked, axis=1) if ranked else np.empty((count, 0), dtype=np.float32)


def _by_frequency(codes: npt.NDArray[np.int32], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    counts = np.bincount(codes[rows], minlength=int(codes.max(initial=0)) + 1)
    order = np.argsort(-counts, kind="stable")
    ranks = np.full(len(counts), np.nan, dtype=np.float32)
    common = order[:MAX_CATEGORIES][counts[order[:MAX_CATEGORIES]] > 0]
    ranks[common] = np.arange(len(common))
    ranked: npt.NDArray[np.float32] = ranks[codes]
    return ranked


def _numbers(stores: Mapping[str, Store]) -> npt.NDArray[np.float32]:
    numbers = [store.gather(torch.arange(store.rows))[1].flatten(1).numpy() for store in stores.values()]
    return np.concatenate(numbers, axis=1)


def _logits(model: Any, columns: npt.NDArray[np.float32], task: Task) -> Tensor:
    """The model's predictions as logits (n, outputs) of the task."""
    if task.kind == "regression":
        return torch.from_numpy((model.predict(columns) - task.center) / task.scale)[:, None]
    # A class without a training row has no column in the model.
    shares = np.zeros((len(columns), len(task.classes)))
    shares[:, model.classes_] = model.predict_proba(columns)
    logs = torch.from_numpy(shares).clamp_min(_SMALLEST).log()
    return logs[:, 1:] - logs[:, :1] if task.kind == "binary" else logs
