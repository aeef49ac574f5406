"""The verbs on a job whose rows refer to each partner's by columns of their own: init, check, run, exchange, forget."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import typer
from pyarrow import csv, parquet

from cutlayer.config.load import load_job
from cutlayer.errors import RunFolderError
from cutlayer.jobs.approval import page_of
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from tests.cli.jobs import Place, as_yaml
from tests.parties.stars import LAND, LOANS, NAMES, TELCO, held_by, keys_of, raw_graded_star, raw_star, star

PARTIES = {"bank": "bank", TELCO: TELCO, LAND: "land"}


def write(folder: Path, given: dict[str, pa.Table], stem: str = "", **names: str) -> None:
    for name, table in given.items():
        csv.write_csv(table, folder / f"{names.get(name, name)}{stem}.csv")


def plain(loans: int = 1500) -> dict[str, pa.Table]:
    """A star of single columns, as `init` finds it."""
    given = star(0, loans)
    bank = given["bank"].drop_columns(["district"]).rename_columns(["loan_id", "phone", "parcel", "amount", "default"])
    return {"bank": bank, TELCO: given[TELCO], "land": given[LAND].drop_columns(["district"])}


@pytest.fixture
def folder(place: Place) -> Path:
    tables = place.folder / "tables"
    tables.mkdir()
    write(tables, plain())
    return tables


def test_init_finds_the_column_that_refers_to_each_partner(place: Place, folder: Path) -> None:
    result = place.call("init", folder, "--yes")
    assert result.code == 0, result
    said = " ".join(result.out.split())
    for line in ("phone of bank.csv refers to number of telco.csv", "parcel of bank.csv refers to parcel of land.csv"):
        assert f"ids: {line}" in said
    assert "ids: loan_id names the rows of bank.csv" in said
    job = load_job(folder / "job.yaml")
    owner = job.parties["bank"]
    assert {name: ids.column for name, ids in owner.partner_ids.items()} == {"land": "parcel", "telco": "phone"}
    assert (job.rows, job.compare, owner.id and owner.id.column) == ("all", ("alone",), "loan_id")
    assert {name: job.parties[name].id and job.parties[name].id.column for name in job.passives} == {
        "land": "parcel",
        "telco": "number",
    }
    found = place.call("check", folder / "job.yaml", "--json").document()
    known = set(plain()[TELCO]["number"].to_pylist())
    assert found["lacking"]["telco"] == sum(phone not in known for phone in plain()["bank"]["phone"].to_pylist())
    assert [column["name"] for column in found["columns"] if column["party"] == "bank"] == ["amount", "default"]
    told = " ".join(place.call("check", folder / "job.yaml").out.split())
    assert f"{found['lacking']['telco']:,} of these 1,500 rows are not at telco" in told


@pytest.mark.parametrize("written", ["+4930{:07d}", "4930{:07d}"])
def test_telephone_numbers_refer_to_those_of_another_name(place: Place, folder: Path, written: str) -> None:
    """As a feature either is a number, and the first of them with a fraction."""
    draw = np.random.default_rng(0)
    phones = [written.format(each) for each in draw.choice(9_000_000, 1500, replace=False)]
    bank = csv.read_csv(folder / "bank.csv").set_column(1, "phone", pa.array(phones))
    telco = pa.table({"msisdn": [*phones[::2], written.format(1)], "calls": draw.normal(size=751)})
    write(folder, {"bank": bank, TELCO: telco})
    result = place.call("init", folder, "--yes")
    assert "ids: phone of bank.csv refers to msisdn of telco.csv" in result.out, result
    assert place.call("check", folder / "job.yaml", "--json").document()["lacking"]["telco"] == 750


def test_texts_that_differ_in_every_row_refer_to_partners(place: Place, folder: Path) -> None:
    """As a feature such a column is left out, since it says which row it is and nothing else."""
    draw = np.random.default_rng(0)
    contracts, deeds = ([f"{letter}{each:05}" for each in draw.permutation(1500)] for letter in "KD")
    bank = csv.read_csv(folder / "bank.csv").drop_columns(["phone", "parcel"])
    bank = bank.append_column("contract", pa.array(contracts)).append_column("deed", pa.array(deeds))
    telco = pa.table({"number": contracts[::2], "calls": draw.normal(size=750)})
    land = pa.table({"entry": deeds[::2], "area": draw.normal(size=750)})
    write(folder, {"bank": bank, TELCO: telco, "land": land})
    result = place.call("init", folder, "--yes")
    for line in ("contract of bank.csv refers to number of telco.csv", "deed of bank.csv refers to entry of land.csv"):
        assert f"ids: {line}" in result.out, result


@pytest.mark.parametrize("label", ["default", "loan_status"])
def test_small_numbers_refer_to_nothing_since_they_are_among_many_ids(place: Place, folder: Path, label: str) -> None:
    """An age, and a label that is named, are numbers of some customers too."""
    bank = csv.read_csv(folder / "bank.csv")
    status = pa.array([int(each == "bad") for each in bank["default"].to_pylist()])
    bank = bank.drop_columns(["phone", "default"]).append_column(label, status)
    bank = bank.append_column("age", pa.array(np.random.default_rng(0).integers(18, 90, size=len(bank))))
    telco = pa.table({"customer_id": np.arange(1000), "calls": np.random.default_rng(1).normal(size=1000)})
    write(folder, {"bank": bank, TELCO: telco})
    result = place.call("init", folder, "--yes", "--label", label)
    assert (result.code, "refers to" in result.out) == (2, False), result
    assert "name it with --id" in result.error


def test_another_owner_than_the_guessed_one_is_asked_for_its_ids(
    place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What refers to partners is of the table with the labels: telco.csv has no column of bank.csv."""
    asked: list[str] = []

    def prompt(question: str, default: str) -> str:
        asked.append(question)
        return "telco.csv" if "has the labels" in question else default

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", prompt)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: False)
    assert "'parcel'" not in place.call("init", folder).error
    assert any("identifies a row" in question for question in asked)


