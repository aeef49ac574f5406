"""Tables by SQL query, from SQLite and from a PostgreSQL server that the test starts."""

from __future__ import annotations

import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cutlayer.config import FeaturesConfig, IdConfig, TableConfig, validated
from cutlayer.data.party_data import PartyTable
from cutlayer.data.sources import open_source
from cutlayer.errors import ConfigError, DataError

sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (extra sql)")

ROWS = [(f"c{number:03d}", number % 7, number / 4, "abc"[number % 3]) for number in range(300)]
QUERY = "select customer, visits, spent, plan from customers where plan <> 'z' and '12:30 :x' <> 'a%'"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("create table customers (customer text, visits integer, spent real, plan text)")
        database.executemany("insert into customers values (?, ?, ?, ?)", ROWS)
    database.close()
    return f"sqlite:///{tmp_path}/t.db"


def config(folder: Path, url: str, query: str = QUERY, **more: Any) -> TableConfig:
    path = folder / "customers.sql"
    path.write_text(query)
    return TableConfig(path=path, url=url, **more)


def check_rows(url: str, folder: Path) -> None:
    table = PartyTable("telco", config(folder, url), "customer")
    plain = PartyTable(
        "telco", dict(zip(("customer", "visits", "spent", "plan"), zip(*ROWS, strict=True), strict=True)), "customer"
    )
    assert (table.digests == plain.digests).all()
    rows, train = np.arange(300)[::-1].copy(), np.arange(200)
    stores = [item.prepare(rows, train).store for item in (table, plain)]
    assert stores[0] is not None
    assert stores[1] is not None
    everything = torch.arange(300)
    for mine, theirs in zip(stores[0].gather(everything), stores[1].gather(everything), strict=True):
        assert (mine == theirs).all()


def test_a_query_of_sqlite_equals_the_table_in_memory(sqlite: str, tmp_path: Path) -> None:
    check_rows(sqlite, tmp_path)


@pytest.mark.slow
def test_a_query_of_postgresql_equals_the_table_in_memory(postgres: str, tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(postgres, poolclass=sqlalchemy.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text(
                "create table customers (customer text, visits int, spent numeric(8, 3), plan text, key uuid)"
            )
        )
        values = [dict(zip("abcd", row, strict=True)) for row in ROWS]
        added = "insert into customers values (:a, :b, :c, :d, gen_random_uuid())"
        connection.execute(sqlalchemy.text(added), values)
    check_rows(postgres, tmp_path)
    source = open_source(config(tmp_path, postgres, "select key, spent, visits::text as v from customers"), "telco")
    read = source.read(["spent", "key", "v"], ["spent"])
    assert [str(kind) for kind in read.schema.types] == ["decimal128(5, 3)", "string", "string"]
    deleting = config(tmp_path, postgres, "delete from customers returning customer, visits, spent, plan")
    assert PartyTable("telco", deleting, "customer").rows == 300
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("select count(*) from customers")).scalar() == 300, "rolled back"
    with pytest.raises(DataError, match=r"customers\.sql: expected rows of a query at postgresql"):
        open_source(config(tmp_path, postgres, "select nothing from nowhere"), "telco")


def test_a_query_needs_an_id_column(sqlite: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the rows of a query have no order"):
        PartyTable("telco", config(tmp_path, sqlite), "@row")


def test_rows_stay_in_memory_so_that_another_order_does_no_harm(sqlite: str, tmp_path: Path) -> None:
    table = PartyTable("telco", config(tmp_path, sqlite, QUERY + " order by random()"), "customer")
    rows, train = np.arange(300), np.arange(300)
    first, again = (table.prepare(rows, train) for _ in range(2))
    everything = torch.arange(300)
    assert first.store is not None
    assert again.store is not None
    assert (first.store.gather(everything)[1] == again.store.gather(everything)[1]).all()
    assert (first.digests == again.digests).all()


def test_another_order_drops_no_labelled_row_and_keeps_the_latest(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("create table t (id integer, day integer, y integer, x real)")
        rows = [(number // 2, number, None if number % 6 == 5 else number // 2 % 2, number) for number in range(400)]
        database.executemany("insert into t values (?, ?, ?, ?)", rows)
    database.close()
    query = config(tmp_path, f"sqlite:///{tmp_path}/t.db", "select * from t order by random()")
    rule = IdConfig(column="id", duplicates="latest", by="day")
    latest = PartyTable("bank", query, rule, features=FeaturesConfig(include=["x"]))
    everything = np.arange(latest.rows)
    assert (latest.values("day").to_numpy() % 2 == 1).all()
    assert latest.values("id").equals(latest.ids(everything))
    labelled = PartyTable("bank", query, rule, label="y", drop_unlabelled=True)
    assert not {number // 2 for number in range(400) if number % 6 == 5} & {
        *labelled.ids(np.arange(labelled.rows)).to_pylist()
    }
    with pytest.raises(DataError, match="a table in a file, to read 'y' later, got a query"):
        latest.values("y")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select * from nowhere", "no such table: nowhere"),
        ("selec", "syntax error"),
        ("select customer, customer from customers", "every column name once"),
        ("select customer, visits from customers where 1 = 0", "a table with rows"),
    ],
)
def test_queries_that_fail(sqlite: str, tmp_path: Path, query: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        PartyTable("telco", config(tmp_path, sqlite, query), "customer")


@pytest.mark.parametrize("url", ["sqlite:////nowhere/at/all.db", "nothing://host/x", "mysql+nothing://host/x"])
def test_databases_that_are_not_there(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match="expected rows of a query at"):
        PartyTable("telco", config(tmp_path, url), "customer")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"path": "q.sql"}, "url of the database for a query"),
        ({"path": "t.csv", "url": "sqlite://"}, "url with a file of SQL alone"),
        ({"path": "q.sql", "url": "postgresql://me:secret-word@host/x"}, "a URL without a password"),
        ({"path": "q.sql", "url": "postgresql://host/x?user=a&PASSWORD=secret-word"}, "a URL without a password"),
        ({"path": "q.sql", "url": "host"}, "of the form"),
    ],
)
def test_settings_that_make_no_sense(raw: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validated(TableConfig, raw, "table")
    assert message in str(caught.value)
    assert "secret-word" not in str(caught.value)


def test_decimals_of_features_are_numbers() -> None:
    from cutlayer.data.sources.sql import _plain

    assert _plain(Decimal("1.5"), exact=False) == 1.5
    assert isinstance(_plain(Decimal("1.5"), exact=False), float)
    assert _plain(Decimal("1.5"), exact=True) == Decimal("1.5")
