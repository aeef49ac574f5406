"""The view of passive parties that collude: what each of them holds of the same rows, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cutlayer.attacks.label.history import HistoryView
from cutlayer.attacks.label.sent_labels import SentLabels
from cutlayer.lazy import Tensor, torch


def pool_views(party: str, views: Sequence[HistoryView]) -> HistoryView:
    """The view of parties that pool what they hold of the followed rows.

    Embeddings stand side by side, and so do gradients: the matrices of one epoch are joined along the columns, each
    scaled first so that a number of it has a variance of 1. Attacks on directions and lengths then weigh the parties
    equally, whatever the widths of their cuts and the sizes of their messages; and noise, which is most of a noisy
    message, has about the same size in every column. Rows without a message stay zero. A party without such a message
    in an epoch has zeros there. The size of a step's messages is the parties' mean, each size over its own mean.

    Args:
        party: Name of the view.
        views: Views of the parties on their own links, of the same rows and epochs, two or more.

    Returns:
        The view; it has embeddings by own weights, or columns, where all of the parties have them.
    """
    from scipy import sparse

    from cutlayer.channel.row_history import FollowedEpoch

    first = views[0]
    names = [view.party for view in views]
    # A party has one width in all epochs, also in those in which it was absent.
    embeddings = _widths(names, [epoch.embeddings for epoch in first.epochs])
    gradients = _widths(names, [epoch.gradients for epoch in first.epochs])
    epochs = [
        FollowedEpoch(
            epoch.epoch,
            epoch.rows,
            epoch.steps,
            {party: _joined(epoch.embeddings, embeddings, epoch.steps)} if embeddings else {},
            {party: _joined(epoch.gradients, gradients, epoch.steps)} if gradients else {},
            {party: _mean_size([epoch.sizes[name] for name in gradients if name in epoch.sizes])}
            if epoch.sizes
            else {},
        )
        for epoch in first.epochs
    ]
    common = [number for number in first.own_embeddings if all(number in view.own_embeddings for view in views)]
    own = {number: torch.cat([_scaled(view.own_embeddings[number]) for view in views], dim=1) for number in common}
    columns = [view.columns for view in views if view.columns is not None]
    joined = sparse.hstack(columns).tocsr() if len(columns) == len(views) else None
    sent = _sent([view.sent for view in views], are_numbers=first.task.kind == "regression")
    return HistoryView(party, first.task, epochs, own, joined, sent=sent)


def _sent(sent: Sequence[SentLabels | None], *, are_numbers: bool) -> SentLabels | None:
    """The draws of all, and their models' scores combined as if columns were independent given the label.

    A draw that was sent to some of them alone, of rows that have ids of their own there, is part of the scores.
    """
    held = [each for each in sent if each is not None]
    if not held:
        return None
    rows = held[0].rows
    for each in held[1:]:
        rows = rows[torch.isin(rows, each.rows)]
    if not len(rows):  # each row is held out at one of them, in a small audit
        return None
    known = [each.among(rows) for each in held]
    others = [each for each in known[1:] if not torch.equal(each.labels, known[0].labels)]
    prior = torch.stack([each.scores.mean(dim=0) for each in known]).mean(dim=0)
    scores = prior + torch.stack([each.scores - prior for each in known]).sum(dim=0)
    scores = scores + sum(each.evidence for each in others if not are_numbers)
    return known[0]._replace(scores=scores.log_softmax(dim=1) if scores.shape[1] > 1 else scores)


def _widths(names: Sequence[str], messages: Sequence[Mapping[str, Tensor]]) -> dict[str, int]:
    """Columns of the messages of each party that sent any, in the order of the names."""
    widths = {name: matrix.shape[1] for sent in messages for name, matrix in sent.items()}
    return {name: widths[name] for name in names if name in widths}


def _joined(sent: Mapping[str, Tensor], widths: Mapping[str, int], steps: Tensor) -> Tensor:
    from cutlayer.channel.row_history import NO_STEP

    present = steps != NO_STEP
    parts = [
        _scaled(sent[name], present) if name in sent else torch.zeros(len(steps), width)
        for name, width in widths.items()
    ]
    return torch.cat(parts, dim=1)


def _mean_size(sizes: Sequence[Tensor]) -> Tensor:
    """Mean over the parties of the sizes of their messages (steps, 2), each party's of mean 1."""
    tiny = torch.finfo(torch.float64).tiny
    return torch.stack([size / size.mean(dim=0).clamp_min(tiny) for size in sizes]).mean(dim=0)


def _scaled(matrix: Tensor, present: Tensor | None = None) -> Tensor:
    """A matrix (n, d) divided by the standard deviation of its numbers about the means of their columns.

    Args:
        matrix: Messages.
        present: Rows that were sent, bool (n,); all by default.
    """
    sent = matrix if present is None else matrix[present]
    if not sent.numel():
        return matrix
    largest = float(sent.abs().max()) or 1.0  # first, so that squares near 1e-30 do not vanish
    scaled = matrix / largest
    sent = sent / largest
    return scaled / (float((sent - sent.mean(dim=0)).square().mean().sqrt()) or 1.0)
