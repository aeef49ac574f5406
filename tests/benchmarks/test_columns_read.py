"""What attacks read of a sketch, on a table of whole numbers and a category."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.columns_read import ATTACKS, readings
from benchmarks.utility.datasets import DataSet

pytestmark = pytest.mark.slow


def test_columns_are_read_without_a_known_row() -> None:
    draw = np.random.default_rng(0)
    counts = draw.exponential(20, size=(1_500, 3)).round()
    partner = pd.DataFrame(counts, columns=[f"x{index}" for index in range(3)])
    partner["plan"] = draw.choice(["a", "b", "c"], len(partner), p=[0.5, 0.3, 0.2])
    bank = pd.DataFrame({"own": draw.normal(size=len(partner))})
    data = DataSet("binary", bank, partner, (partner["x0"] > 20).to_numpy().astype(int))
    apart, mixed = ({result.attack: result for result in readings("drawn", data, form)} for form in
                    ("permutation", "rotation"))  # fmt: skip
    assert {*apart} == {*ATTACKS}
    assert apart["lattice"].read == apart["lattice"].columns == 4
    assert mixed["lattice"].read == 0
    assert mixed["two_valued"].read == 1
    assert (apart["lattice"].known, apart["naming"].known) == (0, 750)
