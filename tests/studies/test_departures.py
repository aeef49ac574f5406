"""The study of departures: its jobs, what it takes from a run, and a page whose verdicts follow from the results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

import studies.registry as registry
from cutlayer.data.images import image_column
from cutlayer.errors import ConfigError, DataError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.options import Progress
from studies.claims import Verdict
from studies.datasets import ADULT_TABLE, adult, with_epochs
from studies.departures.claims import DEPARTURES, HALVES, MULTI_HEAD, NO_DROPOUT, closed, departure_claims, rate_setting
from studies.departures.page import departures_page
from studies.departures.study import FURTHER, SETTINGS, DeparturesStudy
from studies.image_halves import LABEL, ImageHalves
from studies.label_dp.study import LabelDPStudy
from studies.results import Results, TrialResult
from studies.trials import Scope, Trial, run_trial
from tests.studies.written_pages import page_of

DATA = Path(__file__).parents[2].parent / "shared" / "data"
PAPER = {
    NO_DROPOUT: (0.45, 0.27),
    "p 0.05": (0.446, 0.32),
    "p 0.1": (0.443, 0.323),
    "p 0.3": (0.421, 0.331),
    "p 0.5": (0.40, 0.336),
    MULTI_HEAD: (0.39, 0.325),
}
ALONE = 0.34


def made_up(
    group: str, values: dict[str, tuple[float, float]], alone: float = ALONE, seeds: int = 3
) -> list[TrialResult]:
    """Results of one data set: accuracy before and after every departure by setting, similar in all seeds."""
    draw = np.random.default_rng(0)
    results = []
    for seed in range(1, seeds + 1):
        shift = float(draw.normal(0, 0.01))
        for setting, (before, after) in values.items():
            without = {"": before + shift} | {
                ", ".join(departure.absent): after + shift for departure in DEPARTURES[group]
            }
            never = (
                {departure.reference: alone + shift for departure in DEPARTURES[group]} if setting == NO_DROPOUT else {}
            )
            measured = {"without": without, "references": never, "heads": 1, "extra_parameters": 0}
            results.append(TrialResult(group, setting, seed, before, 60.0, {}, {}, measured))
    return results


def verdicts_of(results: list[TrialResult], group: str) -> list[Verdict]:
    return [claim.verdict for claim in departure_claims(Results(results)) if claim.text.startswith(group)]


def test_a_training_gives_every_subset_the_references_and_the_heads(tmp_path: Path) -> None:
    rows = parquet.read_table(ADULT_TABLE).slice(0, 1500)
    job = with_epochs(adult(1, {"party_dropout": {"rate": 0.1}}, {"kind": "multi_head"}, ("alone", "retrained")), 1)
    trial = Trial("Adult", NO_DROPOUT, 1, job, dict.fromkeys(job.parties, rows))
    result = TrialResult(**json.loads(json.dumps(run_trial(DeparturesStudy(), trial, tmp_path / "work", Progress()))))
    assert set(result.measured["without"]) == {"", "census_office", "employer", "census_office, employer"}
    assert (result.measured["heads"], result.measured["extra_parameters"] > 0) == (4, True)
    for departure in DEPARTURES["Adult"]:
        after, standalone = departure.after()(result), departure.standalone()(result)
        assert 0 < (after or 0) < 1
        assert 0 < (standalone or 0) < 1


@pytest.mark.real_data
@pytest.mark.usefixtures("without_pixels")
def test_every_job_is_valid_and_named_once() -> None:
    if not DATA.exists():
        pytest.skip(f"the data sets are not at {DATA.parent.name}/{DATA.name} beside the checkout")
    trials = list(DeparturesStudy().trials(DATA, 2))
    assert len({trial.slug for trial in trials}) == len(trials) == len(SETTINGS) * (2 * len(DEPARTURES) + 3 * FURTHER)
    assert {trial.group for trial in trials if trial.seed > 2} == {"Adult", "handwritten", "MNIST halves"}
    assert [trial.seed for trial in trials] == sorted(trial.seed for trial in trials)
    for trial in trials[: len(SETTINGS) * len(DEPARTURES)]:
        check_job(trial.job)
        absent = {party for departure in DEPARTURES[trial.group] for party in departure.absent}
        assert absent <= set(trial.job.passives)
        assert ("alone" in trial.job.compare) == (trial.setting == NO_DROPOUT)
        assert (trial.job.model.top["kind"] == "multi_head") == (trial.setting == MULTI_HEAD)
    halves = next(trial for trial in trials if trial.group == "CIFAR-100 halves")
    assert halves.tables["left"].num_rows == 15_000
    assert halves.tables["right"].column_names == ["image"]


def test_each_party_has_its_half_of_the_images_and_the_active_one_the_label(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 8), dtype=np.uint8)
    np.savez(tmp_path / "few.npz", x_train=images[:3], y_train=[2, 0, 1], x_test=images[3:], y_test=[1, 2])
    halves = ImageHalves("few", "few.npz", {"kind": "cnn"}, 1, 32)
    tables, first = halves.tables(tmp_path), replace(halves, rows=4).tables(tmp_path)
    assert tables["left"].column_names == ["image", LABEL]
    assert tables["left"][LABEL].to_pylist() == [2, 0, 1, 1, 2]
    for side, half in (("left", images[:, :, :4]), ("right", images[:, :, 4:])):
        assert tables[side]["image"].combine_chunks().equals(image_column(half, side))
        assert first[side].equals(tables[side].slice(0, 4).combine_chunks())
    assert tables["right"].column_names == ["image"]


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npz.*--data"):
        ImageHalves("none", "none.npz", {"kind": "cnn"}, 1, 32).tables(tmp_path)


def test_a_study_of_one_size_has_no_full_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="label-dp"):
        registry.run_study("label-dp", tmp_path, tmp_path / "out", Scope(1), Progress(), full=True)
    assert LabelDPStudy().full is False
    assert "170 hours" in DeparturesStudy(full=True).full_settings


def test_the_papers_numbers_would_hold_every_claim() -> None:
    assert set(verdicts_of(made_up("CIFAR-100 halves", PAPER), "CIFAR-100")) == {Verdict.HOLDS}


@pytest.mark.parametrize(
    ("setting", "values", "failing"),
    [
        (NO_DROPOUT, (0.45, 0.46), {0, 1, 2}),  # nothing is lost by the departure, so dropout closes no gap
        ("p 0.1", (0.443, 0.28), {2}),
        ("p 0.1", (0.43, 0.323), {3}),  # it costs 0.02 before the departure
        ("p 0.05", (0.446, 0.34), {5}),
        (MULTI_HEAD, (0.39, 0.35), {7}),
        ("p 0.5", (0.40, 0.3255), {8}),
    ],
)
def test_one_result_that_is_otherwise_fails_its_claim(
    setting: str, values: tuple[float, float], failing: set[int]
) -> None:
    results = verdicts_of(made_up("CIFAR-100 halves", {**PAPER, setting: values}), "CIFAR-100")
    assert {index for index, verdict in enumerate(results) if verdict == Verdict.FAILS} == failing


@pytest.mark.parametrize("seeds", [0, 1])
def test_too_few_seeds_resolve_nothing(seeds: int) -> None:
    results = set(verdicts_of(made_up("Adult", PAPER, seeds=seeds), "Adult"))
    assert results == ({Verdict.NOT_RUN} if seeds == 0 else {Verdict.OPEN})


def test_the_share_of_the_gap_that_is_closed() -> None:
    results = Results(made_up("MNIST halves", {NO_DROPOUT: (0.98, 0.73), "p 0.1": (0.977, 0.92)}, alone=0.95))
    share = closed(results, "MNIST halves", rate_setting(0.1), HALVES)
    assert share is not None
    assert share.value == pytest.approx(0.19)
    (row,) = [line for line in departures_page(results).markdown().splitlines() if line.startswith("| p 0.1 | 0.9")]
    assert " 86% " in row


def test_the_page_shows_every_setting_of_every_data_set(tmp_path: Path) -> None:
    results = [result for group in DEPARTURES for result in made_up(group, PAPER)]
    page = page_of(DeparturesStudy(), results, tmp_path / "whole")
    assert "not run" not in page
    for group, departures in DEPARTURES.items():
        for departure in departures:
            part = page.partition(f"### {group}: {departure.title}")[2].partition("###")[0]
            assert all(f"| {setting} |" in part for setting in (*SETTINGS, "standalone"))
    assert "| p 0.05 | 0.4458 | 0.3201 |" in page
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith(("|", "#", "!", "<")))


def test_results_of_the_two_sizes_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tiny(DeparturesStudy):
        def trials(self, data: Path, seeds: int):
            trial = Trial("Adult", NO_DROPOUT, 1, adult(1, {}, {"kind": "mlp"}, ()))
            return iter([trial if self.full else replace(trial, setting="p 0.1")])

        def train(self, trial: Trial, work: Path, progress: Progress):
            return vars(made_up("Adult", PAPER, seeds=1)[0]) | {"setting": trial.setting}

    monkeypatch.setattr(registry, "STUDIES", {"tiny": Tiny})
    for full in (False, True):
        registry.run_study("tiny", tmp_path, tmp_path / "out", Scope(1), Progress(), full=full)
        assert ("--full" in (tmp_path / "out" / "departures.md").read_text().partition("## ")[0]) == full
    folders = {path.parent.name for path in (tmp_path / "out").glob("trials*/*.json")}
    assert folders == {"trials", "trials-full"}
