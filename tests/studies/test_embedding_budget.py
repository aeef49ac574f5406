"""The embedding-budget study: its jobs and what they spend, what it takes from a run, and verdicts from the results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cutlayer.config.phases import Phase
from cutlayer.consent import allowed
from cutlayer.jobs.check import check_job
from cutlayer.jobs.options import Progress
from cutlayer.training.run_ledger import ledger_of
from studies.__main__ import main
from studies.claims import Verdict
from studies.datasets import ADULT_TABLE, with_epochs
from studies.embedding_budget.claims import (
    DELTA,
    FITS,
    GOAL,
    GROUPS,
    METHODS,
    PAPER_FORM,
    PER_EPOCH,
    TOTALS,
    WIDTHS,
    BudgetClaims,
    auc_bound,
    budgeted,
    noiseless,
    unprotected,
    widths,
)
from studies.embedding_budget.page import budget_page
from studies.embedding_budget.study import EmbeddingBudgetStudy, spent
from studies.image_halves import ImageHalves
from studies.results import Results, TrialResult, metric
from studies.trials import Trial, run_trial
from tests.studies.written_pages import page_of

(PCA,) = [fit for fit in FITS if fit.fit["kind"] == "pca"]
ALONE, OPEN = 0.64, 0.90
SHARES: Mapping[str, tuple[float, ...]] = {
    PCA.name: (0.2, 0.65, 0.8, 0.9),
    "once, gradients": (0.25, 0.7, 0.85, 0.95),
    PER_EPOCH: (0.05, 0.2, 0.4, 0.6),
    PAPER_FORM: (0.04, 0.1, 0.3, 0.5),
}
Changes = Mapping[tuple[str, str], float]
"""Shares recovered by group and setting, in place of `share_of`."""


def tiny_images() -> dict[str, pa.Table]:
    """How bright the right half is says which class; the left half is noise."""
    draw = np.random.default_rng(0)
    classes = np.arange(240) % 3
    right = draw.integers(0, 60, (240, 8, 4)) + 90 * classes[:, None, None]
    left = draw.integers(0, 60, (240, 8, 4))
    images = [pa.FixedShapeTensorArray.from_numpy_ndarray(half.astype(np.uint8)) for half in (left, right)]
    return {"left": pa.table({"image": images[0], "class": classes}), "right": pa.table({"image": images[1]})}


@pytest.fixture
def trials() -> list[Trial]:
    """All of one seed, over images that need no file."""
    return list(all_trials())


def one_epoch(trials: list[Trial], group: str, setting: str, tmp_path: Path) -> TrialResult:
    """A trial of the study run for an epoch on few rows."""
    (trial,) = [trial for trial in trials if (trial.group, trial.setting) == (group, setting)]
    rows = parquet.read_table(ADULT_TABLE).slice(0, 700)
    tables = trial.tables or dict.fromkeys(trial.job.parties, rows)
    trial = Trial(group, setting, 1, with_epochs(trial.job, 1), tables)
    result = run_trial(EmbeddingBudgetStudy(), trial, tmp_path / "work", Progress())
    return TrialResult(**json.loads(json.dumps(result)))


def share_of(setting: str) -> float:
    """What is recovered where all goes as hoped: more with a larger total, less at a wider cut."""
    method, _, rest = setting.rpartition(", width ")
    wide = WIDTHS.index(int(rest)) * 0.05
    if method == "unprotected":
        return 0.9 + wide / 1.5
    if method.endswith("without noise"):
        return 0.9
    name, _, total = method.rpartition(", epsilon ")
    return SHARES[name][TOTALS.index(float(total))] * (1 - wide)


@cache
def accounted(group: str, setting: str) -> dict[str, Any]:
    """What the ledger of that trial's job says."""
    (trial,) = [trial for trial in all_trials() if (trial.group, trial.setting) == (group, setting)]
    with allowed("studies", "cutlayer_published"):
        return spent(ledger_of(trial.job))


@cache
def all_trials() -> tuple[Trial, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageHalves, "tables", lambda self, data: tiny_images())
        return tuple(EmbeddingBudgetStudy().trials(Path(), 1))


