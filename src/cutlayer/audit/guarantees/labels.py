"""Canaries against label differential privacy: which label each gradient on the wire was computed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.audit.guarantees.canaries import (
    ACTIVE,
    BATCH,
    PASSIVE,
    VoteReader,
    canary_job,
    coin_labels,
    labelled_tables,
)
from cutlayer.audit.guarantees.wire import Parties, train_on_canaries
from cutlayer.channel import Kind, Message


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
    labels = coin_labels(canaries, classes, key)
    tables = labelled_tables(labels, number=[float(number % 7) for number in range(len(labels))])
    reader = _LabelReader(len(labels))
    bottom = {"kind": "mlp", "hidden": [classes]}
    split = {"test": 1 / len(labels), "validation": 0.0}
    train = {"epochs": epochs, "batch_size": min(BATCH, len(labels) // 2), "split": split}
    job = canary_job(ACTIVE, PASSIVE, bottom, train, classes=classes, labels=privacy)
    train_on_canaries(job, tables, key, reader)
    canary_rows = reader.training[reader.truth[reader.training] < 2]
    return reader.votes[canary_rows], reader.truth[canary_rows], int(reader.used.max())


class _LabelReader(VoteReader):
    """Solves every gradient message for the labels: dL/de = (prediction - label) W / n for a linear top model W."""

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
