"""Tables as organisations have them: labels spelt in several ways, other delimiters, other encodings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from cutlayer.config.load import load_job
from tests.cli.jobs import Place, write_tables

SPELLINGS = {"0": ("no", "No", "NO"), "1": ("yes", "Yes", "YES")}


@pytest.fixture
def folder(place: Place) -> Path:
    tables = place.folder / "tables"
    tables.mkdir()
    write_tables(tables)
    return tables


def relabelled(path: Path, words: Mapping[str, tuple[str, ...]], column: str = "default") -> None:
    """Write other words for the values of a column, in turn."""
    head, *rows = path.read_text().splitlines()
    at = head.split(",").index(column)
    lines = [head]
    for number, row in enumerate(rows):
        fields = row.split(",")
        choices = words[fields[at]]
        fields[at] = choices[number % len(choices)]
        lines.append(",".join(fields))
    path.write_text("\n".join(lines) + "\n")


def test_labels_that_differ_in_case_are_named_and_make_no_classes(place: Place, folder: Path) -> None:
    relabelled(folder / "bank.csv", SPELLINGS)
    sentence = (
        "6 labels are 2 after trimming and lower-casing: 'NO', 'No', 'no', 'YES', 'Yes', 'yes'; write them one way"
    )
    assert f"{sentence}, or take --task multiclass" in place.call("init", folder, "--yes").error
    result = place.call("init", folder, "--task", "multiclass", "--yes")
    assert f"warning default: {sentence}" in result.out
    assert "classes: 6: NO (" in result.out
    job = folder / "job.yaml"
    job.write_text(job.read_text().replace("task: multiclass", "task: binary"))
    assert f"{sentence}, or set task: multiclass" in place.call("check", job).error
    job.write_text(job.read_text().replace("task: binary", "task: multiclass"))
    result = place.call("check", job)
    assert (result.code, sentence in " ".join(result.out.split())) == (0, True)
    found = place.call("check", job, "--json").document()
    (label,) = (column for column in found["columns"] if column["role"] == "label")
    assert list(label["classes"]) == ["NO", "No", "YES", "Yes", "no", "yes"]
    assert sum(label["classes"].values()) == 200


def test_the_positive_class_is_stated_and_words_that_look_reversed_are_named(place: Place, folder: Path) -> None:
    relabelled(folder / "bank.csv", {"0": ("no",), "1": ("Yes",)})
    result = place.call("init", folder, "--apart", "--yes")
    assert ("positive class: Yes (" in result.out, "warning" in result.out) == (True, False)
    assert "positive: Yes" in (folder / "bank.yaml").read_text()
    result = place.call("init", folder, "--apart", "--positive", "no", "--overwrite", "--yes")
    assert "positive class: no (" in result.out
    assert "warning default: the positive class is 'no', the greater of the two labels; if that is" in result.out
    for name, stated in (("bank", True), ("telco", False)):
        private = folder / f"{name}.yaml"
        half = place.call("check", folder / "job.yaml", "--as", name, "--local", private).out
        assert ("positive class: no (" in half, "write positive:" in half, "Yes" in half) == (stated,) * 3
    (folder / "bank.yaml").write_text((folder / "bank.yaml").read_text() + "positive: Yes\n")
    half = place.call("check", folder / "job.yaml", "--as", "bank", "--local", folder / "bank.yaml")
    assert ("positive class: Yes (" in half.out, "write positive:" in half.out) == (True, False)
    (folder / "bank.yaml").write_text((folder / "bank.yaml").read_text().replace("positive: Yes", "positive: yes"))
    half = place.call("check", folder / "job.yaml", "--as", "bank", "--local", folder / "bank.yaml")
    assert half.code == 2
    assert "bank.positive as one of the labels Yes, no, got 'yes'; did you mean 'Yes'?" in half.out
    relabelled(folder / "bank.csv", {"no": ("no",), "Yes": ("yes",)})
    (folder / "job.yaml").unlink()
    (folder / "bank.yaml").unlink()
    (folder / "telco.yaml").unlink()
    assert "warning" not in place.call("init", folder, "--yes").out
    checked = " ".join(place.call("check", folder / "job.yaml").out.split())
    assert "positive class yes (" in checked
    assert "write positive:" not in checked
    relabelled(folder / "bank.csv", {"yes": ("no",), "no": ("yes",)})
    (folder / "job.yaml").write_text((folder / "job.yaml").read_text().replace("task: binary", "task: multiclass"))
    checked = " ".join(place.call("check", folder / "job.yaml").out.split())
    assert "classes 2: no (" in checked
    assert "positive" not in checked, "classes of such a task are alike"


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_init_finds_the_delimiter_and_states_it(place: Place, folder: Path, delimiter: str) -> None:
    bank = folder / "bank.csv"
    bank.write_text(bank.read_text().replace(",", delimiter))
    assert place.call("init", folder, "--yes").code == 0
    parties = YAML(typ="safe").load(folder / "job.yaml")["parties"]
    assert parties["bank"]["table"] == {"path": "bank.csv", "delimiter": delimiter}
    assert parties["telco"]["table"] == "telco.csv"
    assert place.call("check", folder / "job.yaml").code == 0


def test_a_row_of_the_wrong_length_is_named_by_its_line_and_never_printed(place: Place, folder: Path) -> None:
    bank = folder / "bank.csv"
    lines = bank.read_text().splitlines()
    fields = len(lines[0].split(","))
    lines[7] += ",SECRET"
    bank.write_text("\n".join(lines))
    for result in (place.call("init", folder, "--yes"), place.call("check", place.file)):
        assert "SECRET" not in result.out + result.err
    error = place.call("init", folder, "--yes").error
    assert error.startswith(f"bank.csv: expected {fields} fields between ',' in every row, got {fields + 1} in line 8")
    assert "double quotes" in error
    bank.write_text(bank.read_text().replace(",SECRET", "").replace(",", ";").replace("0.", "0,"))
    job = place.folder / "tables" / "job.yaml"
    job.write_text(place.file.read_text())
    assert "set table.delimiter to ';'" in place.call("check", job).error


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_another_encoding_is_named_with_the_command_that_converts(place: Place, folder: Path, delimiter: str) -> None:
    bank = folder / "bank.csv"
    head, first, *rows = bank.read_text().splitlines()
    lines = [f"{head},town", f"{first},Köln", *(f"{row},Bonn" for row in rows)]
    bank.write_bytes("\n".join(lines).replace(",", delimiter).encode("latin1"))
    error = place.call("init", folder, "--yes").error
    assert "expected text in UTF-8, got byte 0xf6 in line 2; convert the file: " in error
    assert "iconv -f latin1 -t utf8 bank.csv > bank-utf8.csv" in error


def test_ids_written_in_two_ways_are_shown_where_all_tables_are(place: Place, folder: Path) -> None:
    for name, form in (("bank", "00{}"), ("telco", "{}.0")):
        head, *rows = (folder / f"{name}.csv").read_text().splitlines()
        assert head.startswith("id,")
        shown = [",".join([form.format(row.partition(",")[0]), row.partition(",")[2]]) for row in rows]
        (folder / f"{name}.csv").write_text("\n".join([head, *shown]))
    (folder / "job.yaml").write_text(place.file.read_text())
    for verb in ("check", "run"):
        error = place.call(verb, folder / "job.yaml").error
        assert "expected rows that all parties have, got none of 200 at bank, 200 at telco" in error
        assert "the first ids are 000 and 001 at bank, " in error
        assert "without leading zeros and '.0' 200 match" in error


def test_a_folder_that_does_not_exist_is_said_to(place: Place) -> None:
    error = place.call("init", "apart", "--apart", "--yes").error
    assert "expected a folder with tables, got apart, which does not exist; make it" in error


def test_repeated_ids_show_the_rule_that_may_be_written(place: Place, folder: Path) -> None:
    bank = folder / "bank.csv"
    bank.write_text(bank.read_text().replace("id,", "Kunden-Nr,", 1).replace("\n1,", "\n0,", 1))
    job = folder / "job.yaml"
    job.write_text(place.file.read_text().replace("id: id", "id: Kunden-Nr", 1))
    assert "as in id: {column: Kunden-Nr, duplicates: first}" in place.call("check", job).error


def test_a_partys_name_is_the_files_without_accents(place: Place, folder: Path) -> None:
    (folder / "bank.csv").rename(folder / "Bank Köln.csv")
    assert place.call("init", folder, "--yes").code == 0
    assert load_job(folder / "job.yaml").active == "Bank_Koln"


def test_the_first_job_has_bottom_models_that_check_accepts(place: Place, folder: Path) -> None:
    assert place.call("init", folder, "--protect", "labels", "--yes").code == 0
    assert YAML(typ="safe").load(folder / "job.yaml")["model"]["bottom"]["bank"] == {"kind": "auto"}
