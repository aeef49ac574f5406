"""`cutlayer party predict`: what is refused before any other party is waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.jobs import JOB, Place, changed

ADDRESS = {"parties.bank.address": "127.0.0.1:7070"}


@pytest.fixture
def parts(finished: Path, place: Place) -> tuple[Place, Path]:
    """A job with an address, party files, and a run folder with the parts of both parties."""
    # The shared part is that of the run; private parts and `compare` may differ.
    place.write(changed(JOB, ADDRESS))
    (place.folder / "bank.yaml").write_text("{table: bank.csv, id: id, label: default}\n")
    (place.folder / "telco.yaml").write_text("{table: telco.csv, id: id}\n")
    return place, finished


def refused(parts: tuple[Place, Path], party: str, *options: object) -> str:
    place, run = parts
    named = ("--as", party, "--local", f"{party}.yaml", "--plaintext", "--timeout", 1)
    result = place.call("party", "predict", place.file, *named, "--run", run, *options)
    assert result.code in (2, 3), result
    return result.error


def test_options_that_do_not_fit_the_role(parts: tuple[Place, Path]) -> None:
    assert "expected --out at bank, which has the predictions" in refused(parts, "bank")
    assert "a name that ends in .parquet or .csv" in refused(parts, "bank", "--out", "s.xlsx")
    assert "--out and --absent at bank alone, got one at telco" in refused(parts, "telco", "--out", "s.parquet")
    assert "--out and --absent at bank alone" in refused(parts, "telco", "--absent", "bank")
    everybody = refused(parts, "bank", "--out", "s.parquet", "--absent", "telco")
    assert "a passive party that is not absent, got none; use cutlayer predict" in everybody


def test_no_file_is_replaced_unless_the_user_says_so(parts: tuple[Place, Path]) -> None:
    place, run = parts
    (place.folder / "mine.csv").write_text("mine")
    assert "expected no file at mine.csv, got one" in refused(parts, "bank", "--out", "mine.csv")
    for out in ("bank.csv", "mine.csv", run / "predictions.parquet"):
        error = refused(parts, "bank", "--data", "mine.csv", "--out", out, "--overwrite")
        assert f"read or belong to the run, got {out}" in error
    assert (place.folder / "mine.csv").read_text() == "mine"


def test_tables_and_folders_that_cannot_be_used(parts: tuple[Place, Path]) -> None:
    place, _ = parts
    assert "gone.csv: no such file" in refused(parts, "telco", "--data", "gone.csv")
    lacking = refused(parts, "telco", "--data", "bank.csv")
    assert "no column 'usage'" in lacking
    assert "the model was trained on it: name the column so in these rows, or add one without values" in lacking
    (place.folder / "telco.yaml").write_text("{id: id}\n")
    assert "expected a table of new rows, got none" in refused(parts, "telco")
    place.change({**ADDRESS, "train.epochs": 3})
    assert "expected the job that" in refused(parts, "telco")
    place.call("party", "predict", place.file, "--as", "telco", "--local", "telco.yaml", "--plaintext")


def test_a_party_that_does_not_come_is_named(parts: tuple[Place, Path]) -> None:
    assert "lost bank" in refused(parts, "telco")


def test_the_verb_has_a_help_of_its_own_and_party_still_runs(parts: tuple[Place, Path]) -> None:
    place, _ = parts
    assert "--run" in place.call("party", "predict", "--help").out
    assert "--preflight" in place.call("party", "--help").out
    assert "missing.yaml" in place.call("party", "missing.yaml", "--as", "telco", "--local", "telco.yaml").error
