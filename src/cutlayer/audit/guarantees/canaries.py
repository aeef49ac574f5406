"""Canaries: made-up rows of two parties, the job that trains on them, and the statistics that were read of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from cutlayer.audit.empirical import Score
from cutlayer.config import Job, validated
from cutlayer.parties.passive import PassiveParty

ACTIVE, PASSIVE = "active", "passive"
ID, ROW = "id", "row"
LABEL = "label"
GROUP = "group"
SIDE = "side"
BATCH = 4096
_FILLER_ROWS = 20
"""Number of rows of each class that no canary has."""
LENGTH_FACTOR = 1e4
"""Factor by which a canary exceeds the clipping norm: clipping then decides how long it is."""


def canary_job(
    active: str,
    party: str,
    bottom: Mapping[str, Any],
    train: Mapping[str, Any],
    *,
    classes: int = 2,
    labels: Mapping[str, Any] | None = None,
    features: Mapping[str, Any] | None = None,
    fit: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] = MappingProxyType({"kind": "mlp", "hidden": []}),
    repeats: int = 1,
    referring: bool = False,
) -> Job:
    """A job of two parties with a linear top model, in which only the passive party has features.

    Args:
        active: Name of the active party.
        party: Name of the passive party.
        bottom: Section of the bottom model.
        train: The `train` section; threads, seed and early stopping are set here.
        classes: Number of classes of the task.
        labels: Protections of the active party.
        features: Protections of the passive party.
        fit: Its fit.
        top: Section of the top model.
        repeats: Number of the active party's rows of each canary.
        referring: Whether these refer to the canary's row by a column of their own.
    """
    common: dict[str, Any] = {"id": ID, "audit": {"every": "never"}}
    owner = {"role": "active", "label": LABEL, "features": {"include": "none"}, "privacy": dict(labels or {})}
    if repeats > 1:
        owner |= {"id": ROW, "partner_ids": {party: ID}} if referring else {"id": {"column": ID, "duplicates": "keep"}}
    passive = {"role": "passive", "privacy": dict(features or {}), "fit": fit}
    raw = {
        "task": "binary" if classes == 2 else "multiclass",
        "parties": {active: common | owner, party: common | passive},
        "model": {"bottom": dict(bottom), "top": dict(top)},
        "train": {**train, "threads": 1, "seed": 0, "early_stop": None},
        "rows": "common" if repeats == 1 else "all",
    }
    return validated(Job, raw, "canaries")


def fair_coins(count: int, key: bytes) -> list[int]:
    """The secret of each canary, 0 or 1, drawn from a key of 32 bytes."""
    generator = torch.Generator().manual_seed(int.from_bytes(key[:7], "little"))
    return torch.randint(2, (count,), generator=generator).tolist()


def labelled_tables(
    labels: Sequence[int], repeats: int = 1, **columns: Sequence[str] | Sequence[float]
) -> dict[str, pa.Table]:
    """Tables of canaries with labels, of several rows of the active party each, and with columns of the passive one."""
    ids = [f"canary {number}" for number in range(len(labels))]
    rows = range(len(ids) * repeats)
    return {
        ACTIVE: pa.table({ROW: rows, ID: ids * repeats, LABEL: [f"{label:06d}" for label in labels] * repeats}),
        PASSIVE: pa.table({ID: ids, **columns}),
    }


def coin_labels(canaries: int, classes: int, key: bytes) -> list[int]:
    """Labels of canaries by a fair coin each, and of rows of all other classes, so that the task has them."""
    return fair_coins(canaries, key) + [code for code in range(2, classes) for _ in range(_FILLER_ROWS)]


class VoteReader:
    """Counts what the messages of each row say of its secret.

    Attributes:
        votes: Number of messages that speak for the second value minus that for the first, int64 (n,).
        used: Number of messages, int64 (n,).
        truth: The secret, int64 (n,); -1 of a row that is no canary.
    """

    def __init__(self, rows: int) -> None:
        self.votes = torch.zeros(rows, dtype=torch.int64)
        self.used = torch.zeros(rows, dtype=torch.int64)
        self.truth = torch.full((rows,), -1)


def neighbour_tables(active: str, party: str, canaries: int, groups: int, key: bytes) -> dict[str, pa.Table]:
    """Tables of canaries of which each is one of two neighbouring rows.

    Args:
        active: Name of the active party.
        party: Name of the passive party.
        canaries: Number of rows.
        groups: Number of pairs of neighbours, at most 10,000; a canary belongs to one of them.
        key: 32 bytes that decide which of the two neighbours a canary is.
    """
    numbers = range(canaries)
    ids = [f"canary {number}" for number in numbers]
    groups_of_rows = [f"{number % groups:04d}" for number in numbers]
    sides = ["ab"[side] for side in fair_coins(canaries, key)]
    return {
        active: pa.table({ID: ids, LABEL: [str(number % 2) for number in numbers]}),
        party: pa.table({ID: ids, GROUP: groups_of_rows, SIDE: sides}),
    }


def sides_of(codes: Tensor) -> Tensor:
    """Side of each row, 1.0 or -1.0 for the two neighbours, from its codes (n, 2)."""
    return codes[:, 1].float().remainder(2) * 2 - 1


def scores_of(totals: Mapping[str, Tensor], passive: PassiveParty, rows: Tensor, suffix: str = "") -> list[Score]:
    """Each statistic of some of the canaries, with the neighbour that each of them is.

    Args:
        totals: Statistics by name, float64 (canaries,).
        passive: The passive party, which holds the canaries.
        rows: Row numbers of the canaries, int64 (n,).
        suffix: Text after each name.
    """
    present = sides_of(passive.setup.store.gather(rows)[0]) > 0
    return [Score(f"{name}{suffix}", total[rows], present) for name, total in totals.items()]
