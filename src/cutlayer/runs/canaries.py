"""A small training on made-up rows, run by the same parties as any other, to see which labels it uses of each row."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from cutlayer.accounting import Event, NoFormalGuarantee, ReleasePlan
from cutlayer.channel import link
from cutlayer.config import Job, Section, validated
from cutlayer.parties.active import ActiveParty
from cutlayer.parties.drive import drive_together
from cutlayer.parties.observer import Observer
from cutlayer.parties.passive import PassiveParty
from cutlayer.parties.random_state import isolated
from cutlayer.protections import Chain
from cutlayer.protections.base import ActiveView, Asset, Protection, Side
from cutlayer.runs.folder import RunFolder
from cutlayer.runs.together import Keys, local_side, open_table

ACTIVE, PASSIVE, ID, LABEL = "active", "passive", "id", "label"
_BATCH = 4096
_FILLERS = 20
"""Rows of every class that no canary has, so that the task has all its classes."""


class _Witness(Protection[Section]):
    """Changes nothing; counts the labels that training computes its gradients from."""

    name = "witness"
    config = Section
    side = Side.ACTIVE
    protects = Asset.LABELS
    reference = ""
    rank = 99

    def __init__(self, rows: int) -> None:
        super().__init__(Section())
        self.votes = torch.zeros(rows, dtype=torch.int64)
        self.used = torch.zeros(rows, dtype=torch.int64)

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Count 1 for a label of class 1, -1 for one of class 0."""
        self.votes[view.rows] += (view.labels == 1).long() - (view.labels == 0).long()
        self.used[view.rows] += 1
        return g

    def event(self, plan: ReleasePlan) -> Event:
        """It protects nothing."""
        return NoFormalGuarantee("it only watches")

    def figures(self) -> Mapping[str, float]:
        """None."""
        return {}


class _Truth(Observer):
    """Keeps the true labels, by row of the common order, and which rows train."""

    def started(self, task: Any, truth: Tensor, training: Tensor, epochs: int, start: int) -> None:
        """Called before step 0."""
        self.truth, self.training = truth, training


def votes_of(
    privacy: Mapping[str, Any], classes: int, epochs: int, canaries: int, key: bytes
) -> tuple[Tensor, Tensor, int]:
    """Train on canaries, half of class 0 and half of class 1, and count the labels that were used for each.

    Args:
        privacy: the active party's, such as `{"label_dp": {"eps": 1.0}}`.
        classes: of the task.
        epochs: of the training.
        canaries: how many rows.
        key: 32 bytes in place of all keys and secrets.

    Returns:
        For each canary that trained: its labels of class 1 less those of class 0, its true class, and how many labels
        were used of the row that was used most.
    """
    labels = [number % 2 for number in range(canaries)]
    labels += [code for code in range(2, classes) for _ in range(_FILLERS)]
    job = _job(privacy, classes, epochs, len(labels))
    witness, truth = _Witness(len(labels)), _Truth()
    with tempfile.TemporaryDirectory(prefix="cutlayer-canaries-") as place:
        _train(job, labels, Path(place), key, witness, truth)
    mine = truth.training[truth.truth[truth.training] < 2]
    return witness.votes[mine], truth.truth[mine], int(witness.used.max())


def _train(job: Job, labels: list[int], place: Path, key: bytes, witness: _Witness, truth: _Truth) -> None:
    ids = [f"canary {number}" for number in range(len(labels))]
    tables = {
        ACTIVE: pa.table({ID: ids, LABEL: [f"{label:06d}" for label in labels]}),
        PASSIVE: pa.table({ID: ids, "number": [float(number % 7) for number in range(len(labels))]}),
    }
    folder = RunFolder.create(place / "run", resume=False)
    keys = Keys(place, supplied=key)
    here, there = link(ACTIVE, PASSIVE, "canaries")
    sides = {
        name: local_side(job, name, folder, place / "data", keys, open_table(job, name, tables), resume=False)
        for name in job.parties
    }
    chain = Chain(ACTIVE, [*sides[ACTIVE].chain.protections, witness])
    active = ActiveParty(job, replace(sides[ACTIVE], chain=chain), {PASSIVE: here}, truth)
    passive = PassiveParty(job, sides[PASSIVE], there)
    parties: dict[str, Generator[Any, Any, Any]] = {ACTIVE: active.run(), PASSIVE: passive.run()}
    drive_together({name: isolated(party, sides[name].starting_key) for name, party in parties.items()})


def _job(privacy: Mapping[str, Any], classes: int, epochs: int, rows: int) -> Job:
    common: dict[str, Any] = {"id": ID, "audit": {"every": "never"}}
    active = {**common, "role": "active", "label": LABEL, "features": {"include": "none"}, "privacy": dict(privacy)}
    raw = {
        "task": "binary" if classes == 2 else "multiclass",
        "parties": {ACTIVE: active, PASSIVE: {**common, "role": "passive"}},
        "model": {"bottom": {"kind": "mlp", "hidden": [1]}, "top": {"kind": "mlp", "hidden": []}},
        "train": {
            "epochs": epochs,
            "batch_size": min(_BATCH, rows // 2),
            "threads": 1,
            "split": {"test": 1 / rows, "validation": 0.0},
        },
    }
    return validated(Job, raw, "canaries")
