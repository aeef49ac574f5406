"""The comparison with scikit-learn trains both sides on the same rows and prints a table."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.utility.__main__ import measure, page
from benchmarks.utility.datasets import DataSet, load
from benchmarks.utility.sides import quiet


@pytest.fixture
def data() -> DataSet:
    draw = np.random.default_rng(0)
    x = pd.DataFrame({"x": draw.normal(size=400), "kind": draw.choice(["a", "b"], 400)})
    y = pd.DataFrame({"x": draw.normal(size=400)})
    return DataSet("toy", "binary", {"bank": x, "telco": y}, (x["x"] + y["x"] > 0).to_numpy().astype(int), 1)


@pytest.mark.filterwarnings("ignore")
def test_both_sides_learn_a_toy_and_the_table_states_the_difference(data: DataSet) -> None:
    quiet()
    row = measure(data)
    assert (row.rows, row.parties, row.metric, row.seeds) == (400, 2, "AUC", 1)
    assert all(value > 0.9 for value in row.references.values())
    header, _, line = page([row]).splitlines()
    assert header.count("|") == line.count("|")
    assert line.startswith("| toy | 400 | 2 | 1 | AUC |")
    assert f"{row.gaps[0]:+.3f}, {row.gaps[1]:+.3f}" in line


def test_few_rows_are_drawn_once_with_the_columns_of_every_party() -> None:
    few = load("adult-500", Path())
    assert len(few.labels) == 500
    assert few.joined.shape == (500, sum(part.shape[1] for part in few.parts.values()))
    assert few.joined.equals(load("adult-500", Path()).joined)
