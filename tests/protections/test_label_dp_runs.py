"""Label DP through whole runs: predictions are of the true labels, and gradients reveal the drawn ones at most."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from cutlayer.audit.guarantees.labels import label_votes
from cutlayer.config import Job, validated
from cutlayer.jobs.options import Progress
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import train_together

KEY = bytes(range(32))
ROWS, EPS = 3000, 1.0
SHARES = {"binary": (0.9, 0.1), "multiclass": (0.8, 0.15, 0.05)}


def mean_prediction(kind: str, correction: str, folder: Path) -> np.ndarray[Any, Any]:
    """Mean predicted probabilities of held-out rows after a run on labels of the shares `SHARES`."""
    draw, shares = np.random.default_rng(0), SHARES[kind]
    labels = draw.choice(len(shares), ROWS, p=shares)
    ids, column = [f"row {number}" for number in range(ROWS)], draw.standard_normal(ROWS) + labels
    tables = {"bank": pa.table({"id": ids, "label": labels}), "telco": pa.table({"id": ids, "x": column})}
    privacy = {"label_dp": {"eps": EPS, "correction": correction}}
    raw = {
        "task": kind,
        "parties": {
            "bank": {
                "role": "active",
                "id": "id",
                "label": "label",
                "features": {"include": "none"},
                "privacy": privacy,
                "audit": {"every": "never"},
            },
            "telco": {"role": "passive", "id": "id"},
        },
        "model": {"bottom": {"kind": "linear", "width": 2}, "top": {"kind": "mlp", "hidden": []}},
        "train": {
            "epochs": 6,
            "batch_size": 200,
            "optimizer": {"lr": 0.1},
            "split": {"test": 0.2, "validation": 0.0},
            "threads": 1,
        },
    }
    job = validated(Job, raw, "job")
    opened = {name: open_table(job, name, tables) for name in job.parties}
    run = train_together(job, RunFolder.create(folder, resume=False), opened, Keys(folder, KEY), Progress())
    predicted: np.ndarray[Any, Any] = run.active.task.predict(run.active.logits.double()).mean(0).numpy()
    return predicted


@pytest.mark.parametrize("kind", SHARES)
def test_predictions_are_of_the_true_labels(kind: str, tmp_path: Path) -> None:
    shares = np.array(SHARES[kind])
    # Training rows estimate a share up to 0.01 to 0.03, held-out ones up to 0.01.
    assert np.abs(mean_prediction(kind, "forward", tmp_path / "a") - shares).max() < 0.08
    kept = math.exp(EPS) / (math.exp(EPS) + len(shares) - 1)
    drawn = shares * kept + (1 - shares) * (1 - kept) / (len(shares) - 1)
    assert np.abs(mean_prediction(kind, "none", tmp_path / "b") - drawn).max() < 0.06
    assert np.abs(drawn - shares).max() > 0.2


@pytest.mark.parametrize(("eps", "epochs"), [(1.0, 1), (1.0, 4), (2.0, 2)])
def test_gradients_of_the_corrected_loss_reveal_the_drawn_label_and_no_more(eps: float, epochs: int) -> None:
    """The attacker solves every gradient for the label behind it: right as often as the drawn label is."""
    votes, truth, _ = label_votes({"label_dp": {"eps": eps, "correction": "forward"}}, 2, epochs, 4000, KEY)
    right = int(((votes > 0) == (truth == 1)).sum())
    low, high = stats.binom.interval(1 - 1e-6, len(truth), math.exp(eps) / (1 + math.exp(eps)))
    assert low <= right <= high
