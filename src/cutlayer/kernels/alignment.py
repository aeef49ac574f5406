"""Scores of the same rows from several batches, brought to one sign by the rows that return."""

from __future__ import annotations

from collections.abc import Sequence

from cutlayer.lazy import Tensor, torch

ROUNDS = 30
"""Rounds of power iteration on the agreement of the blocks."""


def align_signs(scores: Tensor, blocks: Sequence[Sequence[Tensor]]) -> Tensor:
    """Multiply the scores of each block by 1 or -1, so that rows agree over the epochs as well as they can.

    An attack whose sign is arbitrary in each batch scores a returning row once up and once down; an attacker who keeps
    all scores sees which batches agree. The signs maximise the sum over rows of the squared sum of their scores: by
    power iteration on the blocks, from the signs as given and from an eigenvector of the agreement, each followed by a
    greedy search; the better result is taken.

    Args:
        scores: float64 (n, epochs), each block with mean 0; 0 where a row has no score.
        blocks: For each epoch, the rows of each block as indices, disjoint.

    Returns:
        The scores with their signs changed, float64 (n, epochs); the sign of the whole is that of the given scores.
    """
    signs = [torch.ones(len(parts), dtype=torch.float64) for parts in blocks]
    unchanged = _search(scores, blocks, signs)
    weights = [sign.clone() for sign in signs]
    for _ in range(ROUNDS):
        weighted = _signed(scores, blocks, weights)
        total = weighted.sum(dim=1)
        weights = [
            torch.stack([_agreement(scores, total - weighted[:, epoch], epoch, part) for part in parts])
            for epoch, parts in enumerate(blocks)
        ]
        largest = max(float(weight.abs().max()) for weight in weights)
        if not largest:
            return unchanged
        weights = [weight / largest for weight in weights]
    joint = _search(scores, blocks, [torch.where(weight < 0, -1.0, 1.0).double() for weight in weights])
    best = max(unchanged, joint, key=lambda aligned: float(aligned.sum(dim=1).square().sum()))
    return best if float((best * scores).sum()) >= 0 else -best


def _search(scores: Tensor, blocks: Sequence[Sequence[Tensor]], signs: list[Tensor]) -> Tensor:
    """Change the sign of one block at a time while the agreement grows; at most `ROUNDS` passes."""
    aligned = _signed(scores, blocks, signs)
    total = aligned.sum(dim=1)
    for _ in range(ROUNDS):
        changed = False
        for epoch, parts in enumerate(blocks):
            for part in parts:
                vector = aligned[part, epoch]
                if float(vector @ (total[part] - vector)) < 0:
                    total[part] -= 2 * vector
                    aligned[part, epoch] = -vector
                    changed = True
        if not changed:
            break
    return aligned


def _signed(scores: Tensor, blocks: Sequence[Sequence[Tensor]], weights: Sequence[Tensor]) -> Tensor:
    weighted = torch.zeros_like(scores)
    for epoch, parts in enumerate(blocks):
        for number, part in enumerate(parts):
            weighted[part, epoch] = scores[part, epoch] * weights[epoch][number]
    return weighted


def _agreement(scores: Tensor, rest: Tensor, epoch: int, part: Tensor) -> Tensor:
    return scores[part, epoch] @ rest[part]
