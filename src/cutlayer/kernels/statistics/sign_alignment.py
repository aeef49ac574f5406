"""Scores of the same rows from several batches, brought to one sign by the rows that return."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cutlayer.lazy import Tensor, torch

ROUNDS = 30
"""Rounds of power iteration on the agreement of the blocks."""

Floats = npt.NDArray[np.float64]


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
    from scipy import sparse

    values = scores.numpy()
    rows = [part.numpy() for parts in blocks for part in parts]
    of_block = [values[part, epoch] for part, epoch in zip(rows, _epochs(blocks), strict=True)]
    edges = np.cumsum([0, *(len(part) for part in rows)])
    entries = np.concatenate([*of_block, np.zeros(0)]), np.concatenate([*rows, np.zeros(0, np.int64)]), edges
    table = sparse.csc_matrix(entries, shape=(len(values), len(rows)))  # a column for each block
    lengths = np.asarray(table.multiply(table).sum(axis=0)).ravel()
    unchanged = _search(rows, of_block, np.ones(len(rows)), len(values))
    signs = unchanged
    weights = np.ones(len(rows))
    for _ in range(ROUNDS):
        weights = table.T @ (table @ weights) - lengths * weights  # a block agrees with those of other epochs
        largest = np.abs(weights).max(initial=0.0)
        if not largest:
            break
        weights = weights / largest
    else:
        joint = _search(rows, of_block, np.where(weights < 0, -1.0, 1.0), len(values))
        signs = max(unchanged, joint, key=lambda each: float(np.square(table @ each).sum()))
    aligned = torch.zeros_like(scores)
    whole = 1.0 if float(signs @ lengths) >= 0 else -1.0
    for part, epoch, sign in zip(rows, _epochs(blocks), whole * signs, strict=True):
        aligned.numpy()[part, epoch] = sign * values[part, epoch]
    return aligned


def _epochs(blocks: Sequence[Sequence[Tensor]]) -> list[int]:
    """The epoch of each block."""
    return [epoch for epoch, parts in enumerate(blocks) for _ in parts]


def _search(rows: Sequence[npt.NDArray[np.int64]], scores: Sequence[Floats], signs: Floats, total_rows: int) -> Floats:
    """Change the sign of one block at a time while the agreement grows; at most `ROUNDS` passes."""
    signs, total = signs.copy(), np.zeros(total_rows)
    for part, own, sign in zip(rows, scores, signs, strict=True):
        total[part] += sign * own
    for _ in range(ROUNDS):
        changed = False
        for number, (part, own) in enumerate(zip(rows, scores, strict=True)):
            vector = signs[number] * own
            together = total[part]
            if float(vector @ (together - vector)) < 0:
                total[part] = together - 2 * vector
                signs[number] = -signs[number]
                changed = True
        if not changed:
            break
    return signs
