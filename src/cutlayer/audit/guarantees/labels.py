"""Canaries against label differential privacy: which label each gradient on the wire was computed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from cutlayer.audit.guarantees.canaries import BATCH, ID, LABEL, canary_job, fair_coins
from cutlayer.audit.guarantees.wire import Parties, train_on_canaries
from cutlayer.channel import Kind, Message

ACTIVE, PASSIVE = "active", "passive"
_FILLERS = 20
"""Number of rows of each class that no canary has, so that the task has all its classes."""


def label_votes(
    privacy: Mapping[str, Any], classes: int, epochs: int, canaries: int, key: bytes
) -> tuple[Tensor, Tensor, int]:
    """Train on canaries of class 0 or 1, drawn by a fair coin, and count the labels behind the gradients sent for each.

    Args:
        privacy: Protections of the active party's labels, such as `{"label_dp": {"eps": 1.0}}`.
        classes: Number of classes of the task.
        epochs: Number of epochs of the training.
        canaries: Number of rows.
        key: 32 bytes that replace all keys and secrets.

    Returns:
        For each canary that trained: the count of its labels of class 1 minus that of class 0, int64 (n,); its true
        class, int64 (n,); and the maximum number of labels that were used of a row.
    """
    labels = fair_coins(canaries, key)
    labels += [code for code in range(2, classes) for _ in range(_FILLERS)]
    ids = [f"canary {number}" for number in range(len(labels))]
    tables = {
        ACTIVE: pa.table({ID: ids, LABEL: [f"{label:06d}" for label in labels]}),
        PASSIVE: pa.table({ID: ids, "number": [float(number % 7) for number in range(len(labels))]}),
    }
    reader = _LabelReader(len(labels))
    bottom = {"kind": "mlp", "hidden": [classes]}
    split = {"test": 1 / len(labels), "validation": 0.0}
    train = {"epochs": epochs, "batch_size": min(BATCH, len(labels) // 2), "split": split}
    job = canary_job(ACTIVE, PASSIVE, bottom, train, classes=classes, labels=privacy)
    train_on_canaries(job, tables, key, reader)
    canary_rows = reader.training[reader.truth[reader.training] < 2]
    return reader.votes[canary_rows], reader.truth[canary_rows], int(reader.used.max())


class _LabelReader:
    """Solves every gradient message for the labels: dL/de = (prediction - label) W / n for a linear top model W."""

    def __init__(self, rows: int) -> None:
        self.votes = torch.zeros(rows, dtype=torch.int64)
        self.used = torch.zeros(rows, dtype=torch.int64)

    def __call__(self, message: Message, parties: Parties) -> None:
        active = parties.active
        if message.kind is not Kind.GRADIENT:
            return
        self.truth = active.setup.truth
        self.training = active.split.part("train")
        rows = list(active.schedule.epoch(message.epoch))[message.step]
        # The optimiser has not stepped when a gradient is sent: these are the weights that it was computed with.
        (linear,) = (layer for layer in active.setup.top.modules() if isinstance(layer, nn.Linear))
        weight = linear.weight.detach().double()
        residual = message.tensors["gradient"].double() @ torch.linalg.pinv(weight)
        drawn = (residual[:, 0] < 0).long() if residual.shape[1] == 1 else residual.argmin(1)
        sent = (message.tensors["gradient"] != 0).any(1)  # a gradient of zero states no label
        self.votes[rows] += sent * ((drawn == 1).long() - (drawn == 0).long())
        self.used[rows] += sent
