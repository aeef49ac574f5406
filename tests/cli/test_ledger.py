"""What the command line says of the privacy account: before a run, after it, and when a budget forbids it."""

from __future__ import annotations

import json

import pytest

BANK = "parties.bank.privacy"


def test_check_shows_the_total_before_anything_runs(place):
    place.change({BANK: {"label_dp": {"eps": 2.0}, "max_norm": None, "budget": {"epsilon": 2.0}}})
    result = place.call("check", place.file)
    assert result.code == 0
    assert "in total" in result.out
    assert "epsilon 2 per row" in " ".join(result.out.split())
    (total,) = place.call("check", place.file, "--json").document()["totals"]
    assert (total["party"], total["protects"], total["towards"]) == ("bank", "labels", ["telco"])
    assert (total["epsilon"], total["delta"], total["accountant"]) == (2.0, 0.0, "pure")


def test_check_says_where_there_is_no_guarantee(place):
    place.change({BANK: {"max_norm": None}})
    result = " ".join(place.call("check", place.file).out.split())
    assert "the labels of the training rows of bank, towards telco: no formal guarantee" in result


@pytest.mark.parametrize("verb", ["check", "run"])
def test_a_run_over_its_budget_is_refused(place, verb):
    place.change({BANK: {"label_dp": {"eps": 2.0}, "budget": {"epsilon": 1.5}}})
    found = place.call(verb, place.file)
    assert found.code == 2
    assert "bank: expected a run of epsilon 1.5 at most, as its budget says, got 2 at delta 1e-05" in found.error
    assert not place.run_folder.exists()


def test_the_ledger_of_a_run_is_in_its_folder_and_in_its_report(place):
    place.change({BANK: {"label_dp": {"eps": 2.0}, "budget": {"epsilon": 2.0}}, "train.epochs": 1})
    report = place.call("run", place.file, "--json").document()
    ledger = json.loads((place.run_folder / "ledger.json").read_text())
    (total,) = report["ledger"]["totals"]
    assert total["epsilon"] == ledger["totals"][0]["epsilon"] == 2.0
    assert total["curve"] == ledger["totals"][0]["curve"]
    assert len(total["curve"]) == 10
    assert len(ledger["entries"][0]["fingerprint"]) == 32
    page = (place.run_folder / "report.html").read_text()
    assert "Total privacy cost" in page
    shown = " ".join(place.call("report", place.run_folder).out.split())
    cost = "the labels of the training rows of bank, towards telco: epsilon 2 per row"
    assert f"Formal privacy cost of the whole run {cost}" in shown


@pytest.mark.parametrize("name", ["ledger.sqlite", "ledger.sqlite.head", "receipts", "x.releases", "x.releases/a.line"])
def test_a_ledger_of_somebody_else_leads_nowhere(place, name):
    outside, folder = place.folder / "outside", place.folder / "theirs"
    outside.mkdir()
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(outside)
    found = place.call("ledger", folder)
    assert (found.code, "expected consent before it leads to" in found.error) == (2, True)
