"""`cutlayer init`: a first job that passes `check`, and what is refused; `check` of one party's half."""

from __future__ import annotations

import os
import re
import sys

import pyarrow as pa
import pytest
import typer
from pyarrow import csv

from cutlayer.attacks import column_attacks
from cutlayer.config.load import load_closed_job, load_job, load_private_part
from cutlayer.data.sources.csv import CsvSource
from cutlayer.jobs import first_job
from cutlayer.jobs.private_part import MAX_SKETCH
from cutlayer.results.provenance import Provenance, beside
from tests.cli.jobs import write_tables


@pytest.fixture
def folder(place):
    tables = place.folder / "tables"
    tables.mkdir()
    write_tables(tables)
    return tables


def test_guesses_make_a_job_that_passes_check(place, folder):
    result = place.call("init", folder, "--yes")
    assert result.code == 0
    assert f"cutlayer check {folder}/job.yaml" in " ".join(result.out.split())
    job = load_job(folder / "job.yaml")
    assert (job.active, job.passives, job.task) == ("bank", ("telco",), "binary")
    assert (job.parties["bank"].label, job.parties["bank"].id.column) == ("default", "id")
    found = place.call("check", folder / "job.yaml", "--json").document()
    assert [total["epsilon"] for total in found["totals"]] == [0.0]
    assert (job.fits_top, job.top) == (True, {"kind": "auto"})  # the release is without labels
    assert "epochs" not in (folder / "job.yaml").read_text()


COLUMNS = ("columns", "both", "proof")
"""Words that protect columns."""


@pytest.mark.parametrize("protect", ["labels", "columns", "both", "proof", "nothing"])
@pytest.mark.parametrize("apart", ["--apart", "--together"])
def test_every_answer_passes_check(place, folder, protect, apart):
    assert place.call("init", folder, "--protect", protect, apart, "--json").code == 0
    if apart == "--together":
        printed = place.call("check", folder / "job.yaml")
        assert printed.code == 0
        told = " ".join(printed.out.split())
        read = {
            "labels": "bank can read columns of telco exactly from its release, without a known row: categories,",
            "columns": "bank learns what the guarantee of telco allows, whatever it knows",
            "both": "bank learns what the guarantee of telco allows, whatever it knows",
            "proof": "bank learns what the guarantee of telco allows, whatever it knows",  # few rows: by noise
            "nothing": "bank receives an embedding of every common row, and may rebuild columns of telco from it",
        }
        assert f"columns of telco {read[protect]}" in told
        attacks = column_attacks("binary", once=protect != "columns") if protect in COLUMNS else "auto"
        assert load_job(folder / "job.yaml").parties["telco"].audit.attacks == attacks
        return
    for name in ("bank", "telco"):
        result = place.call("check", folder / "job.yaml", "--as", name, "--local", folder / f"{name}.yaml", "--json")
        assert result.code == 0, result
        document = result.document()
        assert document["ready"]
        stated = " ".join(check["result"] for check in document["checks"] if check["name"] == "guarantee")
        assert ("the labels of the training rows of bank, towards telco: epsilon" in stated) == (
            name == "bank" and protect in ("labels", "both", "proof")
        )
        protects_columns = name == "telco" and protect in COLUMNS
        assert ("the features of telco" in stated) == protects_columns
        learned = [check["result"] for check in document["checks"] if check["name"] == "columns of telco"]
        assert len(learned) == protects_columns
        assert all("bank learns what the guarantee" in sentence for sentence in learned)
        assert ("attacks: [inversion" in (folder / f"{name}.yaml").read_text()) == protects_columns
    text = (folder / "job.yaml").read_text()
    assert "table:" not in text, "tables and columns are in the private files alone"
    assert "default" not in text
    assert load_private_part(folder / "telco.yaml").label is None


def write_many(folder, rows, ids):
    """Two tables of so many rows, of which the bank's have these ids."""
    label = ["yes" if row % 3 == 0 else "no" for row in range(rows)]
    table = pa.table({"id": [*ids], "age": [row % 50 for row in range(rows)], "default": label})
    csv.write_csv(table, folder / "bank.csv")
    columns = {"calls": [row % 7 for row in range(rows)], "tariff": [row % 5 for row in range(rows)]}
    csv.write_csv(pa.table({"id": [*range(rows)], **columns}), folder / "telco.csv")


