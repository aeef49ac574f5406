"""From the CSV files of three organisations to a model, with nothing in between but `init`; and from Parquet files."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from cutlayer.cli.app import _run
from cutlayer.config.load import load_job
from tests.cli.jobs import Place
from tests.cli.loans import BANK, FORMATS, INSURER, KEYS, RETAILER, write_csv_files, write_parquet_files


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder with CSV files, and one with Parquet files."""
    found = {kind: tmp_path_factory.mktemp(kind) for kind in ("csv", "parquet")}
    write_csv_files(found["csv"])
    write_parquet_files(found["parquet"])
    return found


@pytest.fixture(scope="module")
def written(folders: dict[str, Path]) -> dict[str, str]:
    """What `init` printed in each folder."""
    options = ("--label", "status", "--positive", "charged_off", "--yes", "--overwrite")
    printed = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", "80")
        for kind, folder in folders.items():
            with redirect_stdout(StringIO()) as out:
                assert _run(["init", str(folder), *options]) == 0
            printed[kind] = out.getvalue()
    return printed


def test_init_finds_ids_formats_and_numbers_of_rows(written: dict[str, str], folders: dict[str, Path]) -> None:
    parties = YAML(typ="safe").load(folders["csv"] / "job.yaml")["parties"]
    assert {name: parties[name]["id"] for name in parties} == KEYS
    assert parties[BANK]["features"]["exclude"] == ["loan_id"]
    assert (parties[INSURER]["table"]["delimiter"], parties[INSURER]["table"]["decimal"]) == (";", ",")
    for name, formats in FORMATS.items():
        stated = parties[name]["table"]["formats"]
        for column, wanted in formats.items():
            ((kind, value),) = wanted.items()
            assert (value in stated[column][kind]) if kind == "number" else (value == stated[column][kind]), stated
    assert "left out of loans.csv: loan_id (it numbers the rows)\n" in written["csv"]
    assert "warning" not in written["csv"]
    text = (folders["csv"] / "job.yaml").read_text()
    assert (
        "# loans.features.exclude leaves out what says nothing of a new row:\n#   loan_id: it numbers the rows\n"
        in text
    )


def test_the_event_of_a_loan_is_not_the_greater_word(folders: dict[str, Path], place: Place) -> None:
    tables = place.folder / "tables"
    tables.mkdir()
    for path in folders["csv"].glob("*.csv"):
        lines = path.read_text().splitlines(keepends=True)
        (tables / path.name).write_text("".join(lines[:301]))
    rows = (tables / f"{BANK}.csv").read_text()
    bad, paid = (rows.count(word) for word in ("charged_off", "paid"))
    result = place.call("init", tables, "--label", "status", "--yes", "--overwrite")
    assert f"positive class: charged_off ({bad} rows); the other: paid ({paid})" in result.out
    result = place.call("init", tables, "--label", "status", "--positive", "paid", "--yes", "--overwrite")
    assert f"positive class: paid ({paid} rows); the other: charged_off ({bad})" in result.out
    assert "if that is reversed, write positive: 'charged_off'" in result.out


def test_csv_files_have_the_types_of_parquet_files(
    written: dict[str, str], folders: dict[str, Path], place: Place
) -> None:
    kinds = {}
    for kind, folder in folders.items():
        checked = place.call("check", folder / "job.yaml", "--json")
        assert checked.code == 0, checked
        kinds[kind] = {(c["party"], c["name"]): (c["kind"], c["distinct"]) for c in checked.document()["columns"]}
    assert kinds["csv"] == kinds["parquet"]
    assert kinds["csv"][BANK, "opened_on"][0] == "number"
    table = load_job(folders["csv"] / "job.yaml").parties[BANK].table
    assert table is not None
    assert "opened_on" not in table.formats, "ISO dates need no line"
    assert RETAILER in {party for party, _ in kinds["csv"]}


def test_csv_files_give_the_model_of_parquet_files(
    written: dict[str, str], folders: dict[str, Path], place: Place
) -> None:
    key = place.folder / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    found = {}
    for kind, folder in folders.items():
        job = YAML(typ="safe").load(folder / "job.yaml")
        del job["compare"]
        job["model"]["top"] = {"kind": "boosting", "max_iter": 5}
        for name in (INSURER, RETAILER):
            job["parties"][name]["fit"]["candidates"] = ["linear"]
        for party in job["parties"].values():
            party["audit"] = {"attacks": []}
        with (folder / "brief.yaml").open("w") as file:
            YAML(typ="safe", pure=True).dump(job, file)
        result = place.call("run", folder / "brief.yaml", "--key", key, "--out", place.folder / kind, "--json")
        assert result.code == 0, result
        found[kind] = next(row["metrics"]["auc"] for row in result.document()["utility"]["rows"])
    assert found["csv"] == pytest.approx(found["parquet"], abs=1e-9)
    assert found["csv"] > 0.7
