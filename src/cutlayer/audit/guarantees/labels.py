"""Canaries against label differential privacy: which label each gradient on the wire was computed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from cutlayer.audit.guarantees.wire import Parties, train_on_canaries
from cutlayer.channel import Kind, Message
from cutlayer.config import Job, validated

ACTIVE, PASSIVE, ID, LABEL = "active", "passive", "id", "label"
_BATCH = 4096
_FILLERS = 20
"""Rows of every class that no canary has, so that the task has all its classes."""


def votes_of(
    privacy: Mapping[str, Any], classes: int, epochs: int, canaries: int, key: bytes
) -> tuple[Tensor, Tensor, int]:
    """Train on canaries of class 0 or 1, drawn by a fair coin, and count the labels behind the gradients sent for each.

    Args:
        privacy: protections of the active party's labels, such as `{"label_dp": {"eps": 1.0}}`.
        classes: of the task.
        epochs: of the training.
        canaries: number of rows.
        key: 32 bytes in place of all keys and secrets.

    Returns:
        For each canary that trained: its labels of class 1 minus those of class 0, int64 (n,); its true class, int64
        (n,); and the number of labels that were used of the row that was used most.
    """
    labels = torch.randint(2, (canaries,), generator=_generator(key)).tolist()
    labels += [code for code in range(2, classes) for _ in range(_FILLERS)]
    ids = [f"canary {number}" for number in range(len(labels))]
    tables = {
        ACTIVE: pa.table({ID: ids, LABEL: [f"{label:06d}" for label in labels]}),
        PASSIVE: pa.table({ID: ids, "number": [float(number % 7) for number in range(len(labels))]}),
    }
    reader = _LabelReader(len(labels))
    train_on_canaries(_job(privacy, classes, epochs, len(labels)), tables, key, reader)
    mine = reader.training[reader.truth[reader.training] < 2]
    return reader.votes[mine], reader.truth[mine], int(reader.used.max())


class _LabelReader:
    """Solves every gradient message for the labels: dL/de = (prediction - label) W / n for a linear top model W."""

    def __init__(self, rows: int) -> None:
        self.votes = torch.zeros(rows, dtype=torch.int64)
        self.used = torch.zeros(rows, dtype=torch.int64)

    def __call__(self, message: Message, parties: Parties) -> None:
        active = parties.active
        if message.kind is not Kind.GRADIENT:
            return
        self.truth, self.training = active.truth, active.split.part("train")
        rows = list(active.schedule.epoch(message.epoch))[message.step]
        # The optimiser has not stepped when a gradient is sent: these are the weights that it was computed with.
        (linear,) = (layer for layer in active.top.modules() if isinstance(layer, nn.Linear))
        weight = linear.weight.detach().double()
        residual = message.tensors["gradient"].double() @ torch.linalg.pinv(weight)
        drawn = (residual[:, 0] < 0).long() if residual.shape[1] == 1 else residual.argmin(1)
        self.votes[rows] += (drawn == 1).long() - (drawn == 0).long()
        self.used[rows] += 1


def _generator(key: bytes) -> torch.Generator:
    return torch.Generator().manual_seed(int.from_bytes(key[:7], "little"))


def _job(privacy: Mapping[str, Any], classes: int, epochs: int, rows: int) -> Job:
    common: dict[str, Any] = {"id": ID, "audit": {"every": "never"}}
    active = {**common, "role": "active", "label": LABEL, "features": {"include": "none"}, "privacy": dict(privacy)}
    raw = {
        "task": "binary" if classes == 2 else "multiclass",
        "parties": {ACTIVE: active, PASSIVE: {**common, "role": "passive"}},
        "model": {"bottom": {"kind": "mlp", "hidden": [classes]}, "top": {"kind": "mlp", "hidden": []}},
        "train": {
            "epochs": epochs,
            "batch_size": min(_BATCH, rows // 2),
            "threads": 1,
            "split": {"test": 1 / rows, "validation": 0.0},
        },
    }
    return validated(Job, raw, "canaries")
