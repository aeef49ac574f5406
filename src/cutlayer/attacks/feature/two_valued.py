"""Columns of two values in the span of the embeddings, without a known row."""

from __future__ import annotations

import numpy as np

from cutlayer.attacks.feature.readings import ReadingAttack, Readings, readings_of
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.kernels.fits.two_valued import two_valued_vectors
from cutlayer.lazy import torch


class TwoValued(ReadingAttack):
    """Find the levels of categories in an affine map of the columns, without a known row.

    The one-hot column of a level takes two values, and lies in the span of the embeddings and a constant if the map is
    affine and has enough columns. A random vector of the span takes as many values as there are rows, so that one of
    two values is a column of the table, or a union of levels of one: that it has two is the certificate. Rare levels
    are found first, then frequent ones on the rows without these, where the span has fewer dimensions; that a level is
    one minus the sum of the others needs no search.

    Where this differs from the paper: it enumerates the values of a set of independent rows, which is exponential in
    the width, and stops at rank 20 or so; we start from rows of large leverage, alternate rounding and projection, and
    restrict the rows, which reads tables of rank 90 in two seconds but proves no vector absent. Where a search stops
    without a vector, the quadratic relations of one-hot columns (x_i x_j = 0, x_i^2 = x_i) divide them from the
    numbers, and it goes on among them; that needs as many rows as there are pairs of columns, 64 of these at most.

    Reference: Ye, Jiang, Wang, Li and Li, Feature reconstruction attacks and countermeasures of DNN training in
    vertical federated learning (IEEE TDSC 2024, arXiv 2210.06771), on binary features of linear models.
    """

    name = "two_valued"
    reference = "Ye et al. 2024 (arXiv 2210.06771)"

    def run(self, view: FeatureView, knowledge: Knowledge) -> Readings:
        """Search the span."""
        seed = int(torch.randint(2**31, ()))
        found, certain = two_valued_vectors(view.embeddings.double().numpy(), np.random.default_rng(seed))
        return readings_of(view, [*found.T.astype(float)], certain.tolist())
