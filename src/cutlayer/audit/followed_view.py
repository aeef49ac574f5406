"""What a passive party holds of the followed rows of a run, as an attack on labels sees it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.attacks.label.history import HistoryView
from cutlayer.attacks.label.sent_labels import SentLabels
from cutlayer.audit.own_columns import sparse_columns
from cutlayer.channel.row_history import FollowedEpoch, draw_followed, read_own_embeddings
from cutlayer.config import Job
from cutlayer.config.phases import reads_labels
from cutlayer.kernels.noise.informative_rows import true_shares
from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.models.grade import GradeBottom
from cutlayer.parties.session.checkpoint import DRAWN_LABELS_FILE, SENT_LABELS_FILE, Checkpoints, State
from cutlayer.training.comparisons import compared_job
from cutlayer.training.trained import Run

PRIOR_ROWS = 20
"""Rows with the rates of all rows that are added to those of a grade."""
MIN_CLASS_SHARE = 0.005
"""Least share of a class that is believed of a grade."""


def followed_view(run: Run, label: str, party: str, epochs: Sequence[FollowedEpoch]) -> HistoryView:
    """The view of a party on the rows that the active party followed.

    Args:
        run: The run.
        label: Label of the run or of one that it is compared with.
        party: Name of the passive party.
        epochs: Messages of the followed rows, by epoch.
    """
    own = read_own_embeddings(run.folder.transcript(party))
    columns = sparse_columns(run.stores[party], epochs[0].rows) if party in run.stores else None
    sent = _sent_labels(run, compared_job(run.job, label), party, epochs[0])
    return HistoryView(party, run.task, epochs, own, columns, parts=_sent_parts(run, party), sent=sent)


def _sent_labels(run: Run, job: Job, party: str, followed: FollowedEpoch) -> SentLabels | None:
    """The drawn labels of followed rows that a party was sent, with a score of each; `None` where it was not.

    Args:
        run: The run.
        job: Its job, which is that of `run.job` or one that is compared with it.
        party: Name of the party.
        followed: Messages of training rows that the party has.
    """
    if not reads_labels(job, party):
        return None
    # Of a row that is held out at the party, since its part is that of another id there, no label was sent.
    train, own = run.held.split(party, run.split, job.train).part("train"), run.held.own_numbers(party, followed.rows)
    known = torch.isin(own, train)
    rows, at = followed.rows[known], torch.searchsorted(train, own[known])
    if party in run.stores:
        sent = _as_received(run, job, party, rows, at)
    else:
        grades = followed.embeddings.get(party)
        sent = _as_sent(run, job, party, None if grades is None else grades[known], rows, at)
    return None if sent is None else sent._replace(repeated=run.held.shared_numbers([party]) is not None)


def _as_received(run: Run, job: Job, party: str, rows: Tensor, at: Tensor) -> SentLabels | None:
    """The labels that the party has, scored by its model.

    Args:
        run: The run.
        job: As of `_sent_labels`.
        party: Name of the party.
        rows: Rows of which it was sent a label, int64 (n,).
        at: Which of its training rows they are, int64 (n,).
    """
    kept = _kept(run, job, party, DRAWN_LABELS_FILE)
    bottom = Run(job, run.folder, origin=run.origin).bottom(party)
    if kept is None or not isinstance(bottom, GradeBottom):
        return None
    tensors, plain = kept
    with torch.no_grad():
        scores = bottom.scores(*run.stores[party].gather(rows), tensors["folds"][at].long())
    return SentLabels(rows, tensors["labels"][at].long(), float(plain["epsilon"]), int(plain["classes"]), scores)


def _as_sent(run: Run, job: Job, party: str, grades: Tensor | None, rows: Tensor, at: Tensor) -> SentLabels | None:
    """The labels that the label owner sent to a party whose model is elsewhere; arguments as of `_as_received`.

    The grades of the rows, (n, k), which it received, stand for the model, with the classes that were drawn for the
    rows of each.
    """
    kept = _kept(run, job, job.active, SENT_LABELS_FILE)
    if kept is None or grades is None or party not in kept[0]:
        return None
    tensors, plain = kept
    epsilon, classes, labels = float(plain["epsilon"]), int(plain["classes"]), tensors[party][at].long()
    scores = _scores_by_grade(grades, labels, epsilon, classes, run.task.kind)
    return SentLabels(rows, labels, epsilon, classes, scores)


def _kept(run: Run, job: Job, party: str, name: str) -> State | None:
    return Checkpoints.of_run(job, run.folder.path, party).read_state(name)


def _scores_by_grade(grades: Tensor, labels: Tensor, epsilon: float, classes: int, kind: str) -> Tensor:
    """What a grade says of a class by the labels that were drawn for its rows, or its number; as `SentLabels.scores`.

    Args:
        grades: Released grades of the rows, (n, k).
        labels: Drawn classes of the rows, int64 (n,).
        epsilon: Privacy of a draw.
        classes: Number of classes.
        kind: Kind of the task.
    """
    of = grades_of_columns(grades).long()
    if kind == "regression":  # grades of numbers are in the order of the prediction, each of as many rows
        return of[:, None].double()
    drawn = functional.one_hot(labels, classes).double()
    counts = torch.zeros(int(of.max()) + 1, classes, dtype=torch.float64).index_add_(0, of, drawn)
    counts += drawn.mean(dim=0) * PRIOR_ROWS  # a grade of few rows says what all rows say
    rates = counts / counts.sum(dim=1, keepdim=True)
    shares = torch.tensor([true_shares(rate, epsilon) for rate in rates.tolist()], dtype=torch.float64)
    logs = shares.clamp_min(MIN_CLASS_SHARE).log()
    return (logs[:, 1:] - logs[:, :1] if classes == 2 else logs)[of]


def _sent_parts(run: Run, party: str) -> tuple[Tensor, Tensor] | None:
    """As many rows as are followed, of all that a party has, and their parts; `None` where it computes the split."""
    if not run.job.train.split.is_sent:
        return None
    held = (run.held.own_numbers(party, torch.arange(len(run.truth))) >= 0).nonzero().flatten()
    rows = draw_followed(held, run.job.parties[run.job.active].audit.followed, run.job.train.seed)
    return rows, run.split.codes[rows].long()
