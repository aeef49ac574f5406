"""The formats that real tables come in."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import parquet

import cutlayer.demo
from cutlayer.config import CategoriesConfig, FeaturesConfig, NumbersConfig, SplitConfig, TableConfig
from cutlayer.data.align import intersect
from cutlayer.data.party_data import PartyTable
from cutlayer.data.split import split_rows

DATA = Path(__file__).parents[2].parent / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="the data sets are not beside the checkout")


@needs_data
@pytest.mark.real_data
def test_criteo_as_it_is(tmp_path: Path) -> None:
    path = DATA / "criteo" / "criteo_train_137k.tsv.gz"
    features = FeaturesConfig(
        categorical=("C1..C26",),
        numbers=NumbersConfig(transform="log1p", scale="minmax", missing="zero"),
        categories=CategoriesConfig(max_codes=10_000),
    )
    config = TableConfig(path=path, columns=("label", "I1..I13", "C1..C26"))
    table = PartyTable("ads", config, "@row", "label", features)
    assert table.rows == 137_139
    positions = intersect({"ads": table.digests})["ads"]
    split = split_rows(table.rows, SplitConfig(test=0.1, validation=0), seed=0)
    ready = table.prepare(positions, split.train, tmp_path)
    assert ready.labels.values.float().mean().item() == pytest.approx(0.2568, abs=1e-4)
    assert (len(ready.columns.cardinalities), ready.columns.numeric) == (26, 13)
    assert max(ready.columns.cardinalities) == 10_000
    with gzip.open(path, "rt") as file:
        raw = file.readlines()
    rows = np.random.default_rng(0).integers(0, table.rows, 500)
    codes, numbers = ready.store.gather(torch.from_numpy(rows))
    i2, c9 = ready.encoder.numbers[1], ready.encoder.categories[8]
    for row, code, number in zip(rows, codes.tolist(), numbers.tolist(), strict=True):
        line = raw[positions[row]].removesuffix("\n").split("\t")
        assert code[8] == (c9.values.index(line[22]) + 2 if line[22] in c9.values else int(line[22] != ""))
        assert (code[2] == 0) == (line[16] == "")
        value = float(line[2] or 0)
        wanted = (np.sign(value) * np.log1p(abs(value)) - i2.offset) / i2.width
        assert number[1] == pytest.approx(np.clip(wanted, 0, 1), abs=1e-6)
        assert ready.labels.values[row] == int(line[0])


@needs_data
@pytest.mark.real_data
def test_the_default_credit_tables_of_fate() -> None:
    tables = {
        party: PartyTable(party, TableConfig(path=DATA / "fate" / f"default_credit_hetero_{party}.csv.gz"), "id", label)
        for party, label in (("guest", "y"), ("host", None))
    }
    positions = intersect({party: table.digests for party, table in tables.items()})
    split = split_rows(len(positions["guest"]), SplitConfig(), seed=0)
    guest, host = (tables[party].prepare(positions[party], split.train) for party in tables)
    assert guest.order_digest == host.order_digest
    assert len(guest.digests) == 30_000
    assert guest.labels.values.float().mean().item() == pytest.approx(0.2212, abs=1e-3)
    assert (guest.columns.numeric, host.columns.numeric) == (13, 10)
    numbers = host.store.gather(torch.from_numpy(split.train))[1]
    torch.testing.assert_close(numbers.mean(0), torch.zeros(10), atol=1e-4, rtol=0)
    torch.testing.assert_close(numbers.std(0), torch.ones(10), atol=1e-3, rtol=0)


@needs_data
@pytest.mark.real_data
def test_a_regression_over_three_tables() -> None:
    names = {"guest": "motor_speed", "host_1": None, "host_2": None}
    tables = {
        party: PartyTable(
            party, TableConfig(path=DATA / "fate" / f"motor_hetero_{party}.csv"), "idx", label, task="regression"
        )
        for party, label in names.items()
    }
    positions = intersect({party: table.digests for party, table in tables.items()})
    ready = tables["guest"].prepare(positions["guest"], np.arange(700))
    assert ready.labels.values.dtype == torch.float32
    assert ready.store.rows == 800


def test_the_demo_table_has_its_licence() -> None:
    folder = Path(cutlayer.demo.__file__).parent
    assert (folder / "adult.parquet").stat().st_size < 1_000_000
    text = (folder / "ATTRIBUTION.md").read_text()
    assert all(word in text for word in ("Becker", "Kohavi", "CC BY 4.0", "10.24432/C5XW20", "changed"))


def test_the_demo_table_is_whole() -> None:
    path = Path(cutlayer.demo.__file__).parent / "adult.parquet"
    table = PartyTable("bank", TableConfig(path=path), "person", "income")
    positions = intersect({"bank": table.digests})["bank"]
    ready = table.prepare(positions, np.arange(40_000))
    assert ready.labels.classes == ("<=50K", ">50K")
    assert ready.labels.values.float().mean().item() == pytest.approx(11_687 / 48_842)
    assert (len(ready.columns.cardinalities), ready.columns.numeric) == (8, 6)
    occupation = ready.store.gather(torch.arange(48_842))[0][:, ready.columns.category_names.index("occupation")]
    assert int((occupation == 0).sum()) == 2_809


@needs_data
@pytest.mark.real_data
def test_the_demo_table_is_the_original() -> None:
    """The comma-space files read as they are give the same encoding as the table made from them."""
    made = Path(cutlayer.demo.__file__).parent / "adult.parquet"
    names = parquet.read_schema(made).names[1:]
    original = TableConfig(path=DATA / "adult" / "adult.data.gz", columns=tuple(names))
    rows = np.arange(32_561)
    left = PartyTable("bank", original, "@row", "income").prepare(rows, rows[:20_000])
    features = FeaturesConfig(exclude=("person",))
    right = PartyTable("bank", TableConfig(path=made), "@row", "income", features).prepare(rows, rows[:20_000])
    assert left.encoder == right.encoder
    assert torch.equal(left.labels.values, right.labels.values)
    every = torch.arange(len(rows))
    for first, second in zip(left.store.gather(every), right.store.gather(every), strict=True):
        assert torch.equal(first, second)