@pytest.mark.usefixtures("fewer_are_ample")
@pytest.mark.parametrize("apart", ["--apart", "--together"])
def test_grades_of_enough_rows_that_are_referred_to(place: Place, folder: Path, apart: str) -> None:
    draw = np.random.default_rng(0)
    phones = draw.permutation(1_200)
    bank = {"loan_id": np.arange(1_200), "phone": phones, "parcel": draw.integers(90, size=1_200)}
    label = np.where(draw.random(1_200) < 0.5, "yes", "no")
    csv.write_csv(pa.table({**bank, "amount": draw.normal(size=1_200), "default": label}), folder / "bank.csv")
    csv.write_csv(pa.table({"phone_no": phones, "calls": draw.normal(size=1_200)}), folder / "telco.csv")
    named = ("--labels", "bank.csv", "--partner", "telco.csv", "--partner", "land.csv", "--yes", apart)
    csv.write_csv(pa.table({"id": bank["phone"].astype(str), "x": draw.normal(size=1_200)}), folder / "land.csv")
    assert place.call("init", folder, *named).code == 0
    text = (folder / ("bank.yaml" if apart == "--apart" else "job.yaml")).read_text()
    assert "label_dp: {eps: 1.0}" in text
    text = (folder / "job.yaml").read_text()
    assert text.count("{kind: grade, label_epsilon: 1.0}") == 2  # and no alias of YAML


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        (("--rows", "common"), "--rows all and --protect labels or both, got --rows common"),
        (("--protect", "nothing"), "--rows all and --protect labels or both, got --protect nothing"),
        (("--protect", "columns"), "got --protect columns; leave it out: "),
    ],
)
def test_init_refuses_what_such_rows_do_not_have(
    place: Place, folder: Path, options: tuple[str, str], phrase: str
) -> None:
    result = place.call("init", folder, *options, "--yes")
    assert (result.code, phrase in result.error) == (2, True), result


def test_init_wants_a_column_that_names_the_rows(place: Place, folder: Path) -> None:
    bank = csv.read_csv(folder / "bank.csv").drop_columns(["loan_id"])
    amount = pa.array(np.round(bank["amount"].to_numpy(), 1))
    csv.write_csv(bank.set_column(2, "amount", amount), folder / "bank.csv")
    result = place.call("init", folder, "--yes")
    assert result.code == 2
    assert "a column of bank.csv whose values are all different, got " in result.error
    assert "number the rows: predictions are named by it" in result.error


def prepare(place: Place, made: dict[str, Any]) -> None:
    """The shared job, and each party's private file and table."""
    shared = {name: {"role": party["role"]} for name, party in made["parties"].items()}
    for name, party in made["parties"].items():
        private = {key: value for key, value in party.items() if key != "role"}
        (place.folder / f"{name}.yaml").write_text(as_yaml({**private, "table": f"{name}.csv"}))
    place.write({**made, "parties": shared})
    write(place.folder, star())


def step(place: Place, name: str, *options: object) -> Any:
    named = ("--as", name, "--local", f"{name}.yaml", "--folder", "shared", "--plaintext", "--json")
    result = place.call("exchange", "job.yaml", *named, *options)
    assert result.code in (0, 5), result
    return result.document()


