"""What attacks read of a sketch, on a table of whole numbers and a category."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.columns_read import readings, table
from benchmarks.three_tables import CUSTOMERS, INSURED, LOANS, write_three_tables
from benchmarks.utility.datasets import DataSet
from benchmarks.utility.sides import LABEL, write_tables

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("small_decoder")
def test_columns_are_read_without_a_known_row() -> None:
    draw = np.random.default_rng(0)
    counts = draw.exponential(20, size=(1_100, 3)).round()
    partner = pd.DataFrame(counts, columns=[f"x{index}" for index in range(3)])
    partner["plan"] = draw.choice(["a", "b", "c"], len(partner), p=[0.5, 0.3, 0.2])
    bank = pd.DataFrame({"own": draw.normal(size=len(partner))})
    data = DataSet("binary", bank, partner, (partner["x0"] > 20).to_numpy().astype(int))
    write = partial(write_tables, data)
    of_forms = {form: [*readings("drawn", write, LABEL, form)] for form in ("permutation", "rotation")}
    apart, mixed = ({(result.attack, result.known): result for result in found} for found in of_forms.values())
    assert [*apart] == [("lattice", 0), ("two_valued", 0), ("components", 0), ("naming", 550),
                        ("inversion", 512), ("inversion", 550)]  # fmt: skip
    assert apart["lattice", 0].read == apart["lattice", 0].columns == 4
    assert mixed["lattice", 0].read == 0
    assert mixed["two_valued", 0].read == 1
    # With known rows the category is read exactly, and numbers nearly.
    assert mixed["inversion", 512].read >= 1
    assert mixed["inversion", 512].r2 > 0.99
    assert mixed["inversion", 512].rows == 1_100 - 512
    lines = [*table(of_forms["rotation"])]
    assert len(lines) == 3
    assert len({line.count("|") for line in lines}) == 1


def test_three_tables_have_the_shared_borrowers(tmp_path: Path) -> None:
    write_three_tables(tmp_path)
    write_three_tables(tmp_path, as_text=True)
    bank, insurer, retailer = (
        pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("bank", "insurer", "retailer")
    )
    assert (len(bank), len(insurer), len(retailer)) == (LOANS, INSURED, CUSTOMERS)
    ids = {*bank["CustomerID"]}
    assert len(ids) == LOANS
    assert {*insurer["customer_id"]} <= ids
    assert {*retailer["cust_no"]} <= ids
    text = pd.read_csv(tmp_path / "bank.csv", dtype=str)
    assert text["annual_income"].str.match(r"\$[\d,]+\.\d\d$").all()
    assert text["interest"].str.endswith("%").all()
    dates = pd.read_csv(tmp_path / "insurer.csv", sep=";", dtype=str)["policy_since"]
    assert dates.str.match(r"\d\d\.\d\d\.\d{4}$").all()