@pytest.mark.usefixtures("fewer_are_ample")
def test_of_rows_that_share_an_id_one_counts(place, folder):
    """3,600 rows of 1,200 ids have 1,200 drawn labels, which are worth as much as those of as many rows."""
    write_many(folder, 3_600, (row // 3 for row in range(3_600)))
    named = ("--labels", "bank.csv", "--label", "default", "--id", "id", "--rows", "all")
    result = place.call("init", folder, *named, "--yes")
    assert result.code == 0
    assert "protected: labels, which are drawn, and columns" in result.out
    owner = load_job(folder / "job.yaml").parties["bank"]
    assert (owner.privacy, owner.id.duplicates) == ({"label_dp": {"eps": 1.0}}, "keep")
    printed = place.call("check", folder / "job.yaml")
    assert printed.code == 0
    worth = re.search(r"labels drawn at 1 are worth ([\d,]+) rows to telco", " ".join(printed.out.split()))
    assert 100 < int(worth[1]) < 200
    assert place.call("init", folder, *named, "--apart", "--overwrite", "--yes").code == 0
    half = place.call("check", folder / "job.yaml", "--as", "bank", "--local", folder / "bank.yaml")
    assert re.search(r"labels drawn at 1 are worth [12]\d\d rows to telco.*, if all rows train", half.out)


@pytest.mark.parametrize(("rows", "epsilon", "options"), [(12_000, 1.0, []), (3_000, 2.0, ["--protect", "both"])])
def test_enough_rows_protect_both_by_grades(place, folder, rows, epsilon, options):
    """The least label epsilon whose draws are worth 1,000 rows, else the largest; the default wants 1,000."""
    write_many(folder, rows, range(rows))
    result = place.call("init", folder, *options, "--yes")
    assert result.code == 0
    assert "protected: labels, which are drawn, and columns" in result.out
    text = (folder / "job.yaml").read_text()
    assert text.startswith("# Labels: each partner is sent one drawn label")
    job = load_job(folder / "job.yaml")
    assert job.parties["bank"].privacy == {"label_dp": {"eps": epsilon}}
    assert job.parties["telco"].privacy == {"grade_dp": {"epsilon": 8.0}}
    assert job.bottom_of("telco")["kind"] == "grade"
    printed = " ".join(place.call("check", folder / "job.yaml").out.split())
    assert f"the labels of the training rows of bank, towards telco: epsilon {epsilon:g} per row" in printed
    assert "through the model, without a bound; bank chooses by its labels what grades are of" in printed
    assert re.search(rf"labels drawn at {epsilon:g} are worth [\d,]+ rows to telco, which costs", printed)


@pytest.mark.parametrize(("as_partner", "task"), [(False, "binary"), (True, "binary"), (True, "multiclass")])
def test_a_proof_is_of_grades_by_a_private_model(place, folder, as_partner, task):
    """By one word, of all tables or at a partner whose job asks for grades, and of several classes."""
    write_many(folder, 3_000, range(3_000))
    (apart, word) = (["--apart"], "both") if as_partner else ([], "proof")
    result = place.call("init", folder, *apart, "--protect", word, "--task", task, "--yes")
    assert ("each row; its model is private too" in result.out) != as_partner
    if as_partner:
        (folder / "telco.yaml").unlink()
        (folder / "bank.csv").rename(folder / "bank.away")
        assert place.call("init", folder, "--as", "telco", "--protect", "proof", "--yes").code == 0
        asked = folder / "job.yaml", "--as", "telco", "--local", folder / "telco.yaml"
        partner = load_private_part(folder / "telco.yaml")
    else:
        asked, partner = (folder / "job.yaml",), load_job(folder / "job.yaml").parties["telco"]
        assert load_job(folder / "job.yaml").compare == ("alone",), (
            "a network learns little from numbers without a scale"
        )
    assert partner.fit == {"kind": "grade", "epsilon": 2.0}
    assert partner.privacy == {"grade_dp": {"epsilon": 8.0}}
    printed = " ".join(place.call("check", *asked).out.split())
    assert "the features of telco, towards bank: epsilon 10 at delta 1e-05 per row" in printed
    assert "has no bound" not in printed
    if not as_partner:
        text = (folder / "job.yaml").read_text()
        (folder / "job.yaml").write_text(text.replace("compare: [alone]", "compare: [undefended]"))
        printed = " ".join(place.call("check", folder / "job.yaml").out.split())
        assert "undefended trains a network by the numbers of telco as they are" in printed


@pytest.mark.usefixtures("fewer_are_ample")
def test_the_ids_of_the_tables_are_matched_once(place, folder, monkeypatch):
    """The overlap decides the rows, the grades and their epsilon; with millions of rows it takes a minute."""
    write_many(folder, 1_200, range(1_200))
    matches = []
    overlap_of = first_job.overlap_of
    monkeypatch.setattr(first_job, "overlap_of", lambda job: matches.append(job) or overlap_of(job))
    assert "columns, of which a partner releases a drawn grade" in place.call("init", folder, "--yes").out
    assert len(matches) == 1


@pytest.mark.parametrize("regression", [False, True])
def test_a_table_is_read_once_and_its_labels_and_ids_once_more(place, folder, monkeypatch, regression):
    """Of a million rows each time takes seconds; a measured number of one table alone is not tried as an id."""
    if regression:
        own = csv.read_csv(folder / "bank.csv")
        amounts = pa.array([row * 0.37 for row in range(own.num_rows)])
        csv.write_csv(own.set_column(own.column_names.index("default"), "default", amounts), folder / "bank.csv")
    read, read_pieces = [], CsvSource.read_pieces
    monkeypatch.setattr(
        CsvSource,
        "read_pieces",
        lambda self, names, *more: (read.append((self.config.path.name, *names)), read_pieces(self, names, *more))[1],
    )
    assert place.call("init", folder, "--yes").code == 0
    wholes = [("bank.csv", "id", "balance", "default"), ("telco.csv", "id", "usage", "plan")]
    once_more = [("bank.csv", "default"), ("bank.csv", "id"), ("telco.csv", "id")]
    assert sorted(read) == sorted([*wholes, *once_more])
    assert load_job(folder / "job.yaml").task == ("regression" if regression else "binary")


@pytest.mark.usefixtures("fewer_are_ample")
def test_labels_are_drawn_for_the_rows_of_each_partner(place, folder):
    """With all rows of the label owner a partner fits to its own ones, and not to those that all partners have."""
    write_many(folder, 1_800, range(1_800))
    rows = csv.read_csv(folder / "telco.csv")
    csv.write_csv(rows[:1_200], folder / "telco.csv")
    csv.write_csv(rows[600:].rename_columns(["id", "visits", "orders"]), folder / "shop.csv")
    named = ("--labels", "bank.csv", "--partner", "telco.csv", "--partner", "shop.csv", "--yes", "--overwrite")
    for which, epsilon in (("all", 1.0), ("common", 2.0)):
        assert place.call("init", folder, *named, "--rows", which).code == 0
        assert load_job(folder / "job.yaml").parties["bank"].privacy == {"label_dp": {"eps": epsilon}}


@pytest.mark.usefixtures("fewer_are_ample")
def test_rows_without_a_label_are_not_drawn(place, folder):
    """Of 1,800 rows of which a tenth has a label, so many are drawn, which are few."""
    write_many(folder, 1_800, range(1_800))
    head, *rows = (folder / "bank.csv").read_text().splitlines()
    at = head.replace('"', "").split(",").index("default")
    for number in range(180, len(rows)):
        fields = rows[number].split(",")
        rows[number] = ",".join([*fields[:at], "", *fields[at + 1 :]])
    (folder / "bank.csv").write_text("\n".join([head, *rows]) + "\n")
    result = place.call("init", folder, "--yes")
    assert "left out: 1,620 of 1,800 rows" in result.out
    assert "protected: labels alone (so few drawn labels cost accuracy)" in result.out
    assert load_job(folder / "job.yaml").parties["bank"].privacy == {"label_free": None}


def test_the_label_owner_sees_what_its_drawn_labels_are_worth_before_a_partner_is_there(place, folder):
    write_many(folder, 3_000, range(3_000))
    assert place.call("init", folder, "--protect", "both", "--apart", "--yes").code == 0
    job, local = folder / "job.yaml", folder / "bank.yaml"
    result = place.call("check", job, "--as", "bank", "--local", local)
    assert result.code == 0
    assert re.search(r"labels drawn at 2 are worth 1,\d\d\d rows to telco.*, if all rows train", result.out)
    assert "fail_above" not in result.out
    local.write_text(local.read_text() + "audit: {fail_above: {excess: 0.1}}\n")
    assert "warning audit.fail_above: excess fails" in place.call("check", job, "--as", "bank", "--local", local).out
    assert "are worth" not in place.call("check", job, "--as", "telco", "--local", folder / "telco.yaml").out


@pytest.mark.parametrize("protect", ["both", "labels"])
def test_a_job_for_parties_apart_says_how_one_of_them_is_checked(place, folder, protect):
    assert place.call("init", folder, "--protect", protect, "--apart", "--yes").code == 0
    for verb in ("check", "run"):
        result = place.call(verb, folder / "job.yaml")
        assert result.code == 2, verb
        assert "got a job for parties apart, without any; name each party's file, or take" in result.err, verb


def test_by_default_few_rows_protect_labels_alone(place, folder):
    """Drawn labels of 1,200 rows are worth more than 200 rows, which `--protect both` takes, and fewer than 1,000."""
    write_many(folder, 1_200, range(1_200))
    result = place.call("init", folder, "--yes")
    assert result.code == 0
    assert "protected: labels alone" in result.out
    job = load_job(folder / "job.yaml")
    assert job.parties["bank"].privacy == {"label_free": None}
    assert job.parties["telco"].fit["kind"] == "sketch"


def test_the_questions(place, folder, monkeypatch):
    answers = iter(["bank.csv", "id", "default", "columns", "0"])
    asked = []

    def prompt(question, default):
        asked.append(question)
        return next(answers)

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", prompt)
    monkeypatch.setattr(typer, "confirm", lambda question, default: asked.append(question) or True)
    assert place.call("init", folder).code == 0
    assert len(asked) == 6, "with one possible partner nobody asks who it is"
    assert (folder / "telco.yaml").exists()
    assert load_private_part(folder / "bank.yaml").positive == "0"


def test_a_wrong_answer_is_asked_again(place, folder, monkeypatch):
    """Each question on its own: what was answered before stays answered."""
    answers = ["bnk.csv", "bank.csv", "ident", "id", "defalt", "default", "colums", "columns", "2", "0"]
    asked = []

    def prompt(question, default):
        asked.append(question)
        return answers[len(asked) - 1]

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", prompt)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: False)
    result = place.call("init", folder)
    assert result.code == 0
    assert asked[::2] == asked[1::2]
    assert [line.partition(";")[0] for line in result.err.splitlines() if line.startswith("error")] == [
        "error expected one of bank.csv, telco.csv, got 'bnk.csv'",
        "error expected a column of bank.csv, got 'ident'",
        result.err.splitlines()[2].partition(";")[0],
        "error expected one of auto, labels, columns, both, proof, nothing, got 'colums'",
        "error expected one of 0, 1, got '2'",
    ]
    assert load_job(folder / "job.yaml").parties["bank"].positive == "0"


def test_where_nothing_can_be_guessed_the_questions_have_other_defaults(place, folder, monkeypatch):
    """Neither the ids have names or values in common, nor does a name say which column is the label."""
    bank, telco = folder / "bank.csv", folder / "telco.csv"
    bank.write_text(bank.read_text().replace("default", "bought", 1).replace("id,", "person_no,", 1))
    head, *rows = telco.read_text().replace("id,", "mine,", 1).splitlines()
    telco.write_text("\n".join([head, *rows[:3], *(f"9{row}" for row in rows[3:])]) + "\n")
    assert place.call("init", folder, "--yes").code == 2
    answers = {"identifies a row": "person_no, mine", "is the label": "bought"}
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(
        typer, "prompt", lambda question, default: next((w for t, w in answers.items() if t in question), default)
    )
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: False)
    result = place.call("init", folder)
    assert result.code == 0, result
    assert {name: party.id.column for name, party in load_job(folder / "job.yaml").parties.items()} == {
        "bank": "person_no",
        "telco": "mine",
    }


def test_the_question_of_a_format(place, folder, monkeypatch):
    telco = folder / "telco.csv"
    first, *rows = telco.read_text().splitlines()
    days = [f"{1 + row % 12:02}/{1 + row % 11:02}/2023" for row in range(len(rows))]
    telco.write_text("\n".join([f"{first},since", *(f"{row},{day}" for row, day in zip(rows, days, strict=True))]))
    chosen = {"How is since of telco.csv written? (%d/%m/%Y, %m/%d/%Y, text)": "%m/%d/%Y"}
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", lambda question, default: chosen.get(question, default))
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: False)
    assert "formats of telco.csv: since %m/%d/%Y\n" in place.call("init", folder).out
    assert load_job(folder / "job.yaml").parties["telco"].table.formats["since"].date == "%m/%d/%Y"
    chosen.clear()
    assert "since" not in place.call("init", folder, "--overwrite").out, "text is an answer too, and the default"
    assert not load_job(folder / "job.yaml").parties["telco"].table.formats


