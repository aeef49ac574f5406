"""The quitting study: its jobs, what it takes from a run, and a page whose verdicts follow from the results."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from written_pages import page_of

import studies
from cutlayer.errors import ConfigError, DataError
from cutlayer.runs.check import check_job
from cutlayer.runs.execute import Progress
from studies.base import Cell, Found, run_cell
from studies.claims import Runs, Verdict
from studies.data import ADULT, adult, with_epochs
from studies.halves import Images
from studies.label_dp import LabelDPStudy
from studies.quitting import FURTHER, SETTINGS, QuittingStudy
from studies.quitting_claims import HALVES, MULTI_HEAD, OPEN, QUITS, QuittingClaims, rate_setting
from studies.quitting_page import QuittingPage

DATA = Path(__file__).parents[2].parent / "shared" / "data"
PAPER = {
    OPEN: (0.45, 0.27),
    "p 0.05": (0.446, 0.32),
    "p 0.1": (0.443, 0.323),
    "p 0.3": (0.421, 0.331),
    "p 0.5": (0.40, 0.336),
    MULTI_HEAD: (0.39, 0.325),
}
ALONE = 0.34


def pretended(group: str, values: dict[str, tuple[float, float]], alone: float = ALONE, seeds: int = 3) -> list[Found]:
    """Results of one data set: accuracy before and after every quit by setting, much alike in all seeds."""
    draw = np.random.default_rng(0)
    found = []
    for seed in range(1, seeds + 1):
        shift = float(draw.normal(0, 0.01))
        for setting, (before, after) in values.items():
            without = {"": before + shift} | {", ".join(one.absent): after + shift for one in QUITS[group]}
            never = {one.never: alone + shift for one in QUITS[group]} if setting == OPEN else {}
            measured = {"without": without, "references": never, "heads": 1, "extra_parameters": 0}
            found.append(Found(group, setting, seed, before, 60.0, {}, {}, measured))
    return found


def verdicts_of(found: list[Found], group: str) -> list[Verdict]:
    return [claim.verdict for claim in QuittingClaims(Runs(found)).all() if claim.text.startswith(group)]


def test_a_training_gives_every_subset_the_references_and_the_heads(tmp_path: Path) -> None:
    rows = parquet.read_table(ADULT.parent / "adult.parquet").slice(0, 1500)
    job = with_epochs(adult(1, {"party_dropout": {"rate": 0.1}}, {"kind": "multi_head"}, ("alone", "retrained")), 1)
    cell = Cell("Adult", OPEN, 1, job, dict.fromkeys(job.parties, rows))
    one = Found(**json.loads(json.dumps(run_cell(QuittingStudy(), cell, tmp_path / "work", Progress()))))
    assert set(one.measured["without"]) == {"", "census_office", "employer", "census_office, employer"}
    assert (one.measured["heads"], one.measured["extra_parameters"] > 0) == (4, True)
    for quit_ in QUITS["Adult"]:
        after, standalone = quit_.after(one), quit_.standalone(one)
        assert 0 < (after or 0) < 1
        assert 0 < (standalone or 0) < 1


@pytest.mark.real_data
def test_every_job_is_valid_and_named_once() -> None:
    if not DATA.exists():
        pytest.skip(f"the data sets are not at {DATA.parent.name}/{DATA.name} beside the checkout")
    cells = list(QuittingStudy().cells(DATA, 2))
    assert len({cell.slug for cell in cells}) == len(cells) == len(SETTINGS) * (2 * len(QUITS) + 3 * FURTHER)
    assert {cell.group for cell in cells if cell.seed > 2} == {"Adult", "handwritten", "MNIST halves"}
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    for cell in cells[: len(SETTINGS) * len(QUITS)]:
        check_job(cell.job)
        absent = {party for quit_ in QUITS[cell.group] for party in quit_.absent}
        assert absent <= set(cell.job.passives)
        assert ("alone" in cell.job.compare) == (cell.setting == OPEN)
        assert (cell.job.model.top["kind"] == "multi_head") == (cell.setting == MULTI_HEAD)
    halves = next(cell for cell in cells if cell.group == "CIFAR-100 halves")
    assert halves.tables["left"].num_rows == 15_000
    assert halves.tables["right"].column_names == ["image"]


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npz.*--data"):
        Images("none", "none.npz", {"kind": "cnn"}, 1, 32).tables(tmp_path)


def test_a_study_of_one_size_has_no_full_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="label-dp"):
        studies.run_study("label-dp", tmp_path, tmp_path / "out", 1, Progress(), full=True)
    assert LabelDPStudy().full is False
    assert "170 hours" in QuittingStudy(full=True).full_settings


def test_the_papers_numbers_would_hold_every_claim() -> None:
    assert set(verdicts_of(pretended("CIFAR-100 halves", PAPER), "CIFAR-100")) == {Verdict.HOLDS}


@pytest.mark.parametrize(
    ("setting", "values", "failing"),
    [
        (OPEN, (0.45, 0.46), {0, 1, 2}),  # nothing is lost by the quit, so dropout closes no gap
        ("p 0.1", (0.443, 0.28), {2}),
        ("p 0.1", (0.43, 0.323), {2}),  # it costs 0.02 before the quit
        ("p 0.05", (0.446, 0.34), {3}),
        (MULTI_HEAD, (0.39, 0.35), {4}),
        ("p 0.5", (0.40, 0.3255), {5}),
    ],
)
def test_one_result_that_is_otherwise_fails_its_claim(
    setting: str, values: tuple[float, float], failing: set[int]
) -> None:
    found = verdicts_of(pretended("CIFAR-100 halves", {**PAPER, setting: values}), "CIFAR-100")
    assert {place for place, verdict in enumerate(found) if verdict == Verdict.FAILS} == failing


@pytest.mark.parametrize("seeds", [0, 1])
def test_too_few_seeds_resolve_nothing(seeds: int) -> None:
    found = set(verdicts_of(pretended("Adult", PAPER, seeds=seeds), "Adult"))
    assert found == ({Verdict.NOT_RUN} if seeds == 0 else {Verdict.OPEN})


def test_the_share_of_the_gap_that_is_closed() -> None:
    runs = Runs(pretended("MNIST halves", {OPEN: (0.98, 0.73), "p 0.1": (0.977, 0.92)}, alone=0.95))
    closed = QuittingClaims(runs).closed("MNIST halves", rate_setting(0.1), HALVES)
    assert closed is not None
    assert closed.value == pytest.approx(0.19)
    (row,) = [line for line in QuittingPage(runs).text().splitlines() if line.startswith("| p 0.1 | 0.9")]
    assert " 86% " in row


def test_the_page_shows_every_setting_of_every_data_set(tmp_path: Path) -> None:
    found = [one for group in QUITS for one in pretended(group, PAPER)]
    page = page_of(QuittingStudy(), found, tmp_path / "whole")
    assert "not run" not in page
    for group, quits in QUITS.items():
        for quit_ in quits:
            part = page.partition(f"### {group}: {quit_.words}")[2].partition("###")[0]
            assert all(f"| {setting} |" in part for setting in (*SETTINGS, "standalone"))
    assert "| p 0.05 | 0.4458 | 0.3201 |" in page
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith(("|", "#", "!")))


def test_a_page_of_nothing_says_so(tmp_path: Path) -> None:
    page = page_of(QuittingStudy(), [], tmp_path / "empty")
    assert set(re.findall(r"\| \*\*([^*]+)\*\* \|", page)) == {"not run"}


def test_results_of_the_two_sizes_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tiny(QuittingStudy):
        def cells(self, data: Path, seeds: int):
            cell = Cell("Adult", OPEN, 1, adult(1, {}, {"kind": "mlp"}, ()))
            return iter([cell if self.full else replace(cell, setting="p 0.1")])

        def train(self, cell: Cell, work: Path, progress: Progress):
            return vars(pretended("Adult", PAPER, seeds=1)[0]) | {"setting": cell.setting}

    monkeypatch.setattr(studies, "STUDIES", {"tiny": Tiny})
    for full in (False, True):
        studies.run_study("tiny", tmp_path, tmp_path / "out", 1, Progress(), full=full)
        assert ("--full" in (tmp_path / "out" / "page.md").read_text().partition("## ")[0]) == full
    kept = {path.parent.name for path in (tmp_path / "out").glob("cells*/*.json")}
    assert kept == {"cells", "cells-full"}
