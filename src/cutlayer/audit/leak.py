"""From an attack's scores to its leak AUC: per batch and averaged, and pooled; an interval by bootstrap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from torch import Tensor

from cutlayer.attacks.base import Scores
from cutlayer.kernels.bootstrap import auc_replicates
from cutlayer.kernels.roc import roc_auc


@dataclass(frozen=True)
class Leak:
    """How well an attack's scores rank the rows by their true label.

    Attributes:
        batch_auc: mean of the AUC of each sampled step that holds both classes; the leak AUC.
        pooled_auc: one AUC over all scored rows.
        also: pooled AUC of the other scores that the paper names.
        hard_auc: AUC of the attack's hard labels, pooled; `None` where it gives none.
        hard_accuracy: share of hard labels that are right.
    """

    batch_auc: float
    pooled_auc: float
    rows: int
    positives: int
    batches: int
    hard_auc: float | None = None
    hard_accuracy: float | None = None
    also: Mapping[str, float] = field(default_factory=dict)


def leak_of(scores: Scores, truth: Tensor) -> Leak:
    """Measure scores against the truth.

    Args:
        truth: bool (N,) by row number of the common order; true where the row is positive.
    """
    positive = truth[scores.rows]
    values = [roc_auc(scores.values[part], positive[part]) for part in _parts(scores)]
    known = [value for value in values if not np.isnan(value)]
    hard = scores.hard
    return Leak(
        batch_auc=float(np.mean(known)) if known else float("nan"),
        pooled_auc=roc_auc(scores.values, positive),
        rows=len(positive),
        positives=int(positive.sum()),
        batches=len(known),
        hard_auc=None if hard is None else roc_auc(hard.double(), positive),
        hard_accuracy=None if hard is None else float((hard == positive).double().mean()),
        also={name: roc_auc(other, positive) for name, other in scores.also.items()},
    )


def leak_interval(
    scores: Scores, truth: Tensor, seed: int, repeats: int = 1000, level: float = 0.95
) -> tuple[float, float]:
    """Bootstrap interval of the leak AUC: rows are redrawn within each sampled step, the steps' AUCs averaged.

    Steps with one class only are left out, as in `leak_of`. NaN where no step has both.
    """
    positive = truth[scores.rows]
    drawn: list[npt.NDArray[np.float64]] = []
    for number, part in enumerate(_parts(scores)):
        if 0 < int(positive[part].sum()) < int(part.stop - part.start):
            drawn.append(auc_replicates(scores.values[part], positive[part], repeats=repeats, seed=seed + number))
    if not drawn:
        return float("nan"), float("nan")
    means = np.nanmean(np.stack(drawn), axis=0)
    tail = (1 - level) / 2
    low, high = np.nanquantile(means, [tail, 1 - tail])
    return float(low), float(high)


def _parts(scores: Scores) -> list[slice]:
    """The rows of each sampled step, which lie together."""
    edges = np.flatnonzero(np.diff(scores.batch.numpy(), prepend=-1, append=-1)).tolist()
    return [slice(start, stop) for start, stop in pairwise(edges)]