@pytest.mark.parametrize("protect", ["labels", "columns", "proof"])
def test_each_organisation_writes_its_files_from_its_own_table(place, folder, protect):
    """The owner without the partner's table, and the partner without the owner's; together they are one job."""
    theirs = folder.parent / "theirs"
    theirs.mkdir()
    (folder / "telco.csv").rename(theirs / "mine.csv")
    options = ["--partner-name", "telco", "--width", "telco=40", "--protect", protect, "--yes"]
    result = place.call("init", folder, *options)
    assert result.code == 0, result
    assert sorted(path.name for path in folder.iterdir()) == ["bank.csv", "bank.yaml", "for-partners.md", "job.yaml"]
    assert "rows: all 200 of bank; how many a partner has is not known yet" in result.out
    page = (folder / "for-partners.md").read_text()
    asks = "trained by steps" if protect == "columns" else "at most 40 columns"
    assert asks in page
    (theirs / "job.yaml").write_text((folder / "job.yaml").read_text())
    command = next(line.split() for line in page.splitlines() if "cutlayer init" in line)
    assert command == ["cutlayer", "init", ".", "--as", "telco"]
    result = place.call("init", theirs, "--as", "telco", "--protect", protect, "--yes")
    assert result.code == 0, result
    assert sorted(path.name for path in theirs.iterdir()) == ["job.yaml", "mine.csv", "telco.yaml"]
    for where, name in ((folder, "bank"), (theirs, "telco")):
        half = place.call("check", where / "job.yaml", "--as", name, "--local", where / f"{name}.yaml", "--json")
        assert half.code == 0, half
    private = load_private_part(theirs / "telco.yaml")
    assert bool(private.privacy) == (protect in COLUMNS)
    assert (private.fit is not None) == (protect != "columns")


