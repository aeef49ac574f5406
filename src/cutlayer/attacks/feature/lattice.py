"""Columns that a release holds one by one: whole numbers by the lattice of the scale, categories by their ties."""

from __future__ import annotations

import numpy as np

from cutlayer.attacks.feature.readings import ReadingAttack, Readings, readings_of
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.kernels.fits.whole_numbers import distinct_values, undo_clipping, whole_numbers

MIN_ROWS_PER_VALUE = 8
"""A released column of fewer distinct values than one for so many rows divides the rows by them."""


class Lattice(ReadingAttack):
    """Read the values behind each released column of one column of the table, without a known row.

    The scale of a number is public up to two parameters: k, log(k + c), and both smoothly clipped. Under the right ones
    the values of a column of whole numbers, of any unit, lie on a lattice, which one column of float32 numbers shows
    beyond doubt: these are read exactly, up to offset and sign. A released column of few distinct values divides the
    rows exactly, whatever it stands for, such as the level of a category or its count. All other columns are read as
    numbers, with the scale undone as far as the median and the quartiles say.

    Reference: this project. That an increasing function of a column is undone by what is known of its values is shown
    for encryption that preserves order by Naveed, Kamara and Wright, Inference attacks on property-preserving encrypted
    databases (CCS 2015), section 4, on sorting attacks.
    """

    name = "lattice"
    reference = "this project; kin to the sorting attack of Naveed, Kamara and Wright 2015 (CCS)"
    graded = True

    def run(self, view: FeatureView, knowledge: Knowledge) -> Readings:
        """Read column by column."""
        vectors: list[np.ndarray] = []
        certain: list[bool] = []
        for column in view.embeddings.double().numpy().T:
            values, index = distinct_values(column)
            if len(values) < 2:
                continue
            exact = whole_numbers(column) if len(values) > 2 else None
            if exact is not None:
                vectors.append(exact.values)
                certain.append(True)
                continue
            few = len(values) * MIN_ROWS_PER_VALUE <= len(column)
            for vector in (index.astype(float),) if len(values) <= 5 else (column, undo_clipping(column)):
                vectors.append(vector)
                certain.append(few)
        return readings_of(view, vectors, certain)
