"""Canaries against a job with grades: the drawn labels that are sent, and the drawn grades that come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from cutlayer.audit.guarantees.canaries import (
    ACTIVE,
    PASSIVE,
    SIDE,
    VoteReader,
    canary_job,
    coin_labels,
    labelled_tables,
)
from cutlayer.audit.guarantees.wire import Parties, train_on_canaries
from cutlayer.channel import Kind, Message, rows_digest
from cutlayer.config import Job
from cutlayer.errors import NotApplicable
from cutlayer.models.grade import GradeBottom
from cutlayer.parties.phases.release import release_batches

Game = Literal["labels", "grades"]


def grade_votes(
    game: Game,
    labels: Mapping[str, Any],
    grades: Mapping[str, Any],
    classes: int,
    canaries: int,
    key: bytes,
    repeats: int = 1,
    *,
    referring: bool = False,
) -> tuple[Tensor, Tensor, int]:
    """Train on canaries whose secret is a fair coin, their label and their columns alike, and read what was sent.

    Args:
        game: Whether the label owner's message is read, or the partner's.
        labels: Protections of the label owner, such as `{"label_dp": {"eps": 1.0}}`.
        grades: Those of the partner, such as `{"grade_dp": {"epsilon": 8.0}}`.
        classes: Number of classes of the task.
        canaries: Number of rows.
        key: 32 bytes that replace all keys and secrets.
        repeats: Number of the label owner's rows of each canary: all of them have its label.
        referring: Whether these refer to the canary's row by a column of their own.

    Returns:
        For each canary that was sent: the number of messages that speak for the second value minus that for the first,
        int64 (n,); its secret, 0 or 1, int64 (n,); and the maximum number of different messages of a row.

    Raises:
        NotApplicable: The partner's models give both values of its column the same grade.
    """
    labels_of_rows = coin_labels(canaries, classes, key)
    tables = labelled_tables(labels_of_rows, repeats, **{SIDE: [f"side {min(label, 1)}" for label in labels_of_rows]})
    reader = (_LabelReader if game == "labels" else _GradeReader)(len(labels_of_rows))
    train_on_canaries(_job(labels, grades, classes, repeats, referring=referring), tables, key, reader)
    if not reader.used.any():
        raise NotApplicable.expected("drawn labels that tell both values of a canary apart", "the same grade of both")
    chosen = (reader.used > 0) & (reader.truth >= 0)
    return reader.votes[chosen], reader.truth[chosen], int(reader.used.max())


class _LabelReader(VoteReader):
    def __call__(self, message: Message, parties: Parties) -> None:
        """Read the drawn labels of the training rows."""
        if message.kind is not Kind.LABELS:
            return
        held, split = parties.active.passives.held, parties.active.split
        rows = held.split(PASSIVE, split, parties.active.job.train).part("train")
        drawn = message.tensors["labels"].long()
        truth = parties.active.setup.truth
        truth = (truth[held.places(PASSIVE)] if held.by_party else truth)[rows].long()
        self.truth[rows] = torch.where(truth < 2, truth, -1)
        self.votes[rows] += (drawn == 1).long() - (drawn == 0).long()
        self.used[rows] += 1


class _GradeReader(VoteReader):
    def __call__(self, message: Message, parties: Parties) -> None:
        """Compare drawn grades with those that the models give to both values of the column."""
        if message.kind is not Kind.RELEASE:
            return
        passive = parties.passive
        bottom = passive.setup.bottom
        if not isinstance(bottom, GradeBottom):
            return
        batches = [rows for _, rows in release_batches(passive.split, bottom.width)]
        rows = next(rows for rows in batches if rows_digest(rows) == message.rows)
        codes, numbers = passive.setup.store.gather(rows)
        values = torch.unique(passive.setup.store.codes[:, 0])
        first, second = (
            bottom.grade(torch.full_like(codes, int(value)), numbers, passive.setup.ids(rows)) for value in values
        )
        drawn = message.tensors["embedding"][:, 0].long()  # one byte a row, as it crosses
        apart = (first != second).long()
        self.truth[rows] = (codes[:, 0] == values[1]).long()
        self.votes[rows] += apart * ((drawn == second).long() - (drawn == first).long())
        self.used[rows] += apart


def _job(labels: Mapping[str, Any], grades: Mapping[str, Any], classes: int, repeats: int, *, referring: bool) -> Job:
    # Canaries carry nothing but their secret, which no limit is meant for.
    fit = {"kind": "grade", "candidates": ["linear"], "folds": 2, "least_z": 0, "limits": {"other": 1.0}}
    graded = {"kind": "grade", "least_rows": 0, "label_epsilon": labels["label_dp"]["eps"]}
    bottoms = {ACTIVE: {"kind": "auto"}, PASSIVE: graded}
    train = {"release": "once", "split": {"test": 0.1, "validation": 0.0}}
    top = {"kind": "linear", "folds": 1}
    about: Mapping[str, Any] = {"labels": labels, "features": grades, "repeats": repeats, "referring": referring}
    return canary_job(ACTIVE, PASSIVE, bottoms, train, classes=classes, fit=fit, top=top, **about)