def test_predictions_of_a_run_are_no_partner(place, folder):
    """They are computed from the labels: with them as columns a model would be measured far too well."""
    scores = folder / "scores.csv"
    csv.write_csv(csv.read_csv(folder / "telco.csv"), scores)
    made = {"job": "job", "run": "job", "training": "t", "predicted": "2026-11-30T00:00:00+00:00"}
    Provenance(**made, rows=1, contributed={"bank": 1}).write(beside(scores))
    result = place.call("init", folder, "--yes")
    assert result.code == 0, result.err
    assert "left out: scores.csv, which holds predictions of a run" in result.out
    assert load_job(folder / "job.yaml").passives == ("telco",)
    named = ("--labels", "bank.csv", "--partner", "scores.csv", "--yes", "--overwrite")
    assert place.call("init", folder, *named).code == 0
    assert load_job(folder / "job.yaml").passives == ("scores",)
    beside(scores).write_text("{}")
    assert place.call("init", folder, "--yes", "--overwrite").code == 0
    assert load_job(folder / "job.yaml").passives == ("scores", "telco")


def test_names_are_those_of_the_certificate(place, folder):
    """What `keys init` made is what the job names: a preflight would refuse any other name."""
    options = ["--partner-name", "telco", "--yes"]
    (folder / "telco.csv").unlink()
    result = place.call("init", folder, *options)
    assert "cutlayer keys init bank" in result.out
    assert "in place of bank.example:7070 in job.yaml" in result.out
    for path in folder.glob("*.yaml"):
        path.unlink()
    keys = folder / "keys"
    assert place.call("keys", "init", "lender", "--federation", "loans", "--folder", keys).code == 0
    result = place.call("init", folder, *options, "--overwrite")
    assert "keys init" not in result.out
    job = load_closed_job(folder / "job.yaml")
    assert (job.federation, job.active, job.identities["lender"]) == ("loans", "lender", "spiffe://loans/lender")
    private = folder / "lender.yaml"
    assert place.call("check", folder / "job.yaml", "--as", "lender", "--local", private).code == 0
    partners = ["--partner-name", "lender", "--yes", "--overwrite"]
    result = place.call("init", folder, *partners)
    assert (result.code, "of which 'lender' is that of the certificate in keys" in result.error) == (2, True)
    (keys / "lender.pem").write_text("no certificate")
    result = place.call("init", folder, *options, "--overwrite")
    assert (result.code, "keys/lender.pem" in result.error) == (2, True)