def made_up(changes: Changes | None = None, seeds: int = 3, spread: float = 0.01) -> list[TrialResult]:
    """Results of all trainings, with a shift of each seed's that pairing takes away."""
    results = []
    for seed in range(1, seeds + 1):
        shift = (seed - 2) * spread
        for trial in all_trials():
            share = (changes or {}).get((trial.group, trial.setting), share_of(trial.setting))
            measured = dict(accounted(trial.group, trial.setting))
            if "alone" in trial.job.compare:
                measured["alone"] = ALONE + shift
            value = ALONE + share * (OPEN - ALONE) + shift
            results.append(TrialResult(trial.group, trial.setting, seed, value, 9.0, {}, {}, measured))
    return results


def judged(group: str, method: str, total: float = GOAL) -> tuple[str, str]:
    return group, budgeted(method, total, GROUPS[group].width)


def verdicts_of(results: list[TrialResult], group: str) -> list[Verdict]:
    return [claim.verdict for claim in BudgetClaims(Results(results)).all() if claim.text.startswith(group)]


def test_every_job_is_valid_named_once_and_spends_its_total(
    trials: list[Trial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageHalves, "tables", lambda self, data: {})
    pca = {group: sum(width <= about.columns for width in WIDTHS) for group, about in GROUPS.items()}
    assert pca == {"Adult": 3, "MNIST halves": 4}
    others = len(METHODS) - 1
    wanted = sum(4 * len(FITS) + own + len(TOTALS) * (4 * others + own) for own in pca.values())
    assert wanted == len(trials) == 147
    twice = list(EmbeddingBudgetStudy().trials(tmp_path, 2))
    assert len({trial.slug for trial in twice}) == len(twice) == 2 * len(trials)
    assert [trial.seed for trial in twice] == sorted(trial.seed for trial in twice)
    for trial in trials:
        if trial.setting.endswith((" 1", " 64")):  # widths between them change no other part of a job
            with allowed("studies", "cutlayer_published"):
                check_job(trial.job)
        account = accounted(trial.group, trial.setting)
        method, _, total = trial.setting.rpartition(", width ")[0].rpartition(", epsilon ")
        assert ("alone" in trial.job.compare) == (trial.setting == unprotected(1))
        assert all(party.audit.every == "never" for party in trial.job.parties.values())
        once = any(trial.setting.startswith(fit.name) for fit in FITS)
        assert all((Phase.RELEASE in trial.job.phases_of(party)) == once for party in trial.job.passives)
        if method == PAPER_FORM:
            assert f"claim epsilon {total} at delta 0.01001 for the run's" in account["why"]
        elif method:
            assert account["epsilon"] == pytest.approx(float(total), rel=1e-9)
            assert account["releases"] == (1 if once else GROUPS[trial.group].epochs)
            assert account["auc_one"] == pytest.approx(auc_bound(float(total), account["releases"]), abs=1e-12)
            assert account["auc_all"] == pytest.approx(auc_bound(float(total)), abs=1e-12)
        else:
            assert account == {}


def test_the_cut_has_the_named_width_at_every_passive_party(trials: list[Trial]) -> None:
    for trial in trials:
        bottoms = [trial.job.model.bottom_of(party) for party in trial.job.passives]
        width = int(trial.setting.rpartition(" ")[2])
        assert {bottom.get("width") or bottom["hidden"][-1] for bottom in bottoms} == {width}
        jobs = [other.job for other in trials if other.group == trial.group]
        assert len({str(job.model.bottom_of(job.active)) for job in jobs}) == 1
        options = [trial.job.parties[party].privacy for party in trial.job.passives]
        assert all(option == options[0] for option in options)


def test_fewest_columns_are_those_of_the_data(trials: list[Trial]) -> None:
    """A category has two codes of its own beside its values: missing and unknown."""
    table = parquet.read_table(ADULT_TABLE)
    job = next(trial.job for trial in trials if trial.group == "Adult")
    totals = []
    for party in job.passives:
        columns = [table.column(name) for name in job.parties[party].features.include]
        text = [column for column in columns if pa.types.is_string(column.type)]
        values = sum(len(column.drop_null().unique()) + 2 for column in text)
        totals.append(values + len(columns) - len(text))
    assert min(totals) == GROUPS["Adult"].columns


def test_a_training_gives_the_active_party_alone_and_what_was_spent(trials: list[Trial], tmp_path: Path) -> None:
    bare = one_epoch(trials, "Adult", unprotected(1), tmp_path)
    assert set(bare.measured) == {"alone"}
    assert 0.4 < bare.measured["alone"] < 1
    once = one_epoch(trials, "Adult", budgeted(PCA.name, 8.0, 4), tmp_path)
    assert once.measured["condition"] == "conditional on the bottom model and the encoding"
    assert (once.measured["releases"], round(once.measured["epsilon"], 6)) == (1, 8.0)
    paper = one_epoch(trials, "Adult", budgeted(PAPER_FORM, 8.0, 4), tmp_path)
    assert set(paper.measured) == {"condition", "why"}
    assert "scaled by a factor" in paper.measured["why"]


def test_principal_components_of_images_are_released_once(trials: list[Trial], tmp_path: Path) -> None:
    without = one_epoch(trials, "MNIST halves", noiseless(PCA, 4), tmp_path)
    assert 0 < without.metric <= 1
    assert without.measured == {}
    assert one_epoch(trials, "MNIST halves", budgeted(PER_EPOCH, 8.0, 4), tmp_path).measured["releases"] == 1


def test_where_all_goes_as_hoped_every_claim_holds() -> None:
    results = made_up()
    for group in GROUPS:
        assert set(verdicts_of(results, group)) == {Verdict.HOLDS}


@pytest.mark.parametrize("group", list(GROUPS))
@pytest.mark.parametrize(
    ("method", "total", "share", "failing"),
    [
        (PCA.name, 8.0, 0.45, {0, 3}),  # less than at the widest cut
        (PCA.name, 8.0, 0.15, {0, 1, 3}),  # and less than a release per epoch
        (PER_EPOCH, 32.0, 0.85, {1}),
        (PAPER_FORM, 2.0, 0.5, {2}),
        (PER_EPOCH, 8.0, 0.1, {4}),
        (PAPER_FORM, 8.0, 0.05, {5}),
    ],
)
def test_one_result_that_is_otherwise_fails_its_claims(
    group: str, method: str, total: float, share: float, failing: set[int]
) -> None:
    claims = BudgetClaims(Results(made_up({judged(group, method, total): share}))).all()
    named = [claim for claim in claims if claim.text.startswith(group)]
    order = ("recovers", "beats a release", "beats the paper", f"{PCA.name}` reaches", "release per epoch reaches")
    words = (*order, "paper's form reaches")
    parts = [[claim for claim in named if word in claim.text] for word in words]
    failed = [{claim.text for claim in own if claim.verdict == Verdict.FAILS} for own in parts]
    assert {index for index, texts in enumerate(failed) if texts} == failing
    beaten = [text for text in failed[1] | failed[2] if PCA.name in text]
    assert all(f"at total epsilon {total:g}," in text for text in beaten)


def test_a_ledger_that_says_otherwise_fails_the_claim_about_it() -> None:
    results = made_up()
    wrong = judged("Adult", PER_EPOCH, 32.0)
    for result in results:
        if (result.group, result.setting) == wrong:
            result.measured["epsilon"] = 101.0  # type: ignore[index]
    verdicts = {claim.text: claim.verdict for claim in BudgetClaims(Results(results)).all() if "ledger" in claim.text}
    assert [verdict for text, verdict in verdicts.items() if text.startswith("Adult")] == [Verdict.FAILS]
    assert [verdict for text, verdict in verdicts.items() if not text.startswith("Adult")] == [Verdict.HOLDS]


@pytest.mark.parametrize("seeds", [0, 1])
def test_too_few_seeds_resolve_nothing(seeds: int) -> None:
    wanted = {Verdict.NOT_RUN} if seeds == 0 else {Verdict.OPEN}
    assert set(verdicts_of(made_up(seeds=seeds), "Adult")) == wanted


def test_no_claim_counts_as_a_papers() -> None:
    assert not any(claim.published for claim in BudgetClaims(Results(made_up())).all())


def test_shares_are_paired_by_seed_and_add_up_to_one() -> None:
    """Seeds differ by 0.1; the best width is not the one that claims are judged at."""
    changes = {("Adult", unprotected(16)): 1.0, judged("Adult", PCA.name): 0.3}
    claims = BudgetClaims(Results(made_up(changes, spread=0.1)))
    assert claims.best_width("Adult") == 16
    recovered = claims.recovered("Adult", judged("Adult", PCA.name)[1])
    assert recovered is not None
    assert recovered.value == pytest.approx(0.3)
    assert recovered.half_width == pytest.approx(0.0, abs=1e-9)
    alone, added = claims.alone("Adult"), claims.added("Adult")
    assert alone is not None
    assert alone.value == pytest.approx(ALONE)
    assert added is not None
    assert added.value == pytest.approx(OPEN - ALONE)
    silent, noisy = noiseless(PCA, 4), judged("Adult", PCA.name)[1]
    parts = [claims.lost("Adult", unprotected(16), silent), claims.lost("Adult", silent, noisy)]
    assert [round(part.value, 9) for part in parts if part] == [0.1, 0.6]


@pytest.mark.parametrize(("share", "cause"), [(0.95, "The noise"), (0.45, "The fit")])
def test_the_page_names_what_costs_more(share: float, cause: str) -> None:
    changes = {("Adult", noiseless(PCA, 4)): share, judged("Adult", PCA.name): 0.3}
    text = budget_page(Results(made_up({**changes, ("Adult", unprotected(64)): 1.0}))).markdown()
    assert f"Adult, `{PCA.name}`: 30% ± 0% is recovered." in text
    assert f"The fit loses {1 - share:.0%} ± 0%, the noise {share - 0.3:.0%} ± 0%. {cause} costs more." in text


def test_the_page_leaves_open_what_seeds_disagree_on() -> None:
    changed = made_up({("Adult", noiseless(PCA, 4)): 0.66, judged("Adult", PCA.name): 0.3})
    swing = {1: 0.2, 2: -0.2, 3: 0.0}
    results = [
        replace(result, metric=result.metric + swing[result.seed])
        if (result.group, result.setting) == ("Adult", noiseless(PCA, 4))
        else result
        for result in changed
    ]
    sentence = next(
        line for line in budget_page(Results(results)).markdown().splitlines() if f"Adult, `{PCA.name}`: " in line
    )
    assert sentence.endswith("Which of them costs more is not resolved.")


def test_the_page_shows_every_method_total_and_width(tmp_path: Path) -> None:
    page = page_of(EmbeddingBudgetStudy(), made_up(), tmp_path / "whole")
    assert "not run" not in page
    for group, about in GROUPS.items():
        part = page.partition(f"## {group}\n")[2].partition("\n## ")[0]
        runs = Results(made_up())
        for total in TOTALS:
            for method in METHODS:
                (row, shares) = [line for line in part.splitlines() if line.startswith(f"| {total:g} | {method} |")]
                for width in WIDTHS:
                    place = (group, budgeted(method, total, width))
                    trial = row.split(" | ")[1 + WIDTHS.index(width) + 1]
                    assert trial == (str(runs.mean(place, metric)) if width in widths(group, method) else "left out")
                ledger = "| – | none | none | no formal guarantee |"
                if method != PAPER_FORM:
                    each = 1 if method != PER_EPOCH else about.epochs
                    bounds = f"{auc_bound(total, each):.3f} | {auc_bound(total):.3f}"
                    ledger = f"| {each} | {bounds} | conditional on the bottom model and the encoding |"
                assert row.endswith(ledger)
                assert "formal" not in shares
    assert f"`{PCA.name}` at width 64, since a passive party has 27 columns" in " ".join(page.split())
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith(("|", "#", "!", "<")))


def test_a_page_of_nothing_says_so(tmp_path: Path) -> None:
    page = page_of(EmbeddingBudgetStudy(), [], tmp_path / "empty")
    assert set(re.findall(r"\| \*\*([^*]+)\*\* \|", page)) == {"not run"}
    assert all(f"{group}, `{fit.name}`: not run." in page for group in GROUPS for fit in FITS)


def test_bounds_are_those_of_the_exact_account() -> None:
    assert [round(auc_bound(total, n), 3) for total, n in ((8, 1), (8, 20), (32, 1), (32, 20))] == [
        0.881,
        0.604,
        1.0,
        0.780,
    ]
    assert DELTA == 1e-5


def test_the_command_knows_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(EmbeddingBudgetStudy, "trials", lambda self, data, seeds: iter([]))
    arguments = ["embedding-budget", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--seeds", "3"]
    assert main(arguments) == 0
    assert "# Private embeddings at a total budget" in capsys.readouterr().out
