"""The family of attacks on labels that read the messages of the same rows in every epoch."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cutlayer.attacks.base import Attack
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import Scores, Target, is_finite, nonzero_rows
from cutlayer.attacks.label.spectral import positive_is_upper
from cutlayer.errors import NotApplicable
from cutlayer.kernels.fits.k_means import upper_of_two
from cutlayer.lazy import Tensor, torch

if TYPE_CHECKING:
    from scipy import sparse

    from cutlayer.attacks.label.sent_labels import SentLabels
    from cutlayer.channel.row_history import FollowedEpoch
    from cutlayer.problem.task import Task


T = TypeVar("T")

MIN_BLOCK = 64
"""Followed rows that a block of consecutive steps has at least, so that its directions can be estimated."""


@dataclass(frozen=True, eq=False)
class HistoryView:
    """View of a passive party on its link over the whole run, for the followed rows, without labels.

    Parties that collude have such a view together (`pool_views`).

    Attributes:
        party: Name of the passive party, or of the view of several.
        task: Kind and classes; the names of the classes are no secret, the rows' labels are.
        epochs: The recorded epochs, in order, each with the same rows.
        own_embeddings: The party's embeddings of these rows, by the weights it had at the end of an epoch, float (n, d)
            by epoch; empty where only the messages are at hand.
        columns: The party's own encoded columns of these rows, sparse (n, c), or `None` where they are not at hand.
        target: The message that an attack on several of them reads.
        parts: Row numbers of rows of all parts, ascending, int64 (m,), and the part of the split that each is in, int64
            (m,), as the label owner sent it; `None` where the party computes the split.
        sent: Drawn labels that the party was sent; `None` where it was sent none.
    """

    party: str
    task: Task
    epochs: Sequence[FollowedEpoch]
    own_embeddings: dict[int, Tensor] = field(default_factory=dict)
    columns: sparse.csr_matrix | None = None
    target: Target = Target.GRADIENT
    parts: tuple[Tensor, Tensor] | None = None
    sent: SentLabels | None = None
    _results: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> Tensor:
        """Row numbers of the rows that are attacked, int64 (n,): the followed ones, or those that were sent a part."""
        if self.target is Target.LABELS:
            return self.sent_labels.rows
        return self.sent_parts[0] if self.target is Target.PART else self.epochs[0].rows

    @property
    def sent_parts(self) -> tuple[Tensor, Tensor]:
        """As `parts`.

        Raises:
            NotApplicable: No split was sent.
        """
        if self.parts is None:
            raise NotApplicable.expected("a split that the label owner sends", "none")
        return self.parts

    @property
    def sent_labels(self) -> SentLabels:
        """As `sent`.

        Raises:
            NotApplicable: No labels were sent.
        """
        if self.sent is None:
            raise NotApplicable.expected("drawn labels that the label owner sends", "none")
        return self.sent

    def matrices(self, target: Target) -> list[tuple[FollowedEpoch, Tensor]]:
        """The epochs in which such messages crossed, with their matrices (n, d); finite ones alone."""

        def compute() -> list[tuple[FollowedEpoch, Tensor]]:
            messages = [
                (epoch, epoch.embeddings if target is Target.EMBEDDING else epoch.gradients) for epoch in self.epochs
            ]
            crossed = [(epoch, matrices[self.party]) for epoch, matrices in messages if self.party in matrices]
            return [(epoch, matrix) for epoch, matrix in crossed if is_finite(matrix)]

        return self.once(("matrices", target), compute)

    def on(self, target: Target) -> HistoryView:
        """The same view with another target; both share what is computed once."""
        return replace(self, target=target)

    @property
    def sent_gradients(self) -> list[tuple[FollowedEpoch, Tensor]]:
        """The epochs in which any gradient was not zero, with their gradients (n, d) as they were sent."""

        def compute() -> list[tuple[FollowedEpoch, Tensor]]:
            return [(epoch, matrix) for epoch, matrix in self.matrices(Target.GRADIENT) if bool(matrix.any())]

        return self.once("sent_gradients", compute)

    @property
    def gradients(self) -> Gradients:
        """The gradients of the epochs in which any was not zero.

        Raises:
            NotApplicable: There is none.
        """

        def compute() -> Gradients:
            if not self.sent_gradients:
                raise NotApplicable.expected("cut gradients that are not all zero", "none")
            return Gradients.of(self.sent_gradients)

        return self.once("gradients", compute)

    def both(self, most: int) -> dict[int, Tensor]:
        """Embeddings of up to `most` epochs that have gradients too, by the index of the epoch in `gradients`."""
        embeddings = {epoch.epoch: matrix for epoch, matrix in self.matrices(Target.EMBEDDING)}
        usable = [number for number, epoch in enumerate(self.gradients.epochs) if epoch in embeddings]
        if not usable:
            raise NotApplicable.expected("an epoch with both embeddings and gradients", "none")
        return {number: embeddings[self.gradients.epochs[number]] for number in usable[:: -(-len(usable) // most)]}

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The result of `compute`, computed once for all attacks on this view."""
        if key not in self._results:
            self._results[key] = compute()
        result: T = self._results[key]
        return result