def test_a_partner_of_a_narrow_release_is_shown_the_width_that_it_needs(place, folder):
    (folder / "telco.csv").rename(folder.parent / "telco.csv")
    options = ["--partner-name", "telco", "--width", "telco=1"]
    assert place.call("init", folder, *options, "--yes").code == 0
    (folder.parent / "job.yaml").write_text((folder / "job.yaml").read_text())
    result = place.call("init", folder.parent, "--as", "telco", "--partner", "telco.csv", "--yes")
    assert "width: the job takes 1 of your columns, and your table has " in result.out
    assert "bank can write width: 32 for telco in job.yaml" in result.out
    assert load_private_part(folder.parent / "telco.yaml").fit == {"kind": "sketch"}


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        (["--apart"], "got bank.csv; name the organisations that have theirs with --partner-name"),
        (["--partner-name", "job"], "expected other names than job, whose private file were job.yaml"),
        (["--partner-name", "tel co"], "--partner-name: expected a party name of letters"),
        (["--partner-name", "telco", "--partner-name", "telco"], "expected a name of its own for each partner"),
        (["--partner-name", "bank"], "expected a name of its own for each party, got bank, bank"),
        (["--partner-name", "telco", "--width", "shop=9"], "--width of partners whose tables are not here, got shop"),
        (["--partner-name", "telco", "--width", "telco=x"], "expected --width as NAME=COLUMNS, 1 to 4096 columns"),
        (["--as", "telco"], "job.yaml: cannot be read"),
    ],
)
def test_wrong_options_of_one_organisation(place, folder, options, phrase):
    (folder / "telco.csv").unlink()
    result = place.call("init", folder, *options, "--yes")
    assert (result.code, phrase in result.error) == (2, True), result
    assert [path.name for path in folder.iterdir()] == ["bank.csv"]


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        (["--labels", "bnk.csv"], "expected one of bank.csv, telco.csv, got 'bnk.csv'; did you mean 'bank.csv'?"),
        (["--label", "defalt"], "did you mean 'default'?"),
        (["--id", "ident"], "expected a column of bank.csv, got 'ident'; "),
        (["--id", "nothing", "--id", "balnce"], "'nothing' or 'balnce'; did you mean 'balance'?"),
        (["--protect", "label"], "did you mean 'labels'?"),
        (["--partner", "bank.csv", "--labels", "bank.csv"], "expected one of telco.csv, got 'bank.csv'"),
    ],
)
def test_a_wrong_option_names_the_nearest(place, folder, options, phrase):
    result = place.call("init", folder, *options, "--yes")
    assert (result.code, result.out) == (2, "")
    assert phrase in result.error
    assert {path.name for path in folder.iterdir()} == {"bank.csv", "telco.csv"}


def test_the_label_is_guessed_by_its_name_or_named(place, folder):
    bank = folder / "bank.csv"
    text = bank.read_text()
    for name in ("defaulted", "is_default", "Churned", "target_2024"):
        bank.write_text(text.replace("default", name, 1))
        assert place.call("init", folder, "--yes").code == 0
        assert load_job(folder / "job.yaml").parties["bank"].label == name
        (folder / "job.yaml").unlink()
    bank.write_text(text.replace("default", "bought", 1))
    error = place.call("init", folder, "--yes").error
    assert "got others, such as bought of bank.csv" in error
    assert "name it with --label" in error


def test_ids_of_different_names_are_matched_by_their_values(place, folder):
    bank, telco = folder / "bank.csv", folder / "telco.csv"
    telco.write_text(telco.read_text().replace("id", "customer", 1))
    result = place.call("init", folder, "--yes")
    assert (result.code, "ids: id of bank.csv, customer of telco.csv\n" in result.out) == (0, True)
    parties = load_job(folder / "job.yaml").parties
    assert (parties["bank"].id.column, parties["telco"].id.column) == ("id", "customer")
    (folder / "job.yaml").unlink()
    for path, number in ((bank, "row"), (telco, "line")):  # rows that are numbered have equal values too
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([f"{number},{head}", *(f"{at},{row}" for at, row in enumerate(rows))]) + "\n")
    assert "ids: id of bank.csv, customer of telco.csv\n" in place.call("init", folder, "--yes").out


@pytest.mark.parametrize("number", [str, int])
def test_ids_of_different_names_may_repeat_at_a_partner(place, folder, number):
    """As of one name; but a number in which few values repeat is no id by its values alone."""
    telco = folder / "telco.csv"
    head, *rows = telco.read_text().splitlines()
    name = {str: "customer", int: "amount"}[number]
    telco.write_text("\n".join([head.replace("id", name, 1), *rows, *rows[:3]]) + "\n")
    result = place.call("init", folder, "--yes")
    if number is int:
        assert "got no column in common" in result.error
        return
    assert "ids: id of bank.csv, customer of telco.csv\n" in result.out
    assert "warning 3 of the ids customer of telco.csv have several rows" in result.out
    assert place.call("check", folder / "job.yaml").code == 0


@pytest.mark.parametrize("written", ["{}", "K{}"])
def test_many_rows_of_one_customer_refer_to_a_table_of_customers(place, folder, written):
    """Whatever the column is called there; taken for the id of a table of one row each, it was refused."""
    customers = {"client": [written.format(n) for n in range(900)], "usage": [n % 7 for n in range(900)]}
    csv.write_csv(pa.table({**customers, "plan": [n % 5 for n in range(900)]}), folder / "telco.csv")
    loans = {"loan": [f"A{n}" for n in range(600)], "customer_id": [written.format(n % 200) for n in range(600)]}
    csv.write_csv(pa.table({**loans, "default": [n % 3 == 0 for n in range(600)]}), folder / "bank.csv")
    assert "ids: customer_id of bank.csv refers to client of telco.csv" in place.call("init", folder, "--yes").out