def test_an_exchange_of_files_and_a_month_with_keys_that_no_partner_has(place: Place) -> None:
    """With grades, which send labels too; tests/parties/test_partner_ids.py has files of releases without."""
    prepare(place, raw_graded_star())
    for _ in range(3):
        said = {name: step(place, name)["state"] for name in NAMES}
        if {*said.values()} == {"done"}:
            break
    assert {*said.values()} == {"done"}
    given = star(1)
    phones = [None if key is None else key + 5000 * (row % 2) for row, key in enumerate(keys_of(given, TELCO))]
    given["bank"] = given["bank"].set_column(1, "phone", pa.array(phones))
    write(place.folder, given, "-june")
    june = ("--round", "june", "--data")
    for _ in range(3):
        for name in (TELCO, LAND):
            step(place, name, *june, f"{name}-june.csv")
        found = step(place, "bank", *june, "bank-june.csv", "--out", "june.parquet")
        if found["state"] == "done":
            break
    assert (found["state"], found["rows"]) == ("done", LOANS)
    scores = parquet.read_table(place.folder / "june.parquet")
    assert [int(row) for row in scores["id"].to_pylist()] == given["bank"]["id"].to_pylist()
    for row, names in enumerate(scores["contributed"].to_pylist()):
        assert (TELCO in names, LAND in names) == (held_by(given, TELCO)[row], held_by(given, LAND)[row])
    for name in (TELCO, LAND):
        sent = sorted((place.folder / "shared" / "predict-1~june").glob(f"*{name}*"))
        assert len(sent) == 4, "two files each way, as with one id"


def test_forgotten_rows_of_the_label_owner_and_of_a_partner(place: Place) -> None:
    """The next run is that of tables without them, and predicts none of them; an older copy predicts nothing."""
    made = raw_star()
    for name in NAMES:
        made["parties"][name]["table"] = f"{name}.csv"
    place.write(made)
    given = star()
    write(place.folder, given)
    assert place.call("run", "job.yaml").code == 0
    tested = parquet.read_table(place.run_folder / "predictions.parquet").column(0).to_pylist()
    before = place.folder / "copy"
    place.run_folder.rename(before)
    place.write(made)
    by_loan = dict(zip(given["bank"]["id"].to_pylist(), keys_of(given, TELCO), strict=True))
    known = set(given[TELCO]["number"].to_pylist())
    phone = next(by_loan[row] for row in map(int, tested) if by_loan[row] in known)
    csv.write_csv(pa.table({"number": [phone]}), place.folder / "gone.csv")
    csv.write_csv(pa.table({"id": [int(tested[0])]}), place.folder / "loan.csv")
    assert place.call("forget", "job.yaml", "--rows", "gone.csv", "--party", TELCO).code == 0
    assert place.call("forget", "job.yaml", "--rows", "loan.csv", "--party", "bank").code == 0
    summary = RunFolder(place.run_folder).summary
    left = [row for row in range(LOANS) if given["bank"]["id"][row].as_py() != int(tested[0])]
    held, keys = held_by(given, TELCO), keys_of(given, TELCO)
    assert summary.data.held[TELCO] == sum(held[row] and keys[row] != phone for row in left)
    job = load_job(place.file)
    with pytest.raises(RunFolderError, match="a run of which no row was forgotten"):
        predict(job, RunFolder(before), place.folder / "old.parquet", PredictionRequest())
    for note in before.glob("checkpoint/*/secret.path"):  # without it, by the secrets where they usually are
        note.unlink()
    back = before.rename(place.run_folder.with_name("back"))
    with pytest.raises(RunFolderError, match="a run of which no row was forgotten"):
        predict(job, RunFolder(back), place.folder / "old.parquet", PredictionRequest())
    tables = {name: given[name].drop_columns(["label"]) if name == "bank" else given[name] for name in NAMES}
    done = predict(job, RunFolder(place.run_folder), place.folder / "new.parquet", PredictionRequest(tables))
    assert (done.rows, done.forgotten) == (LOANS - 1, {"bank": 1, TELCO: 1})
    assert done.contributed[TELCO] == summary.data.held[TELCO]


def test_an_approval_names_the_columns_that_refer_to_partners(place: Place) -> None:
    made = raw_star()
    made["parties"]["bank"]["features"] = {"include": ["amount", "district"]}
    for name in NAMES:
        made["parties"][name]["table"] = f"{name}.csv"
    place.write(made)
    write(place.folder, star())
    columns = page_of(load_job(place.file), "bank").columns
    assert columns == {
        "feature": ("amount", "district"),
        "id": ("id",),
        f"id for {LAND}": ("district", "parcel"),
        f"id for {TELCO}": ("phone",),
        "label": ("label",),
    }


@pytest.mark.parametrize("what", ["columns", "nothing"])
def test_what_is_trained_by_steps_is_not_compared(place: Place, what: str) -> None:
    made = raw_star() | {"name": "job"}
    write(place.folder, star())
    for name in NAMES:
        made["parties"][name]["table"] = f"{name}.csv"
    (place.folder / "star.yaml").write_text(as_yaml(made))
    told = place.call("compare", place.folder / "star.yaml", "--protect", "labels", "--protect", what, "--seeds", "2")
    assert (told.code, f"expected labels or both with partner_ids, got {what}" in told.err) == (2, True), told.err