@dataclass(frozen=True, eq=False)
class Gradients:
    """The cut gradients of the followed rows in several epochs.

    Attributes:
        epochs: Numbers of the epochs in the run, from 0.
        matrices: Gradients of each epoch, float (n, d), each block centred and scaled to a root mean square length of
            1; zeros for a row without a gradient.
        blocks: For each epoch, the indices of the rows of each block of consecutive steps.
        present: Whether a row had a gradient, bool (n, epochs). A gradient of exact zeros is none: the party was
            dropped in that step, and such a row says nothing.
    """

    epochs: tuple[int, ...]
    matrices: tuple[Tensor, ...]
    blocks: tuple[tuple[Tensor, ...], ...]
    present: Tensor

    @classmethod
    def of(cls, sent: Sequence[tuple[FollowedEpoch, Tensor]]) -> Gradients:
        """Gather the gradients of these epochs."""
        from cutlayer.channel.row_history import NO_STEP

        present = torch.stack([(epoch.steps != NO_STEP) & nonzero_rows(matrix) for epoch, matrix in sent], dim=1)
        min_rows = max(MIN_BLOCK, 2 * sent[0][1].shape[1])
        blocks = [rows_by_steps(epoch.steps, present[:, number], min_rows) for number, (epoch, _) in enumerate(sent)]
        scaled = [_scaled(matrix, parts) for (_, matrix), parts in zip(sent, blocks, strict=True)]
        return cls(tuple(epoch.epoch for epoch, _ in sent), tuple(scaled), tuple(blocks), present)

    @property
    def seen(self) -> Tensor:
        """Whether a row had a gradient in any epoch, bool (n,)."""
        return self.present.any(dim=1)

    def whole_epochs(self) -> tuple[tuple[Tensor, ...], ...]:
        """One block for each epoch."""
        return tuple((self.present[:, number].nonzero().flatten(),) for number in range(len(self.epochs)))


class HistoryAttack(Attack[HistoryView, Scores], ABC):
    """Scores the followed rows once for the whole run.

    Class attributes:
        reads: The messages that the attack is defined for, each with a result of its own.
    """

    reads: ClassVar[tuple[Target, ...]] = (Target.GRADIENT,)
    tasks: ClassVar[frozenset[str]] = frozenset({"binary"})
    live: ClassVar[bool] = True

    def check(self, view: HistoryView, knowledge: Knowledge) -> None:
        """Raise `NotApplicable` if the task or the knowledge does not fit."""
        self.check_task(view.task.kind)
        super().check(view, knowledge)

    def finish(self, result: Scores) -> Scores:
        """Merge ties."""
        return result.with_ties()


def run_scores(view: HistoryView, values: Tensor, seen: Tensor | None = None, **also: Tensor) -> Scores:
    """Scores of the whole run.

    Args:
        view: The attacked view.
        values: Scores of all followed rows, float (n,) or (n, classes).
        seen: Rows that are scored, bool (n,); all by default.
        also: Other scores of the same rows, by variant.
    """
    seen = torch.ones(len(values), dtype=torch.bool) if seen is None else seen
    other = {name: scores[seen].double() for name, scores in also.items()}
    return Scores.of_rows(view.rows[seen], values[seen].double(), also=other)


def seen_labels(view: HistoryView, knowledge: Knowledge, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Indices, int64 (k,), and labels of the rows whose label is known, among those with a message of the target.

    Raises:
        NotApplicable: No such row has a message.
    """
    known, labels = knowledge.labels_among(view.rows)
    known, labels = known[seen[known]], labels[seen[known]]
    if not len(known):
        raise NotApplicable.expected(f"{view.target}s of a row whose label is known", "none")
    return known, labels


def orient(scores: Tensor, share: float) -> Tensor:
    """Scores (n,) with the sign that makes the cluster of the positives' size the upper one."""
    return scores if positive_is_upper(scores, upper_of_two(scores), share) else -scores


def unit_variance(scores: Tensor) -> Tensor:
    """Scores divided by their standard deviation, unless they are all equal."""
    return scores / (float(scores.std(correction=0)) or 1.0)


def epoch_agreement(scores: Tensor) -> float:
    """Mean correlation of the scores (n, epochs) of different epochs; 0 for a single epoch."""
    epochs = scores.shape[1]
    if epochs < 2:
        return 0.0
    moved = scores - scores.mean(dim=0)
    moved = moved / torch.linalg.vector_norm(moved, dim=0).clamp_min(torch.finfo(torch.float64).tiny)
    return float((moved.sum(dim=1).square().sum() - epochs) / (epochs * (epochs - 1)))


def rows_by_steps(steps: Tensor, present: Tensor, min_rows: int = MIN_BLOCK) -> tuple[Tensor, ...]:
    """Indices of the present rows by consecutive steps, each block of `min_rows` rows at least where there are so many.

    Args:
        steps: Step of each row, int64 (n,).
        present: Rows to gather, bool (n,).
        min_rows: Number of rows of a block.
    """
    indices = present.nonzero().flatten()
    indices = indices[steps[indices].argsort(stable=True)]
    _, counts = torch.unique_consecutive(steps[indices], return_counts=True)
    sizes: list[int] = []
    for count in counts.tolist():
        if sizes and sizes[-1] < min_rows:
            sizes[-1] += count
        else:
            sizes.append(count)
    if len(sizes) > 1 and sizes[-1] < min_rows:
        last = sizes.pop()
        sizes[-1] += last
    return torch.split(indices, sizes) if sizes else ()


def _scaled(matrix: Tensor, blocks: Sequence[Tensor]) -> Tensor:
    """Each block centred, with a root mean square length of 1."""
    scaled = torch.zeros(matrix.shape)
    for part in blocks:
        block = matrix[part]
        if bool((block == block[0]).all()):
            continue  # their mean is rounded, and what is left would be scaled up
        block.div_(float(block.abs().max()) or 1.0)  # first, so that squares near 1e-30 do not vanish
        block -= block.mean(dim=0)
        scaled[part] = block.div_(float(block.square().sum(dim=1).mean().sqrt()) or 1.0)
    return scaled