def test_a_number_of_a_branch_refers_to_no_customers(place, folder):
    """From 1 to 30 it is of the ids of any table of customers; taken for their id it joined loans to strangers."""
    customers = {"client": [*range(1, 901)], "usage": [n % 7 for n in range(900)]}
    csv.write_csv(pa.table(customers), folder / "telco.csv")
    loans = {"loan": [f"A{n}" for n in range(600)], "branch_id": [n % 30 + 1 for n in range(600)]}
    csv.write_csv(pa.table({**loans, "default": [n % 3 == 0 for n in range(600)]}), folder / "bank.csv")
    assert "got no column in common; name it with --id" in place.call("init", folder, "--yes").error
    csv.write_csv(
        pa.table({**loans, "owner_id": [n % 200 + 1 for n in range(600)], "default": [0, 1] * 300}), folder / "bank.csv"
    )
    assert "ids: owner_id of bank.csv refers to client of telco.csv" in place.call("init", folder, "--yes").out


def test_ids_with_and_without_zeros_some_of_which_repeat_are_one_column(place, folder):
    """As a table of customers has them; `Kunden-Nr` is called an id as `kunden_nr` is. Constants are no features."""
    customers = {"kunden_nr": [*range(1, 301)], "usage": [n % 7 for n in range(300)], "country": ["DE"] * 300}
    csv.write_csv(pa.table(customers), folder / "telco.csv")
    numbers = [*range(1, 301), 1, 2]
    loans = {"Kunden-Nr": [f"{n:06d}" for n in numbers], "age": numbers, "default": [n % 3 == 0 for n in numbers]}
    csv.write_csv(pa.table(loans), folder / "bank.csv")
    out = place.call("init", folder, "--yes").out
    assert "ids: Kunden-Nr of bank.csv, kunden_nr of telco.csv" in out
    assert "ids: compared as whole numbers, since no row has the same one as it is written" in out
    assert "left out of telco.csv: country (every value is the same)" in out
    csv.write_csv(pa.table({**customers, "kunden_nr": [n % 9 for n in range(300)]}), folder / "telco.csv")
    csv.write_csv(pa.table({**loans, "Kunden-Nr": [f"{n % 9:06d}" for n in numbers]}), folder / "bank.csv")
    (folder / "job.yaml").unlink()
    error = place.call("init", folder, "--yes").error
    assert "got Kunden-Nr with 9 values in 302 rows of bank.csv, kunden_nr with 9 values in 300 rows" in error


def test_few_small_numbers_refer_to_a_table_by_name_alone(place, folder):
    """Years of education are half of the ids of any short list; a branch refers to the list of branches."""
    (folder / "telco.csv").unlink()
    csv.write_csv(pa.table({"id": [*range(1, 25)], "staff": [n % 7 for n in range(24)]}), folder / "branches.csv")
    people = {"person": [f"A{n}" for n in range(600)], "education_num": [n % 16 + 1 for n in range(600)]}
    people["default"] = [n % 3 == 0 for n in range(600)]
    csv.write_csv(pa.table(people), folder / "bank.csv")
    assert "got no column in common; name it with --id" in place.call("init", folder, "--yes").error
    csv.write_csv(pa.table({"branch": [n % 20 + 1 for n in range(600)], **people}), folder / "bank.csv")
    assert "ids: branch of bank.csv refers to id of branches.csv" in place.call("init", folder, "--yes").out


def test_ids_without_a_common_name_or_value_are_refused(place, folder):
    telco = folder / "telco.csv"
    head, *rows = telco.read_text().replace("id", "customer", 1).splitlines()
    telco.write_text("\n".join([head, *(f"x{row}" for row in rows)]) + "\n")
    assert "got no column in common; name it with --id" in place.call("init", folder, "--yes").error


def test_rows_without_a_label_are_left_out_and_counted(place, folder):
    lines = (folder / "bank.csv").read_text().splitlines()
    at = lines[0].split(",").index("default")
    for number in (1, 5, 9):
        fields = lines[number].split(",")
        lines[number] = ",".join([*fields[:at], "", *fields[at + 1 :]])
    (folder / "bank.csv").write_text("\n".join(lines) + "\n")
    result = place.call("init", folder, "--yes")
    assert f"left out: 3 of {len(lines) - 1} rows, which have no label\n" in result.out
    assert load_job(folder / "job.yaml").parties["bank"].unlabelled == "drop"
    assert place.call("check", folder / "job.yaml").code == 0


def test_a_label_of_one_value_is_refused(place, folder):
    bank = folder / "bank.csv"
    head, *rows = bank.read_text().splitlines()
    bank.write_text("\n".join([f"{head},won", *(f"{row},yes" for row in rows)]) + "\n")
    error = place.call("init", folder, "--label", "won", "--yes").error
    assert "expected two or more different labels in won of bank.csv, got one" in error


def test_the_split(place, folder):
    """Stratified, unless that would void a guarantee; by a column if one is named."""
    for options, split in (
        (["--protect", "labels"], {}),
        (["--protect", "nothing"], {"stratify": True}),
        (["--protect", "both", "--split-by", "balance"], {"by": "balance", "public": True}),
        (["--protect", "nothing", "--split-by", "balance"], {"by": "balance"}),
    ):
        result = place.call("init", folder, *options, "--yes")
        assert result.code == 0
        assert ("are sent which rows have the largest values of balance" in result.out) is ("by" in split)
        explained = "# train.split.public: partners are sent which rows" in (folder / "job.yaml").read_text()
        assert explained is ("public" in split)
        assert load_job(folder / "job.yaml").train.split.model_dump(exclude_defaults=True) == split
        if "by" in split:  # the others are checked with every answer
            assert place.call("check", folder / "job.yaml").code == 0
        (folder / "job.yaml").unlink()
    result = place.call("init", folder, "--split-by", "balanc", "--yes")
    assert (result.code, "no column 'balanc' in bank.csv; did you mean 'balance'?" in result.error) == (2, True)


