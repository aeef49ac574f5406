"""VertiMosaic's protocols in its in-memory transport, whose messages are kept; run by `python -m benchmarks.rivals`.

Settings are those of its own experiment on credit (`vertimosaic-linked-uci`).
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from vertimosaic.models import VFLHistGBDT, VFLLogisticRegression
from vertimosaic.parties import ActiveParty, PassiveParty
from vertimosaic.transport import InMemoryTransport

KEPT = {"residual_signal": "residuals", "gradients": "residuals"}
"""Messages with one number a row that come from the labels."""


class Recorder(InMemoryTransport):  # type: ignore[misc]
    """The in-memory transport, with copies of what it passes on."""

    def __init__(self) -> None:
        super().__init__()
        self.residuals: list[Any] = []
        self.logits: list[Any] = []
        self.routes: list[Any] = []

    def send(self, payload: Any, **about: Any) -> Any:
        """Pass on a message, and keep a copy of what carries a number or a bit for each row."""
        out = super().send(payload, **about)
        kind, stage = about["message_type"], about.get("stage")
        if stage and stage.startswith("validation"):
            return out
        if kind in KEPT:
            self.residuals.append(np.array(out, dtype=np.float32))
        elif "logit" in kind:
            self.logits.append(np.array(out, dtype=float))
        elif kind == "partition_routing_indices":
            self.routes.append((np.array(out[0]), np.array(out[1])))
        return out


def main() -> None:
    """Fit one model: the two files, the settings as JSON, and the file of results."""
    own, other = (np.load(path) for path in sys.argv[1:3])
    settings, out = json.loads(sys.argv[3]), Path(sys.argv[4])
    train, labels = own["train"], own["labels"].astype(float)
    used, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    # A tenth of the training rows decides when to stop, as its experiment has a validation part.
    order = np.random.default_rng(settings["seed"]).permutation(len(train))
    stop, fit = order[: len(train) // 10], order[len(train) // 10 :]
    columns = own["columns"].astype(float), other["columns"].astype(float)

    def sides(rows: Any, truth: Any) -> tuple[ActiveParty, list[PassiveParty]]:
        return _active(columns[0][rows], truth), [PassiveParty("partner", columns[1][rows])]

    transport = Recorder()
    if settings["model"] == "logistic":
        model: Any = VFLLogisticRegression(
            learning_rate=0.08, max_iter=500, l2=1e-3, early_stopping_rounds=5, seed=settings["seed"],
            transport=transport,
        )  # fmt: skip
    else:
        model = VFLHistGBDT(
            n_estimators=20, max_depth=3, min_samples_leaf=20, early_stopping_rounds=3, seed=settings["seed"],
            transport=transport,
        )  # fmt: skip
    mine, partners = sides(train[fit], labels[fit])
    model.fit(mine, partners, *sides(train[stop], labels[stop]))
    training_bytes = transport.estimated_payload_bytes
    seen = _seen(transport, len(fit), settings["model"])
    every = np.arange(len(columns[0]))
    active, passive = sides(every, np.arange(len(every)) % 2)
    if settings["model"] != "logistic":
        for fitted, scored in zip((mine, *partners), (active, *passive), strict=True):
            fitted.share_histogram_routing_state_with(scored)
    scores = model.decision_function([active, *passive])
    now = resource.getrusage(resource.RUSAGE_SELF)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    np.savez_compressed(
        out, scores=scores, rows=train[fit], seen=seen[0], received=seen[1], bytes=training_bytes,
        wall=time.perf_counter() - began, cpu=cpu,
    )  # fmt: skip


def _active(columns: Any, labels: Any) -> ActiveParty:
    return ActiveParty("bank", columns, labels)


def _seen(transport: Recorder, rows: int, model: str) -> tuple[Any, Any]:
    """What the label owner saw of each training row, (rows, ...), and what the partner received, (rows, ...)."""
    residuals = [each for each in transport.residuals if len(each) == rows]
    received = np.stack(residuals, axis=1)
    if model == "logistic":
        seen = np.stack([each for each in transport.logits if len(each) == rows], axis=1)
    else:
        seen = np.zeros((rows, len(transport.routes)), np.float32)
        for at, (left, right) in enumerate(transport.routes):
            seen[left, at], seen[right, at] = -1, 1
    return seen, received


if __name__ == "__main__":
    main()
