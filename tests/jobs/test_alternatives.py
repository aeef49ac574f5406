"""Alternatives: the job with other protections, trained and audited beside it."""

from __future__ import annotations

import pytest

from cutlayer.config.load import load_closed_job, load_job
from cutlayer.training.comparisons import alternative_job, compared_jobs
from tests.cli.jobs import Place

NOISY = {"telco": {"privacy": {"dp_embedding": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}}}}


@pytest.fixture
def place(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path, capsys)


def test_an_alternative_is_trained_audited_and_in_the_report(place):
    place.change(
        {
            "train.epochs": 1,
            "parties.bank.privacy": {"max_norm": None},
            "parties.telco.audit": {"attacks": ["inversion"]},
            "alternatives": {"private columns": NOISY},
        }
    )
    report = place.call("run", place.file, "--json").document()
    assert [row["name"] for row in report["utility"]["rows"]][:2] == ["this run", "private columns"]
    assert {leak["run"] for leak in report["leaks"]} == {"this run", "private columns"}
    assert {feature_result["run"] for feature_result in report["features"]} == {"this run", "private columns"}
    (statements,) = report["alternatives"].values()
    assert any("the features of telco, towards bank: epsilon 8" in text for text in statements)
    assert all("telco" not in str(total["party"]) for total in report["ledger"]["totals"]), "this run has no noise"
    kept = place.run_folder / "compare" / "private-columns" / "job.yaml"
    other = load_closed_job(kept)
    assert (other.alternatives, other.compare) == ({}, ())
    assert set(other.parties["bank"].privacy) == {"max_norm"}, "a party that is not named keeps its own"
    assert place.call("audit", place.run_folder, "--json").code == 0


def test_an_alternative_changes_neither_the_job_nor_what_parties_agree_on(place):
    plain = load_job(place.file)
    graded = {"fit": {"kind": "grade"}, "bottom": {"kind": "grade"}, "privacy": {"grade_dp": {"epsilon": 8.0}}}
    drawn = {"bank": {"privacy": {"label_dp": {"eps": 1.0}}}}
    place.change({"alternatives": {"a": NOISY, "b": drawn, "c": {"telco": graded}}})
    job = load_job(place.file)
    assert job.digest() == plain.digest()
    assert [run.label for run, _ in compared_jobs(job)] == ["a", "b", "c"]
    assert alternative_job(job, "b").parties["telco"] == job.parties["telco"]
    other = alternative_job(job, "c")
    assert (other.bottom_of("telco"), other.parties["telco"].fit) == ({"kind": "grade"}, {"kind": "grade"})
    assert other.bottom_of("bank") == job.bottom_of("bank")


@pytest.mark.parametrize(
    ("alternatives", "phrases"),
    [
        ({"a": {"telko": {"privacy": {}}}}, ["alternatives.a.telko: no such party; did you mean 'telco'?"]),
        ({"a": {"telco": {"privacy": {"nopek": None}}}}, ["alternatives.a: ", "did you mean 'nopeek'?"]),
        ({"this run": NOISY}, ["alternatives.this run: another run of the report has this name"]),
        ({"undefended": NOISY}, ["alternatives.undefended: another run of the report has this name"]),
        ({"../x": NOISY}, ["a name of letters a-z, digits, spaces"]),
        ({"a": {"telco": {"features": {}}}}, ["unknown key"]),
    ],
    ids=str,
)
def test_a_wrong_alternative_is_refused_before_anything_runs(place, alternatives, phrases):
    place.change({"alternatives": alternatives})
    place.refused(*phrases)
