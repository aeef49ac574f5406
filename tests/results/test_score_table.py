"""Predictions in a database: whole or not at all, and never in place of a table that is not theirs."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from cutlayer.errors import ConfigError, CutlayerError, DataError, RunFolderError
from cutlayer.problem.task import Task
from cutlayer.results.scores import check_scores_output, destination, write_scores

sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (extra sql)")

TASK = Task("binary", ("no", "yes"))
ODD = Task("multiclass", ("50 % (a)", 'b, "c"; drop table x', ":d %(e)s"))
IDS = pa.chunked_array([["007", "it's", "Zoë"]])
LOGITS = torch.tensor([[0.0], [2.0], [-40.0]])
PRESENT = {"bank": np.array([True, True, True]), "telco": np.array([True, False, True])}


def write(out: str, ids: pa.ChunkedArray = IDS, *, overwrite: bool = False, kept: Sequence[Path] = ()) -> None:
    place = destination(out, overwrite=overwrite)
    check_scores_output(place, kept, overwrite=overwrite)
    counts = write_scores(place, TASK, ids, LOGITS, PRESENT)
    assert counts == {"bank": 3, "telco": 2}


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def test_a_table_has_what_a_file_has(tmp_path: Path) -> None:
    path = tmp_path / "scores.db"
    write(f"sqlite:///{path}#june")
    expected = torch.sigmoid(LOGITS[:, 0].double()).tolist()
    names = ("bank telco", "bank", "bank telco")
    assert rows(path, "select * from june") == [*zip(IDS.to_pylist(), expected, names, strict=True)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write(f"sqlite:///{path}#july", pa.chunked_array([[1, 2, 2**62]]))
    assert rows(path, "select id from july") == [(1,), (2,), (2**62,)]


def test_classes_are_no_part_of_a_statement(tmp_path: Path) -> None:
    write_scores(destination(f"sqlite:///{tmp_path}/s.db#order"), ODD, IDS, torch.eye(3), PRESENT)
    found = rows(tmp_path / "s.db", "select * from 'order'")
    expected = torch.eye(3).double().softmax(dim=1).tolist()
    assert [[*row[1:-1]] for row in found] == expected


def test_an_older_table_of_predictions_alone_is_replaced_and_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "bank.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table customers (id text, probability real, salary real, contributed text)")
        database.execute("insert into customers values ('a', 0.5, 3, 'me')")
        database.commit()
    for overwrite in (False, True):
        with pytest.raises(RunFolderError, match="one that does not hold predictions"):
            write(f"sqlite:///{path}#customers", overwrite=overwrite)
    write(f"sqlite:///{path}#scores")
    with pytest.raises(RunFolderError, match="replace it with --overwrite"):
        write(f"sqlite:///{path}#scores", pa.chunked_array([["x", "y", "z"]]))
    assert rows(path, "select id from scores") == [(name,) for name in IDS.to_pylist()]
    write(f"sqlite:///{path}#scores", pa.chunked_array([["x", "y", "z"]]), overwrite=True)
    assert rows(path, "select id from scores") == [("x",), ("y",), ("z",)]
    assert rows(path, "select * from customers") == [("a", 0.5, 3.0, "me")]


def test_a_failure_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "scores.db"
    write(f"sqlite:///{path}#scores")
    with pytest.raises(CutlayerError):  # the older table is dropped in the same transaction
        write(f"sqlite:///{path}#scores", pa.chunked_array([["x", None, "z"]]), overwrite=True)
    assert rows(path, "select id from scores") == [(name,) for name in IDS.to_pylist()]
    new = tmp_path / "new.db"
    with pytest.raises(CutlayerError):
        write(f"sqlite:///{new}#scores", pa.chunked_array([["x", None, "z"]]))
    assert not new.exists()


def test_a_check_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "scores.db"
    check_scores_output(destination(f"sqlite:///{path}#scores"), (), overwrite=False)
    assert not path.exists()
    (tmp_path / "bank.csv").write_text("id\n1\n")
    with pytest.raises(DataError, match="a database at"):
        write(f"sqlite:///{tmp_path}/bank.csv#scores")
    assert (tmp_path / "bank.csv").read_text() == "id\n1\n"
    with pytest.raises(RunFolderError, match="belong to the run"):
        write(f"sqlite:///{tmp_path}/run/x.db#scores", kept=[tmp_path / "run"])
    with pytest.raises(DataError, match="a database at"):
        write(f"sqlite:///{tmp_path}/nowhere/x.db#scores")


@pytest.mark.parametrize(
    ("out", "wanted"),
    [
        ("sqlite:///s.db", "no name of a table"),
        ("postgresql://me:secret@host/db#t", "without a password"),
        ("postgresql://host/db?options=-c#t", "another form"),
        ("mysql://host/db#t", "PostgreSQL or SQLite"),
        ('sqlite:///s.db#t"; drop table x', "another form"),
    ],
)
def test_urls_that_are_refused(out: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as refused:
        destination(out)
    assert wanted in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.slow
def test_postgresql_takes_predictions_whole_or_not(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = sqlalchemy.create_engine(postgres, poolclass=sqlalchemy.pool.NullPool)
    url, _, folder = postgres.partition("?host=")
    monkeypatch.setenv("PGHOST", folder)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("create schema scoring"))
    write(f"{url}#scoring.june")
    out = destination(f"{url}#odd")
    write_scores(out, ODD, IDS, torch.eye(3), PRESENT)
    with engine.connect() as connection:
        names = connection.execute(sqlalchemy.text("select * from odd")).keys()
    assert [*names] == ["id", *(f"probability_{name}" for name in ODD.classes), "contributed"]
    with pytest.raises(CutlayerError):
        write(f"{url}#scoring.june", pa.chunked_array([["x", None, "z"]]), overwrite=True)
    with engine.connect() as connection:
        found = connection.execute(sqlalchemy.text("select id from scoring.june")).scalars().all()
    assert found == IDS.to_pylist()
    with pytest.raises(DataError, match="a database at"):
        destination(f"{url}#nowhere.june").check(())  # type: ignore[union-attr]
