"""Tables by SQL query, from SQLite and from a PostgreSQL server that the test starts."""

from __future__ import annotations

import re
import signal
import sqlite3
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from cutlayer.config import FeaturesConfig, IdConfig, TableConfig, validated
from cutlayer.config.reaches import reaches
from cutlayer.data.engine import Reading
from cutlayer.data.party_data import PartyTable
from cutlayer.data.sources import open_source
from cutlayer.errors import ConfigError, DataError, Interrupted

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
def test_a_query_of_postgresql_equals_the_table_in_memory(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sqlalchemy.create_engine(postgres, poolclass=sqlalchemy.pool.NullPool)
    postgres, _, folder = postgres.partition("?host=")
    monkeypatch.setenv("PGHOST", folder)
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
    inside = config(tmp_path, postgres, "with few as (select * from customers) select customer from few")
    assert open_source(inside, "telco").read_all().num_rows == 300
    refused = {
        "delete from customers returning customer": "one statement, SELECT or WITH",
        "commit; drop table customers": "one statement, SELECT or WITH",
        "select customer from customers; drop table customers": "multiple commands",
        "with gone as (delete from customers returning customer) select * from gone": "must not contain data-modifying",
        "select customer into copied from customers": "INTO is not allowed",
        "select set_config('transaction_read_only', 'off', false) as customer": "read-write mode",
        "select setval('counted', 7) as customer": "read-only transaction",
        "select changed() as customer": "read-write mode",
        "select emptied() as customer": "read-only transaction",
    }
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("create sequence counted"))
        bodies = {"changed": "set transaction read write; select 1", "emptied": "delete from customers; select 1"}
        for name, body in bodies.items():
            connection.execute(sqlalchemy.text(f"create function {name}() returns int language sql as '{body}'"))
    for query, message in refused.items():
        with pytest.raises(DataError, match=message):
            open_source(config(tmp_path, postgres, query), "telco").read_all()
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("select count(*) from customers")).scalar() == 300
        assert connection.execute(sqlalchemy.text("select to_regclass('copied')")).scalar() is None
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
        ("selec", "one statement, SELECT or WITH"),
        ("select visits + from customers", "syntax error"),
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
        PartyTable("telco", config(tmp_path, url, read_only_account=True), "customer")


@pytest.mark.parametrize(
    "query",
    [
        "drop table customers",
        "delete from customers returning customer, visits",
        "-- of customers\n/* all\nof them */ with few as (select 1) delete from customers",
        "select customer, visits from customers; drop table customers",
        "with few as (select 1) insert into customers (customer) select 'x' returning customer",
        "vacuum into '{}/copy.db'",
        "attach '{}/copy.db' as copied",
        "pragma writable_schema = on",
        "select load_extension('{}/x.so') as customer",
        "select hex(fts3_tokenizer('simple')) as customer",
        "select length(zeroblob(2000000)) as customer",
    ],
)
def test_a_query_of_sqlite_does_nothing_but_read(sqlite: str, tmp_path: Path, query: str) -> None:
    before = (tmp_path / "t.db").read_bytes()
    with pytest.raises(DataError, match=r"expected (one statement, SELECT or WITH|rows of a query)"):
        PartyTable("telco", config(tmp_path, sqlite, query.format(tmp_path)), "customer")
    assert (tmp_path / "t.db").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["customers.sql", "t.db"]


