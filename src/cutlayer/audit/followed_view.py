"""What a passive party holds of the followed rows of a run, as an attack on labels sees it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cutlayer.attacks.label.history import HistoryView
from cutlayer.attacks.label.sent_labels import SentLabels
from cutlayer.audit.own_columns import sparse_columns
from cutlayer.channel.row_history import FollowedEpoch, draw_followed, read_own_embeddings
from cutlayer.config import Job
from cutlayer.config.phases import grades_rows
from cutlayer.models.grade import GradeBottom
from cutlayer.parties.session.checkpoint import DRAWN, Checkpoints
from cutlayer.training.comparisons import compared_job
from cutlayer.training.trained import Run


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
    sent = _sent_labels(run, compared_job(run.job, label), party, epochs[0].rows)
    return HistoryView(party, run.task, epochs, own, columns, parts=_sent_parts(run, party), sent=sent)


def _sent_labels(run: Run, job: Job, party: str, rows: Tensor) -> SentLabels | None:
    """The drawn labels of some rows that a party was sent, and its model's scores of them; `None` where it was not.

    Args:
        run: The run.
        job: Its job, which is that of `run.job` or one that is compared with it.
        party: Name of the party.
        rows: Row numbers of training rows that the party has, int64 (n,).
    """
    if not grades_rows(job, party) or party not in run.stores:
        return None
    kept = Checkpoints(run.folder.path / "checkpoint" / party, party, job.digest()).kept(DRAWN)
    bottom = Run(job, run.folder, origin=run.origin).bottom(party)
    if kept is None or not isinstance(bottom, GradeBottom):
        return None
    (tensors, plain), train = kept, run.held.split(party, run.split).part("train")
    at = torch.searchsorted(train, run.held.own_numbers(party, rows))
    labels, folds = tensors["labels"][at].long(), tensors["folds"][at].long()
    with torch.no_grad():
        scores = bottom.scores(*run.stores[party].gather(rows), folds)
    return SentLabels(rows, labels, float(plain["epsilon"]), int(plain["classes"]), scores)


def _sent_parts(run: Run, party: str) -> tuple[Tensor, Tensor] | None:
    """As many rows as are followed, of all that a party has, and their parts; `None` where it computes the split."""
    if not run.job.train.split.is_sent:
        return None
    held = (run.held.own_numbers(party, torch.arange(len(run.truth))) >= 0).nonzero().flatten()
    rows = draw_followed(held, run.job.parties[run.job.active].audit.followed, run.job.train.seed)
    return rows, run.split.codes[rows].long()
