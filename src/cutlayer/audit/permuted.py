"""Leaks of the whole catalogue on permuted labels: the optimism of the largest of many leaks."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from cutlayer.attacks.label.base import Scores
from cutlayer.data.streams import RandomStream
from cutlayer.kernels.statistics.concordance import permuted_concordances
from cutlayer.problem.metrics.roc import permuted_macro_aucs

PERMUTATIONS = 50
"""Permutations of the labels that the optimism of the catalogue is measured on."""
PERMUTATIONS_OF_MANY_ROWS = 20
"""Permutations from `MANY_ROWS` rows on, whose largest leak varies less."""
MANY_ROWS = 4096


def permuted_leak(scored: Iterable[Scores], truth: Tensor, seed: int) -> float:
    """Mean over permutations of the labels of the largest leak of all scores: what the catalogue reads of nothing.

    The largest of many AUCs, or concordances, is above 0.5 by chance alone; this is by how much. NaN where nothing was
    scored.

    Each set of scores costs a sort, and a pass over its rows for each permutation, whatever the number of classes.

    Args:
        scored: Scores of all attacks on one party.
        truth: True labels by row, bool (N,), class codes, int64 (N,), or the values of a regression, float (N,).
        seed: Seed of the permutations.
    """
    inferring = list(scored)
    if not inferring:
        return math.nan
    rows = torch.unique(torch.cat([scores.rows for scores in inferring]))
    generator = np.random.default_rng([seed, RandomStream.PERMUTED_LABELS])
    several = inferring[0].values.dim() == 2
    codes = truth[rows].numpy() if several else np.unique(truth[rows].numpy(), return_inverse=True)[1]
    # One order of the labels for all scores: those of related attacks are wrong about the same rows.
    count = PERMUTATIONS if len(rows) < MANY_ROWS else PERMUTATIONS_OF_MANY_ROWS
    orders = np.stack([generator.permutation(codes) for _ in range(count)], axis=1)
    largest = np.full(count, math.nan)
    for scores in inferring:
        permuted = orders[torch.searchsorted(rows, scores.rows).numpy()]
        variants = torch.stack([scores.values, *scores.also.values()]).double().numpy()
        if several:
            aucs = np.stack([permuted_macro_aucs(values, permuted) for values in variants])
        else:
            aucs = permuted_concordances(variants, permuted)
        largest = np.fmax(largest, (0.5 + np.abs(aucs - 0.5)).max(axis=0))
    return float(largest.mean())