def test_the_positive_class(place, folder):
    result = place.call("init", folder, "--positive", "0", "--yes")
    assert result.code == 0
    assert "positive class: 0 (" in " ".join(result.out.split())
    assert load_job(folder / "job.yaml").parties["bank"].positive == "0"
    (folder / "job.yaml").unlink()
    assert place.call("init", folder, "--positive", "1", "--yes").code == 0
    assert load_job(folder / "job.yaml").parties["bank"].positive is None, "the greater label need not be stated"
    (folder / "job.yaml").unlink()
    assert "expected one of 0, 1, got '2'" in place.call("init", folder, "--positive", "2", "--yes").error
    result = place.call("init", folder, "--label", "balance", "--positive", "2", "--yes")
    assert result.code == 2
    assert "--positive with two different labels" in result.error


def relabelled(folder, values, name="default"):
    """Write other labels, in turn, into the bank's table, under another name."""
    head, *rows = [line.split(",") for line in (folder / "bank.csv").read_text().splitlines()]
    at = head.index("default")
    head[at] = name
    for number, row in enumerate(rows):
        row[at] = str(values[number % len(values)])
    (folder / "bank.csv").write_text("\n".join(map(",".join, [head, *rows])))


@pytest.mark.parametrize(
    ("values", "name", "options", "task"),
    [
        (range(18), "label", [], "regression"),
        (range(18), "label_class", [], "multiclass"),
        (range(18), "label", ["--task", "multiclass"], "multiclass"),
        (range(10), "label", [], "multiclass"),
        (range(10), "label", ["--task", "regression"], "regression"),
        ([number + 0.5 for number in range(18)], "label_class", [], "regression"),
        ([f"kind {number}" for number in range(30)], "label", [], "multiclass"),
        (range(2), "label", ["--task", "regression"], "regression"),
    ],
)
def test_the_task(place, folder, values, name, options, task):
    """Up to ten numbers, and texts, are classes; whole numbers that their name calls codes too; `--task` states it."""
    relabelled(folder, values, name)
    result = place.call("init", folder, *options, "--json")
    assert (result.code, result.document()["task"]) == (0, task), result
    assert load_job(folder / "job.yaml").task == task
    if name == "label_class" or task == "regression":  # one job of each kind, with the column that was guessed
        assert place.call("check", folder / "job.yaml").code == 0


@pytest.mark.parametrize(
    ("values", "task", "phrase"),
    [
        (range(18), "binary", "expected two different labels in default of bank.csv with --task binary, got 18"),
        (["a", "b", "c"], "regression", "expected numbers in default of bank.csv with --task regression, got text"),
        (
            [0.5, 1.5, 2.0],
            "multiclass",
            "expected classes in default of bank.csv with --task multiclass, got fractions",
        ),
        (range(2), "regresion", "did you mean 'regression'?"),
    ],
)
def test_a_task_that_does_not_fit_is_refused(place, folder, values, task, phrase):
    relabelled(folder, values)
    result = place.call("init", folder, "--task", task, "--yes")
    assert (result.code, phrase in result.error) == (2, True), result
    assert not (folder / "job.yaml").exists()


@pytest.mark.parametrize(("values", "asks"), [(range(18), True), (range(10), False)])
def test_many_whole_numbers_are_asked_for(place, folder, monkeypatch, values, asks):
    relabelled(folder, values)
    asked = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", lambda question, default: asked.append((question, default)) or default)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: False)
    assert place.call("init", folder, "--label", "default").code == 0
    words = "multiclass, regression, count, amount, severity, survival, ranking"
    question = (f"What are the 18 whole numbers of default? ({words})", "regression")
    assert (question in asked) == asks


def test_a_release_has_the_columns_of_the_encoded_table(place, folder):
    """A number is one, a text its count and each value of three rows or more; missing numbers are flagged. A text whose
    values all differ is left out."""
    telco = folder / "telco.csv"
    head, *rows = telco.read_text().splitlines()
    wide = [f"{row},{'' if n == 0 else n},town {n % 40},street {n}" for n, row in enumerate(rows)]
    telco.write_text("\n".join([f"{head},calls,town,street", *wide]))
    assert place.call("init", folder, "--yes").code == 0
    job = load_job(folder / "job.yaml")
    texts = {"plan": 4, "town": 40}
    numbers = len(head.split(",")) + 2 - 1 - len(texts)
    assert job.bottom_of("telco") == {"kind": "linear", "width": 4 * numbers + sum(1 + n for n in texts.values())}
    stated = {name: party.features.numbers.model_dump(exclude_defaults=True) for name, party in job.parties.items()}
    assert stated == {"bank": {}, "telco": {"quantiles": 1, "scale": "robust"}}
    assert job.parties["telco"].fit["map"] == "permutation"
    assert place.call("check", folder / "job.yaml").code == 0


def test_more_columns_than_a_release_are_rotated(place, folder):
    telco = folder / "telco.csv"
    head, *rows = telco.read_text().splitlines()
    names, *values = (",".join(f"{text}{n}" for n in range(MAX_SKETCH)) for text in ("x", "", "1"))
    telco.write_text("\n".join([f"{head},{names}", *(f"{row},{values[at % 2]}" for at, row in enumerate(rows))]))
    assert place.call("init", folder, "--yes").code == 0
    job = load_job(folder / "job.yaml")
    assert job.bottom_of("telco")["width"] == MAX_SKETCH
    assert "map" not in job.parties["telco"].fit