def test_the_connection_to_sqlite_cannot_write_whatever_the_statement(
    sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cutlayer.data.sources.sql._SELECT", re.compile(""))
    for query in ("drop table customers", f"vacuum into '{tmp_path}/copy.db'", f"attach '{tmp_path}/copy.db' as c"):
        with pytest.raises(DataError, match=r"authorized|authorization denied"):
            PartyTable("telco", config(tmp_path, sqlite, query), "customer")
    monkeypatch.setattr("cutlayer.data.sources.sql._reads", lambda *_: 0)
    with pytest.raises(DataError, match="readonly database"):
        PartyTable("telco", config(tmp_path, sqlite, "drop table customers"), "customer")
    assert not (tmp_path / "copy.db").exists()


def test_long_texts_come_a_few_rows_at_a_time(sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short query makes any number of them, which are in memory twice until the piece ends."""
    query = "select customer, hex(zeroblob(visits * 1000)) as note from customers"
    source = open_source(config(tmp_path, sqlite, query), "telco")
    whole = [piece.num_rows for piece in source.chunks(["customer", "note"], 1_000)]
    monkeypatch.setattr("cutlayer.data.sources.sql._PIECE_LENGTH", 100_000)
    pieces = [*source.chunks(["customer", "note"], 1_000)]
    assert whole == [300]
    assert [piece.num_rows for piece in pieces] == [128, 128, 44]
    assert pa.concat_tables(pieces)["customer"].to_pylist() == [row[0] for row in ROWS]


LONG = (
    "with recursive n(i) as (select 1 union all select i + 1 from n limit 300000000) select count(*) as customer from n"
)


def test_a_query_without_an_end_is_stopped_by_a_signal(sqlite: str, tmp_path: Path) -> None:
    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            PartyTable("telco", config(tmp_path, sqlite, LONG), "customer")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_query_of_another_thread_is_stopped_with_its_reading(sqlite: str, tmp_path: Path) -> None:
    reading, failures = Reading(), list[BaseException]()

    def read() -> None:
        try:
            reading.run(lambda: PartyTable("telco", config(tmp_path, sqlite, LONG), "customer"))
        except Interrupted as stopped:
            failures.append(stopped)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(0.3)
    reading.stop()
    thread.join()
    assert len(failures) == 1


def test_a_recursive_query_with_comments_is_read(sqlite: str, tmp_path: Path) -> None:
    more = "select 1 union all select customer + 1 from n limit 9"
    query = f"-- numbers\nwith recursive n(customer) as ({more}) select * from n"
    assert open_source(config(tmp_path, sqlite, query), "telco").read_all().num_rows == 9


@pytest.mark.parametrize(
    ("url", "reached"),
    [
        ("postgresql://reader@db.example:5433/bank?sslmode=verify-full", "db.example:5433"),
        ("postgresql+psycopg:///bank", "localhost"),
        ("postgresql+psycopg://me%40tenant@[::1]/bank", "[::1]"),
        ("sqlite:////data/t.db", "/data/t.db"),
        ("sqlite:////data/a:b@c/t.db", "/data/a:b@c/t.db"),
    ],
)
def test_what_a_url_reaches(url: str, reached: str) -> None:
    _, address = reaches(TableConfig(path=Path("q.sql"), url=url))
    assert address.scope == reached


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///file:t.db?mode=rw&uri=true",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite://host/t.db",
        "sqlite+pysqlite:////t.db",
        "mysql://host/x",
        "postgresql+psycopg2://host/x",
        "postgresql://host/x?host=other",
        "postgresql://host/x?service=other",
        "postgresql://host/x?options=-c%20a=b",
        "postgresql://host/x?passfile=/etc/passwd",
        "postgresql://host/x?sslkey=/etc/passwd",
        "postgresql://host/x?plugin=module",
        "postgresql://host/x?sslmode=disable",
        "postgresql://host/x?sslmode=require&host=other",
        "postgresql://host,other/x",
        "postgresql://a@b@host/x",
        "postgresql://host/x#y",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        validated(TableConfig, {"path": "q.sql", "url": url}, "table")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"path": "q.sql"}, "url of the database for a query"),
        ({"path": "t.csv", "url": "sqlite:////t.db"}, "url with a file of SQL alone"),
        ({"path": "q.sql", "url": "postgresql://me:secret-word@host/x"}, "a URL without a password"),
        ({"path": "q.sql", "url": "postgresql://host/x?user=a&PASSWORD=secret-word"}, "a URL without a password"),
        ({"path": "q.sql", "url": "host"}, "a URL such as"),
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
