"""Predictions as Parquet and as CSV hold the same."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet

from cutlayer.errors import ConfigError, Diverged
from cutlayer.problem.task import Task
from cutlayer.results.provenance import beside, is_predictions
from cutlayer.results.scores import check_scores_path, score_columns, score_file, scores_of

PARTIES = ("bank", "telco", "shop-2")
TASK = Task("multiclass", ("a", 'b, "c"', "d"))


def write(path: Path, ids: pa.Array, scores: np.ndarray, *, pieces: int = 1) -> pa.Table:
    """Write predictions to which telco contributes in every second row, and shop-2 in none."""
    present = {
        "bank": np.ones(len(ids), bool),
        "telco": np.arange(len(ids)) % 2 == 0,
        "shop-2": np.zeros(len(ids), bool),
    }
    with score_file(path, score_columns(TASK), ids.type, PARTIES) as writer:
        for part in np.array_split(np.arange(len(ids)), pieces):
            some = {name: rows[part] for name, rows in present.items()}
            writer.write(ids.slice(part[0], len(part)), scores[part], some)
    assert writer.counts == {"bank": len(ids), "telco": (len(ids) + 1) // 2, "shop-2": 0}
    return _as_csv(parquet.read_table(path)) if path.suffix == ".parquet" else _read(path, ids.type)


def _read(path: Path, ids: pa.DataType) -> pa.Table:
    return csv.read_csv(
        path,
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types={"id": pa.string() if pa.types.is_string_view(ids) else ids}),
    )


def _as_csv(table: pa.Table) -> pa.Table:
    joined = [" ".join(names) for names in table["contributed"].to_pylist()]
    return table.set_column(table.num_columns - 1, "contributed", pa.array(joined))


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([7, -1, 2**62, 0, 5]),
        pa.array(["007", 'a "b", c', "1=1", "two\nlines", "Zoë"]),
        pa.array(["1", "2", "3", "4", "5"], pa.large_string()),
    ],
    ids=["integers", "texts", "large"],
)
def test_csv_reads_back_as_parquet(tmp_path: Path, ids: pa.Array) -> None:
    """To the last bit, of numbers far apart too, and in pieces as in one."""
    scores = np.random.default_rng(3).random((5, 3)) ** 40
    scores[0] = 0.1 + 0.2, 5e-324, 1.0
    wanted = write(tmp_path / "s.parquet", ids, scores)
    for pieces in (1, 3):
        found = write(tmp_path / "s.csv", ids, scores, pieces=pieces)
        assert found.column_names == wanted.column_names
        for name in wanted.column_names:
            assert found[name].to_pylist() == wanted[name].to_pylist(), name
    assert (tmp_path / "s.csv").stat().st_mode & 0o777 == 0o600


def test_ids_of_the_newer_text_type_are_text(tmp_path: Path) -> None:
    found = write(tmp_path / "s.csv", pa.array(["x", "y"], pa.string_view()), np.ones((2, 3)))
    assert found["id"].to_pylist() == ["x", "y"]


@pytest.mark.parametrize("name", ["s.csv", "s.parquet"])
def test_a_failure_leaves_the_file_that_was_there(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    before = write(path, pa.array([1, 2]), np.ones((2, 3)))
    content = path.read_bytes()
    every = {party: np.ones(1, bool) for party in PARTIES}

    def fail() -> None:
        with score_file(path, score_columns(TASK), pa.int64(), PARTIES) as writer:
            for text in ("9", "no number"):
                writer.write(pa.array([text]), np.zeros((1, 3)), every)

    with pytest.raises(pa.ArrowInvalid):
        fail()
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert path.read_bytes() == content
    assert len(before) == 2


@pytest.mark.parametrize("name", ["s.txt", "s", "s.csv.gz", ".csv"])
def test_another_ending_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"a name that ends in \.parquet or \.csv for the predictions, got "):
        check_scores_path(tmp_path / name)


def test_a_pipe_beside_a_table_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(beside(tmp_path / "bank.csv"))
    assert not is_predictions(tmp_path / "bank.csv")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_ids_that_a_spreadsheet_would_compute_are_named_and_kept(tmp_path: Path, kind: pa.DataType) -> None:
    """By quotes alone a formula is no text; another text would be another id."""
    ids = pa.array(["=cmd|' /C calc'!A0", "@sum(1)", "+1+cmd", "-2+3)x", "\tx", "+49 (30) 12-3", "-7", "a=1"], kind)
    with pytest.warns(UserWarning, match=r"scores\.csv: 5 ids can be formulas.* write \.parquet"):
        read = write(tmp_path / "scores.csv", ids, np.zeros((8, 3)))
    assert read["id"].to_pylist() == ids.to_pylist()


def test_other_ids_and_parquet_have_no_such_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    write(tmp_path / "scores.csv", pa.array(["+49123", "C-1", "7"]), np.zeros((3, 3)))
    write(tmp_path / "scores.parquet", pa.array(["=1", "=2", "=3"]), np.zeros((3, 3)))
    assert not recwarn.list


@pytest.mark.parametrize("task", [TASK, Task("binary", ("no", "yes")), Task("regression")], ids=lambda task: task.kind)
def test_predictions_that_are_no_numbers_are_refused_with_their_number(task: Task) -> None:
    logits = torch.zeros(5, len(task.classes) if task.kind == "multiclass" else 1)
    assert np.isfinite(scores_of(task, logits)).all()
    logits[[1, 3], 0] = torch.nan
    with pytest.raises(Diverged, match="got 2 of 5 that are not"):
        scores_of(task, logits)
