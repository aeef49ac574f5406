"""What a receiver reads of a sketch, on a table of independent columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.release_components import KNOWN, readings
from benchmarks.utility.datasets import DataSet

pytestmark = pytest.mark.slow


def test_components_and_twenty_known_rows_undo_a_rotation() -> None:
    draw = np.random.default_rng(0)
    partner = pd.DataFrame(draw.exponential(size=(1_500, 6)), columns=[f"x{index}" for index in range(6)])
    bank = pd.DataFrame({"own": draw.normal(size=len(partner))})
    data = DataSet("binary", bank, partner, (partner["x0"] > 1).to_numpy().astype(int))
    apart, mixed = (readings("drawn", data, kind) for kind in ("permutation", "rotation"))
    assert apart.as_released > 0.999
    assert mixed.as_released < 0.9
    assert mixed.components > 0.97
    assert mixed.exact == tuple(partner)
    assert mixed.known[20] > 0.99
    assert {*mixed.known} == {*KNOWN}
