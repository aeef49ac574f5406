"""Two parties' tables in memory, and an estimator small enough for a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cutlayer import VerticalClassifier, VerticalRegressor

ROWS = 240
SMALL: dict[str, Any] = {
    "release": "every_step",
    "epochs": 2,
    "batch_size": 64,
    "bottom": {"kind": "mlp", "hidden": [8, 4]},
    "top": {"kind": "mlp", "hidden": [4]},
    "lr": 0.05,
    "seed": 3,
    "key": bytes([4] * 32),
}
"""Settings of a small training that repeats: without the key every fit starts from other weights."""


def tables() -> tuple[dict[str, Any], np.ndarray]:
    """A bank's frame and a shop's array of the same people, and a label that both help to predict."""
    draw = np.random.default_rng(0)
    bank = pd.DataFrame({"age": draw.normal(size=ROWS), "job": draw.choice(list("abc"), ROWS)})
    shop = draw.normal(size=(ROWS, 3))
    y = (bank["age"].to_numpy() + shop[:, 0] + 0.3 * draw.normal(size=ROWS) > 0).astype(int)
    return {"bank": bank, "shop": shop}, y


def classifier(**changes: Any) -> VerticalClassifier:
    """An estimator that trains in a fraction of a second, since it is not audited unless attacks are named."""
    return VerticalClassifier(**{"active": "bank", "attacks": (), **SMALL, **changes})


def regressor(**changes: Any) -> VerticalRegressor:
    """The same for numbers."""
    return VerticalRegressor(**{"active": "bank", "attacks": (), **SMALL, **changes})
