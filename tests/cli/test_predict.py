"""`cutlayer predict` from the command line."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv, parquet

from cutlayer.serving.models import TrainedModels
from tests.cli.jobs import Place


def test_predict_writes_scores_and_says_who_contributed(finished: Path, place: Place) -> None:
    result = place.call("predict", finished, "--out", "scores.parquet")
    assert result.code == 0, result.err
    assert "scores.parquet: 20 rows" in result.out
    assert "telco contributed to all" in result.out
    new = ("--data", "bank=bank.csv", "--data", "telco=telco.csv")
    document = place.call("predict", finished, "--out", "s.parquet", *new, "--json").document()
    assert document["rows"] == parquet.read_table(place.folder / "s.parquet").num_rows == 200
    assert document["contributed"] == {"bank": 200, "telco": 200}
    result = place.call("predict", finished, "--out", "s.csv", *new)
    assert (result.code, "s.csv: 200 rows" in result.out) == (0, True)
    table, text = parquet.read_table(place.folder / "s.parquet"), csv.read_csv(place.folder / "s.csv")
    assert text.column_names == table.column_names
    assert text["id"].cast("string").equals(table["id"].cast("string"))
    np.testing.assert_allclose(text["probability"].to_numpy(), table["probability"].to_numpy(), rtol=1e-6)
    assert set(text["contributed"].to_pylist()) == {"bank telco"}
    place.call("predict", finished, "--out", "sqlite:///scores.db#june", *new, "--json").document()
    with closing(sqlite3.connect(place.folder / "scores.db")) as database:
        rows = database.execute("select id, probability, contributed from june").fetchall()
    assert rows == [
        *zip(*(table[name].to_pylist() for name in ("id", "probability")), ["bank telco"] * 200, strict=True)
    ]
    result = place.call("predict", finished, "--out", "s.parquet", "--overwrite", "--absent", "telco")
    assert "telco contributed to 0 (absent)" in result.out


def test_drift_beyond_the_limit_has_an_exit_code_of_its_own(finished: Path, place: Place) -> None:
    new = ("--data", "bank=bank.csv", "--data", "telco=telco.csv", "--max-drift")
    document = place.call("predict", finished, "--out", "s.csv", *new, 0.25, "--json").document()
    assert {(row["party"], row["of"]) for row in document["drift"]} >= {
        ("telco", "usage"),
        ("bank", "score probability"),
    }
    assert all(row["rows"] == 200 for row in document["drift"])
    highest = max(row["psi"] for row in document["drift"] if row["psi"] is not None)
    assert place.call("predict", finished, "--out", "t.csv", *new, highest * 1.01).code == 0
    tight = place.call("predict", finished, "--out", "x.csv", *new, highest / 2)
    assert (tight.code, (place.folder / "x.csv").exists()) == (6, False)
    place.rows("telco", lambda number, cells: [cells[0], "2.0", *cells[2:]])
    refused = place.call("predict", finished, "--out", "u.csv", *new, 0.25)
    assert (refused.code, (place.folder / "u.csv").exists()) == (6, False)
    assert "of usage at telco; nothing was released or written" in refused.err
    assert "expected --max-drift above 0, got -1.0" in place.call("predict", finished, "--out", "v.csv", *new, -1).error
    test_rows = place.call("predict", finished, "--out", "w.csv", "--max-drift", 0.25)
    assert (test_rows.code, "no statistic: 20 rows, and 200 are needed" in test_rows.error) == (6, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "telco"), "expected --data as PARTY=FILE, got 'telco'"),
        (("--data", "telcu=telco.csv"), "did you mean 'telco'"),
        (("--data", "bank=bank.csv", "--data", "bank=bank.csv"), "expected --data for bank once"),
        (("--data", "bank=gone.csv", "--data", "telco=telco.csv"), "gone.csv: no such file"),
        (("--absent", "bank"), "it holds the top model"),
        (("--out", "s.xlsx"), "expected a name that ends in .parquet or .csv for the predictions, got s.xlsx"),
    ],
)
def test_bad_options_are_refused(finished: Path, place: Place, options: tuple[str, ...], message: str) -> None:
    before = place.left()
    result = place.call("predict", finished, "--out", "s.parquet", *options)
    assert result.code == 2
    assert message in result.error
    assert place.left() == before


def test_no_file_is_replaced_unless_the_user_says_so(
    finished: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any model is loaded; and the tables and the run not even then."""
    monkeypatch.setattr(TrainedModels, "load", lambda *_: pytest.fail("the prediction has begun"))
    job = finished / "job.yaml"
    job.write_text(re.sub(r"path: .*/(bank|telco).csv", rf"path: {place.folder}/\1.csv", job.read_text()))
    (place.folder / "june").mkdir()
    (place.folder / "june" / "part-1.csv").write_text("mine")
    for name in ("report.csv", "new.csv", "folder.csv/kept"):
        (place.folder / name).parent.mkdir(exist_ok=True)
        (place.folder / name).write_text("mine")
    (place.folder / "link.csv").symlink_to("bank.csv")
    (place.folder / "dangling.csv").symlink_to("gone.csv")
    before = {path: path.read_bytes() for path in place.folder.rglob("*") if path.is_file()}
    given = ("--data", "bank=new.csv", "--data", "telco=telco.csv")
    for out in ("report.csv", "folder.csv", "dangling.csv"):
        result = place.call("predict", finished, "--out", out, *given)
        assert (result.code, f"no file at {out}, got one" in result.error) == (2, True)
    run = finished / "predictions.parquet"
    for out in ("new.csv", "bank.csv", "link.csv", "telco.csv", run):
        result = place.call("predict", finished, "--out", out, "--overwrite", *given)
        assert (result.code, f"read or belong to the run, got {out}" in result.error) == (2, True), result.err
    assert place.call("predict", finished, "--out", "folder.csv", "--overwrite").code == 2
    pattern = ("--data", "bank=june/part-*.csv", "--data", "telco=telco.csv")  # of which the file is a part
    result = place.call("predict", finished, "--out", "june/part-1.csv", "--overwrite", *pattern)
    assert (result.code, "read or belong to the run" in result.error) == (2, True)
    assert {path: path.read_bytes() for path in place.folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_new_rows_may_be_separated_otherwise(finished: Path, place: Place, delimiter: str) -> None:
    telco = place.folder / "telco.csv"
    (place.folder / "other.csv").write_text(telco.read_text().replace(",", delimiter))
    scores = []
    for name in ("telco.csv", "other.csv"):
        given = ("--data", "bank=bank.csv", "--data", f"telco={name}")
        assert place.call("predict", finished, "--out", "s.parquet", "--overwrite", *given).code == 0
        scores.append(parquet.read_table(place.folder / "s.parquet"))
    assert scores[0].equals(scores[1])


def test_a_folder_that_is_no_finished_run_is_refused(finished: Path, place: Place) -> None:
    assert "a run folder" in place.call("predict", place.folder / "nowhere", "--out", "s.parquet").error
    shutil.rmtree(finished / "checkpoint" / "telco")
    result = place.call("predict", finished, "--out", "s.parquet")
    assert (result.code, "telco's part of a finished run" in result.error) == (2, True)


def test_columns_that_are_hardly_those_of_the_training_are_said(finished: Path, place: Place) -> None:
    """The scores are nearly those without the columns: on standard error, and in the document of `--json`."""
    place.rows("telco", lambda _, row: [row[0], "", row[2].upper()])
    new = ("--data", "bank=bank.csv", "--data", "telco=telco.csv")
    result = place.call("predict", finished, "--out", "s.csv", *new)
    assert result.code == 0
    said = [line for line in result.err.splitlines() if line.startswith("warning ")]
    assert [line.rpartition("column ")[2] for line in said] == [
        "'usage': no value in 200 rows, and values in training",
        "'plan': 200 of 200 values were not seen in training",
    ]
    document = place.call("predict", finished, "--out", "s.parquet", *new, "--json").document()
    assert [f"warning {note}" for note in document["warnings"]] == said
    written = parquet.read_schema(place.folder / "s.parquet").metadata[b"cutlayer.warnings"]
    assert json.loads(written) == document["warnings"]
