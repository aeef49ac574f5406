from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from cutlayer.config import FeaturesConfig, NumbersConfig, SplitConfig, TableConfig
from cutlayer.data.align import intersect
from cutlayer.data.encoding import Encoder
from cutlayer.data.party_data import PartyTable
from cutlayer.data.split import split_rows
from cutlayer.data.store import Store
from cutlayer.errors import AlignmentError, DataError

PLAIN = FeaturesConfig(numbers=NumbersConfig(scale="none", missing="zero"))


def bank(n: int = 40, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "customer": rng.permutation(n) + 100,
            "default": rng.integers(0, 2, n),
            "age": rng.normal(40, 10, n),
            "city": rng.choice(["Ulm", "Bonn"], n),
        }
    )


def telco(n: int = 50, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"client": rng.permutation(n) + 95, "calls": rng.integers(0, 9, n)})


def test_two_parties_end_at_the_same_rows(tmp_path: Path) -> None:
    left, right = bank(), telco()
    left.to_parquet(tmp_path / "bank.parquet", index=False)
    right.to_csv(tmp_path / "telco.csv.gz", index=False)
    tables = {
        "bank": PartyTable("bank", TableConfig(path=tmp_path / "bank.parquet"), "customer", "default", PLAIN),
        "telco": PartyTable("telco", TableConfig(path=tmp_path / "telco.csv.gz"), "client", None, PLAIN),
    }
    assert {table.id_kind for table in tables.values()} == {"integer"}
    assert (tables["bank"].rows, tables["telco"].rows) == (40, 50)
    positions = intersect({party: table.digests for party, table in tables.items()})
    split = split_rows(len(positions["bank"]), SplitConfig(), seed=0)
    ready = {party: table.prepare(positions[party], split.train, tmp_path / party) for party, table in tables.items()}
    assert ready["bank"].order_digest == ready["telco"].order_digest
    joined = left.iloc[positions["bank"]].merge(right, left_on="customer", right_on="client", how="left")
    rows = torch.arange(len(joined))
    codes, numbers = ready["bank"].store.gather(rows)
    np.testing.assert_allclose(numbers[:, 0], joined["age"], rtol=1e-6)
    assert codes[:, 0].tolist() == (joined["city"] == "Ulm").add(2).tolist()
    np.testing.assert_array_equal(ready["telco"].store.gather(rows)[1][:, 0], joined["calls"])
    np.testing.assert_array_equal(ready["bank"].labels.values, joined["default"])
    assert ready["telco"].labels is None
    assert ready["bank"].columns.category_names == ("city",)
    assert (tmp_path / "telco" / "encoder.json").exists()


def test_training_rows_do_not_feel_the_others(tmp_path: Path) -> None:
    frame = bank(60)
    positions, training = np.arange(60)[::-1].copy(), np.arange(30)
    changed = frame.copy()
    changed.loc[:29, "age"] *= 1000  # positions run backwards: these rows do not train
    changed.loc[:29, "city"] = "Hof"
    first, second = (
        PartyTable("bank", table, "customer", "default").prepare(positions, training, tmp_path / str(number))
        for number, table in enumerate((frame, changed))
    )
    assert first.encoder == second.encoder
    for before, after in zip(first.store.gather(torch.arange(30)), second.store.gather(torch.arange(30)), strict=True):
        assert torch.equal(before, after)
    codes, _ = second.store.gather(torch.arange(30, 60))
    assert (codes == 1).all(), "a city that no training row has is unknown"


def test_a_store_is_reused_only_for_the_same_rows_features_split_and_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    fit = Encoder.fit.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(Encoder, "fit", classmethod(lambda cls, *rest: written.append(1) or fit(cls, *rest)))
    frame, positions, training = bank(), np.arange(40), np.arange(20)

    def fits(table: pd.DataFrame, features: FeaturesConfig, rows: np.ndarray, train: np.ndarray) -> int:
        before = len(written)
        PartyTable("bank", table, "customer", "default", features).prepare(rows, train, tmp_path)
        return len(written) - before

    assert fits(frame, PLAIN, positions, training) == 1
    assert fits(frame, PLAIN, positions, training) == 0
    assert fits(frame, FeaturesConfig(), positions, training) == 1
    assert fits(frame, PLAIN, positions, training) == 1
    assert fits(frame, PLAIN, positions[::-1].copy(), training) == 1
    assert fits(frame, PLAIN, positions[::-1].copy(), training + 1) == 1
    assert fits(frame.assign(age=1.0), PLAIN, positions, training) == 1
    (tmp_path / "encoder.json").write_text("{}")
    assert fits(frame.assign(age=1.0), PLAIN, positions, training) == 1
    (tmp_path / "codes.npy").write_bytes(b"")
    assert fits(frame.assign(age=1.0), PLAIN, positions, training) == 1
    assert fits(frame.assign(age=1.0), PLAIN, positions, training) == 0


def test_a_table_file_is_let_go_and_read_again(tmp_path: Path) -> None:
    bank().to_parquet(tmp_path / "bank.parquet")
    table = PartyTable("bank", TableConfig(path=tmp_path / "bank.parquet"), "customer", "default")
    first = table.prepare(np.arange(40), np.arange(30))
    assert not table._table.nbytes
    second = table.prepare(np.arange(40), np.arange(30))
    assert torch.equal(first.store.gather(torch.arange(40))[1], second.store.gather(torch.arange(40))[1])