def test_ids_of_different_names(place, folder):
    """The same letters are found; other names are given, once each."""
    telco = folder / "telco.csv"
    rows = telco.read_text().partition("\n")
    assert "id" in rows[0].split(",")
    for name, options in (("ID", []), ("I d", ["--id", "Id"]), ("number", ["--id", "number", "--id", "id"])):
        telco.write_text("\n".join([rows[0].replace("id", name, 1), rows[2]]))
        assert place.call("init", folder, *options, "--yes").code == 0
        parties = load_job(folder / "job.yaml").parties
        assert (parties["bank"].id.column, parties["telco"].id.column) == ("id", name)
        if name == "I d":  # the least alike
            assert place.call("check", folder / "job.yaml").code == 0
        (folder / "job.yaml").unlink()
    result = place.call("init", folder, "--id", "number", "--yes")
    assert "expected a column of bank.csv, got 'number'" in result.error
    assert "give --id once for each name" in result.error


def test_a_half_without_a_guarantee_says_who_may_learn_what(place, folder):
    assert place.call("init", folder, "--apart", "--protect", "nothing", "--yes").code == 0
    for name, phrase in (
        ("bank", "gradients depend on the labels, and telco may infer labels from them"),
        ("telco", "bank receives an embedding of every common row, and may rebuild columns of telco from it"),
    ):
        private = folder / f"{name}.yaml"
        result = place.call("check", folder / "job.yaml", "--as", name, "--local", private, "--json").document()
        assert result["ready"]
        guarantee = next(check for check in reversed(result["checks"]) if check["name"] == "guarantee")
        assert (guarantee["caution"], guarantee["result"]) == (True, f"none: {phrase}")


def test_a_half_shows_what_is_odd_about_its_columns(place, folder):
    telco = folder / "telco.csv"
    first, *rows = telco.read_text().splitlines()
    telco.write_text(
        "\n".join([f"{first},visits", f"{rows[0]},often", *(f"{row},{n % 28}.5" for n, row in enumerate(rows[1:]))])
    )
    assert place.call("init", folder, "--apart", "--yes").code == 0
    result = place.call("check", folder / "job.yaml", "--as", "telco", "--local", folder / "telco.yaml")
    assert result.code == 0
    assert "warning column visits: 28 different numbers, but 'often' makes it text" in " ".join(result.out.split())


def test_a_file_that_takes_no_part_stops_nothing_once_the_tables_are_named(place, folder):
    (folder / "notes.csv").write_text("id,text,text\n1,a,b\n")
    refused = place.call("init", folder, "--yes")
    assert refused.code == 2
    assert "notes.csv: expected every column name once" in refused.error
    assert refused.error.rstrip().endswith("if it takes no part, name those that do with --labels and --partner")
    result = place.call("init", folder, "--labels", "bank.csv", "--partner", "telco.csv", "--yes")
    assert result.code == 0
    assert load_job(folder / "job.yaml").passives == ("telco",)


def test_a_mistyped_name_is_named_although_all_tables_are_read(place, folder):
    result = place.call("init", folder, "--labels", "bank.csv", "--partner", "telko.csv", "--yes")
    assert (result.code, "did you mean 'telco.csv'?" in result.error) == (2, True)


def test_nothing_is_overwritten(place, folder):
    assert place.call("init", folder, "--yes").code == 0
    before = (folder / "job.yaml").read_text()
    result = place.call("init", folder, "--yes", "--protect", "nothing")
    assert result.code == 2
    assert "job.yaml, got one; choose another folder, or replace what is there with --overwrite" in result.error
    assert (folder / "job.yaml").read_text() == before
    assert place.call("init", folder, "--yes", "--protect", "nothing", "--overwrite").code == 0
    assert (folder / "job.yaml").read_text() != before


def test_folders_without_two_tables_are_refused(place, folder):
    (folder / "telco.csv").rename(folder / "telco.bin")
    assert "expected two tables or more" in place.call("init", folder, "--yes").error
    assert "expected a folder with tables" in place.call("init", "nowhere", "--yes").error


def test_a_half_that_is_wrong_fails_its_check(place, folder):
    assert place.call("init", folder, "--apart", "--yes").code == 0
    private = folder / "telco.yaml"
    private.write_text(private.read_text().replace("telco.csv", "gone.csv"))
    result = place.call("check", folder / "job.yaml", "--as", "telco", "--local", private)
    assert result.code == 2
    assert "no such file" in result.out
    assert "expected --as and --local together" in place.call("check", folder / "job.yaml", "--as", "telco").error
    other = place.call("check", folder / "job.yaml", "--as", "shop", "--local", folder / "bank.yaml")
    assert "expected a party of the job (bank, telco), got shop" in other.error


@pytest.mark.parametrize("apart", [True, False])
def test_what_states_protections_is_its_owners_alone(place, folder, apart):
    before = os.umask(0o022)
    try:
        assert place.call("init", folder, "--apart" if apart else "--together", "--yes").code == 0
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o077 for path in folder.glob("*.yaml")}
    assert modes == ({"job.yaml": 0o044, "bank.yaml": 0, "telco.yaml": 0} if apart else {"job.yaml": 0})


def test_ids_that_a_program_wrote_as_fractions(place, folder):
    """No id is the same as it is written; as whole numbers all are."""
    (telco,) = folder.glob("telco.*")
    table = csv.read_csv(telco)
    ids = pa.compute.binary_join_element_wise(table["id"].cast(pa.string()), "", ".0")
    csv.write_csv(table.set_column(table.schema.get_field_index("id"), "id", ids), telco)
    assert "ids: compared as whole numbers" in place.call("init", folder, "--yes").out
    job = load_job(folder / "job.yaml")
    assert {party.id.normalise for party in job.parties.values()} == {"integer"}
    assert place.call("check", folder / "job.yaml").code == 0
