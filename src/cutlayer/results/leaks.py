"""Leaks: what an attack reads of the labels from a message, or from the output of a layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.config.job import Role
from cutlayer.results.number import Number


class LeakResult(FrozenModel):
    """One cell of the leak matrix: one attack on one kind of message of one party, in one run.

    Attributes:
        run: name of the run.
        protections: names of the protections that were active in it.
        party: the passive party on whose link the message crossed.
        message: kind of message.
        attack: its name.
        leak: max(AUC, 1 - AUC) at the worst epoch, 0.5 (chance) to 1.
        low: lower end of its 95 % bootstrap interval; 0.5 where that includes chance.
        high: upper end of that interval.
        epoch: the worst epoch, from 1.
        epochs_seen: number of epochs that the worst was taken over.
        pooled_auc: AUC over all sampled rows at once, at that epoch, with its sign.
        batch_auc: mean of the batches' AUC at that epoch, with its sign.
        first_epoch_leak: leak at the first epoch.
        other_aucs: AUC of other scores that the paper names.
        hard_accuracy: accuracy of the attack's own decisions, where the paper defines them.
        hard_auc: AUC of those decisions.
        rows: number of rows scored at that epoch.
        positives: number of positive rows among them.
        knowledge: what the attacker was given.
    """

    run: str
    protections: tuple[str, ...] = ()
    party: str
    message: Literal["gradient", "embedding"]
    attack: str
    leak: float
    low: Number
    high: Number
    epoch: int = Field(ge=1)
    epochs_seen: int
    pooled_auc: Number
    batch_auc: Number
    first_epoch_leak: Number
    other_aucs: Mapping[str, Number] = Field(default_factory=dict)
    hard_accuracy: Number = None
    hard_auc: Number = None
    rows: int
    positives: int
    knowledge: tuple[str, ...] = ()


class LayerLeak(FrozenModel):
    """The leak of one layer's output, 0.5 to 1; `index` is its position along the network."""

    run: str
    party: str
    side: Role
    layer: str
    index: int
    leak: float
    epoch: int
