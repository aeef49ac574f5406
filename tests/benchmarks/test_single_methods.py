"""The benchmark of methods without a page changes what each setting says, and reads every value that it names."""

from collections.abc import Callable
from types import ModuleType

import pytest

from benchmarks import single_methods
from benchmarks.single_methods import GONE, SETTINGS, job_of

RELEASES = ("", " of the first release", " of the last release")


def test_each_setting_changes_one_thing() -> None:
    jobs = {name: job_of(setting, 3) for name, setting in SETTINGS.items()}
    plain = jobs["undefended"]
    assert all(not party.protections for party in plain.parties.values())
    assert [job.parties[GONE].protections.get("nopeek", {}).get("alpha") for job in jobs.values()] == [
        *(None, 0.1, 1.0, None, None),
    ]
    assert {name for name, job in jobs.items() if "dp_bottom" in job.parties[GONE].protections} == {"dp_bottom, eps 4"}
    assert {name for name, job in jobs.items() if job.model.top["kind"] == "laser"} == {"laser"}
    assert {job.train.seed for job in jobs.values()} == {3}


@pytest.mark.usefixtures("small_decoder")
def test_values_are_read_by_party_and_without_a_party(
    monkeypatch: pytest.MonkeyPatch, few_rows: Callable[[ModuleType, int], None]
) -> None:
    few_rows(single_methods, 2500)
    monkeypatch.setattr(single_methods, "TRAIN", {"epochs": 3, "split": {"test": 0.1, "validation": 0.2}})
    monkeypatch.setattr("cutlayer.training.malicious_runs.MAX_AUXILIARY_ROWS", 150)
    monkeypatch.setattr(single_methods, "SETTINGS", {"nopeek 1": SETTINGS["nopeek 1"]})
    values = {value.what: value.value for value in single_methods.single_methods(1).values}
    attacked = {f"inversion{release}, {party}" for release in RELEASES for party in ("census_office", "employer")}
    assert set(values) == {"test AUC", f"test AUC without {GONE}", *attacked}
    assert 0.6 < values[f"test AUC without {GONE}"] < 1
    assert 0.6 < values["test AUC"] < 1
    assert values["test AUC"] != values[f"test AUC without {GONE}"]
    assert 0 < values["inversion, employer"] < 1