def test_memory_and_disk_agree(tmp_path: Path) -> None:
    table = PartyTable("bank", bank(), "customer", "default")
    positions = np.array([5, 3, 39, 0])
    disk, memory = (table.prepare(positions, np.arange(3), folder) for folder in (tmp_path, None))
    for first, second in zip(disk.store.gather(torch.arange(4)), memory.store.gather(torch.arange(4)), strict=True):
        assert torch.equal(first, second)
    assert Store.open(tmp_path).columns == memory.columns


def test_row_numbers_as_ids() -> None:
    arrays = {"left": np.arange(12.0).reshape(6, 2), "right": np.arange(6.0)}
    tables = {party: PartyTable(party, array, None, None, PLAIN) for party, array in arrays.items()}
    assert {table.id_kind for table in tables.values()} == {"row"}
    positions = intersect({party: table.digests for party, table in tables.items()})
    assert sorted(positions["left"].tolist()) == list(range(6))
    left, right = (tables[party].prepare(positions[party], np.arange(6)) for party in tables)
    np.testing.assert_array_equal(
        left.store.gather(torch.arange(6))[1][:, 0], 2 * right.store.gather(torch.arange(6))[1][:, 0]
    )


def test_an_active_party_without_features() -> None:
    frame = bank()[["customer", "default"]]
    none = FeaturesConfig(include="none")
    ready = PartyTable("bank", frame, "customer", "default", none).prepare(np.arange(40), np.arange(30))
    assert ready.store is ready.encoder is ready.columns is None
    assert ready.labels is not None
    assert ready.digests.shape == (40, 16)
    with pytest.raises(DataError, match="a feature column, got none"):
        PartyTable("bank", frame, "customer", "default")
    assert PartyTable("bank", frame, "@row", None, none).rows == 40


def test_an_encoder_of_an_earlier_run(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("id,code,n\n1,007,1\n2,010,2\n3,8,3\n")
    (tmp_path / "new.csv").write_text("n,code,id,more\n5,10,9,x\n4,8,8,x\n")
    old = PartyTable("bank", TableConfig(path=tmp_path / "old.csv"), "id", None, PLAIN)
    encoder = old.prepare(np.arange(3), np.arange(3)).encoder
    assert encoder.columns.category_names == ("code",)
    new = PartyTable("bank", TableConfig(path=tmp_path / "new.csv"), "id", encoder=encoder)
    nothing = np.empty(0, dtype=np.int64)
    codes, numbers = new.prepare(np.arange(2), nothing).store.gather(torch.arange(2))
    assert codes.tolist() == [[1], [4]], "10 is not 010"
    assert numbers.tolist() == [[5], [4]]
    every = PartyTable("bank", {"n": [4], "code": ["8"]}, encoder=encoder).encode_all()
    assert (every.codes.tolist(), every.numbers.tolist()) == ([[4]], [[4]])
    with pytest.raises(DataError, match="expected the encoder of an earlier run"):
        old.encode_all()


def test_ids_that_look_like_numbers_stay_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,n\n007,1\n14489770110436898243,2\n")
    table = PartyTable("bank", TableConfig(path=tmp_path / "a.csv"), "id")
    assert table.id_kind == "text"
    parquet.write_table(pa.table({"id": ["14489770110436898243", "007"], "n": [2, 1]}), tmp_path / "a.parquet")
    other = PartyTable("bank", TableConfig(path=tmp_path / "a.parquet"), "id")
    assert (table.digests == other.digests[::-1]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "party bank: .*bank.csv: expected an id column, got none; name one, or write @row"),
        ({"id": "customr"}, "no column 'customr'; did you mean 'customer'"),
        ({"id": "city"}, "id 'city': expected every id once, got 'Bonn' .* times, 'Ulm' .* times|'Ulm' .* 'Bonn'"),
        ({"id": "customer", "label": "defaut"}, "no column 'defaut'; did you mean 'default'"),
        ({"id": "customer", "label": "customer"}, "two columns for id and label"),
        ({"id": "customer", "features": FeaturesConfig(include=("customer",))}, "features apart from id and label"),
    ],
)
def test_what_a_user_gets_wrong(tmp_path: Path, settings: dict, message: str) -> None:
    bank().to_csv(tmp_path / "bank.csv", index=False)
    with pytest.raises(DataError, match=message):
        PartyTable("bank", TableConfig(path=tmp_path / "bank.csv"), **settings)


def test_what_only_shows_when_preparing() -> None:
    frame = bank()
    table = PartyTable("bank", frame, "customer", "default")
    with pytest.raises(AlignmentError, match=r"positions in 0\.\.39"):
        table.prepare(np.array([40]), np.array([0]))
    table = PartyTable("bank", frame.assign(default=[None, *frame["default"][1:]]), "customer", "default")
    with pytest.raises(DataError, match="label 'default': expected a label in every row"):
        table.prepare(np.arange(40), np.arange(30))
    table = PartyTable("bank", frame.assign(default=np.arange(40) // 30), "customer", "default")
    labels = table.prepare(np.arange(40), np.arange(30)).labels.values
    with pytest.raises(DataError, match="label 'default': expected different labels in the training rows"):
        table.check_training_labels(labels[:30], None)
    infinite = frame.assign(age=frame["age"].where(frame.index != 7, np.inf))
    table = PartyTable("bank", infinite, "customer", "default")
    with pytest.raises(DataError, match="column 'age', got infinity in row 7"):
        table.prepare(np.arange(40)[::-1].copy(), np.arange(30))
    others = np.flatnonzero(np.arange(40) != 7)
    assert table.prepare(others, np.arange(30)).store.rows == 39
