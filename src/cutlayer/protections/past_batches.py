"""Means over past batches, so that the scale of what is sent of a batch reveals nothing of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import C, LabelProtection
from cutlayer.protections.contract.views import ActiveView


def follows_batch(form: str) -> str:
    """A sentence for `cutlayer check` on a form whose scale is that of the batch itself."""
    return (
        f"form: {form} follows each batch, so that the size of a message tells how many of its rows are of the rarer "
        "class; that of the default form does not"
    )


@dataclass(frozen=True)
class _Blocks:
    """The batches of one party.

    Attributes:
        epoch: Epoch of the party's first batch.
        step: Step of it.
        number: Number of the current block; see `block_number`.
        totals: Weighted sum over the current block's batches so far, float64 (k, ...).
        weights: Sum of their weights, float64 (k,).
        means: Means over the last block with any weight, float64 (k, ...); zeros before.
        known: Whether a mean is not 0.
        first: The first of the means, if that is one number, for what needs it on the CPU.
    """

    epoch: int
    step: int
    number: int
    totals: Tensor
    weights: Tensor
    means: Tensor
    known: bool = False
    first: float = 0.0

    def at(self, view: ActiveView) -> _Blocks:
        """The blocks at a step: a new block uses the means of the one before it."""
        number = block_number(view.epoch - self.epoch, view.step - self.step)
        if number == self.number:
            return self
        weights = _broadcast_weights(self.weights, self.totals)
        means = torch.where(weights > 0, self.totals / weights.clamp(min=torch.finfo(torch.float64).tiny), self.means)
        nothing = torch.zeros_like(self.totals), torch.zeros_like(self.weights)
        return replace(self, number=number, totals=nothing[0], weights=nothing[1], means=means, **_read(means))


class PastBatches:
    """Means of statistics over a block of past batches, for each party.

    A number of the batch itself, as the length of its longest gradient, tells how many of its rows are of the rarer
    class, and noise that it scales is sent with it. A mean that takes every batch in at once tells it one batch later.
    So the means change with blocks of steps, and each block uses those over the block before it. Blocks have 1, 1, 2,
    4, 8, ... steps in a party's first epoch, and from then on an epoch, in which every row takes part. So the means are
    a few numbers of a run, each of them about a group of rows: of an epoch, or in the first one of a batch, of two, of
    four and so on.
    """

    def __init__(self) -> None:
        self._parties: dict[str, _Blocks] = {}

    def means(self, party: str, view: ActiveView) -> Tensor | None:
        """Means to use in a step, float64 (k, ...), with zeros for a statistic that had no weight so far.

        `None` where there are none yet, as in the first step of a party.
        """
        if party not in self._parties:
            return None
        blocks = self._parties[party] = self._parties[party].at(view)
        return blocks.means if blocks.known else None

    def mean(self, party: str, view: ActiveView) -> float | None:
        """The only mean, as `means`, of a statistic of one number."""
        return None if self.means(party, view) is None else self._parties[party].first

    def add(self, party: str, view: ActiveView, statistics: Tensor, weights: Tensor | None = None) -> None:
        """Count a batch, for later blocks.

        Args:
            party: Receiver of the batch's gradients.
            view: View of the step.
            statistics: float64 (k, ...).
            weights: Weight of each, float64 (k,), >= 0; 1 without them.
        """
        weights = statistics.new_ones(len(statistics)) if weights is None else weights
        totals = statistics * _broadcast_weights(weights, statistics)
        if party not in self._parties:
            blocks = _Blocks(view.epoch, view.step, 0, totals, weights, torch.zeros_like(totals))
        else:
            before = self._parties[party].at(view)
            blocks = replace(before, totals=before.totals + totals, weights=before.weights + weights)
        self._parties[party] = blocks

    def state_dict(self) -> dict[str, Any]:
        """State for a resume."""
        return {party: vars(blocks) for party, blocks in self._parties.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._parties = {party: _Blocks(**{**_read(blocks["means"]), **blocks}) for party, blocks in state.items()}


class ByPastBatches(LabelProtection[C]):
    """A protection of gradients whose state is what it knows of past batches."""

    def __init__(self, settings: C) -> None:
        super().__init__(settings)
        self._past = PastBatches()

    def state_dict(self) -> dict[str, Any]:
        """State for a resume."""
        return self._past.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._past.load_state_dict(state)


def block_number(epoch: int, step: int) -> int:
    """Number of the block of a step; it changes at steps 1, 2, 4, 8, ... of the first epoch and with every further one.

    Args:
        epoch: Number of the epoch, from 0 for the first one.
        step: Number of the step, from 0 for the first one of that epoch.

    >>> tuple(block_number(0, step) for step in range(9))
    (0, 1, 2, 2, 3, 3, 3, 3, 4)
    >>> block_number(1, 9) == block_number(1, 17) != block_number(2, 18)
    True
    """
    return step.bit_length() if epoch == 0 else _EPOCH_OFFSET + epoch


_EPOCH_OFFSET = 64
"""Above the bit length of any step."""


def _read(means: Tensor) -> dict[str, Any]:
    """Numbers of a block's means that the CPU must know, read once for a block: no other step waits for a GPU."""
    return {"known": bool(means.any()), "first": float(means[0]) if means.dim() == 1 else 0.0}


def _broadcast_weights(weights: Tensor, statistics: Tensor) -> Tensor:
    """Weights (k,) in the shape (k, 1, ...) that multiplies statistics (k, ...)."""
    return weights.view(-1, *[1] * (statistics.dim() - 1))
