"""The model-completion study: its jobs, what it takes from a run, and a page whose verdicts follow from the results."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import studies.model_completion.attacks as completion
from cutlayer.attacks.catalogue import ActiveModelCompletion, ModelCompletion
from cutlayer.attacks.completion.base import CompletionTraining
from cutlayer.data.images import image_column
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.keys import Keys
from studies.claims import Verdict, any_holds
from studies.image_halves import LABEL, ImageHalves
from studies.model_completion.attacks import ALL, FEW, FROZEN, MORE, TUNED, embedding_size
from studies.model_completion.claims import (
    ACTIVE_BY_SGD,
    DROPOUT,
    LAMS,
    OTHER_DEFENCES,
    WITHOUT,
    CompletionClaims,
    alone,
    by_epoch,
    by_sgd,
    completed,
    dimip_setting,
    earlier,
    ended_after,
    with_sgd,
)
from studies.model_completion.normalised import BATCH_NORM, GROUP_NORM, NO_NORM
from studies.model_completion.study import ModelCompletionStudy
from studies.results import UNDEFENDED, Results, TrialResult
from studies.trials import Trial, run_trial, study_key
from tests.studies.written_pages import page_of

DATA = Path(__file__).parents[2].parent / "shared" / "data"
GROUP = "MNIST halves"
TINY = ImageHalves(
    "tiny", "", {"kind": "cnn", "channels": (4, 4), "width": 8}, 5, 16, optimizer={"kind": "adam", "lr": 1e-2}
)


def figures(frozen: float, tuned: float) -> dict[str, float]:
    return {FROZEN[0].name: frozen - 0.01, FROZEN[1].name: frozen, TUNED[0].name: tuned}


def training(model: float, attack: float, after: float = 0.7, **changes: Any) -> dict[str, Any]:
    """What one setting gives: model accuracy, and a completion on the frozen extractor."""
    honest = {FEW: figures(attack, max(attack, 0.52)), ALL: figures(attack + 0.1, 0.9)}
    malicious = {FEW: {FROZEN[0].name: attack + 0.01}, ALL: {FROZEN[0].name: attack + 0.1}}
    return {
        "model": model,
        "honest": honest,
        "malicious": malicious,
        "after": after,
        "norm": 5.0,
        "spread": 2.0,
    } | changes


def as_in_the_paper() -> dict[str, dict[str, Any]]:
    """Results by setting in which every claim of the paper holds."""
    controls = {
        "scratch": {FEW: {TUNED[0].name: 0.52}, MORE: {TUNED[0].name: 0.8}, ALL: {TUNED[0].name: 0.92}},
        "probe": 0.915,
        "references": {"left alone": 0.9},
    }
    undefended = training(0.97, 0.8, **controls)
    undefended["honest"] |= {MORE: figures(0.9, 0.91), ALL: figures(0.91, 0.93)}
    settings = {UNDEFENDED: undefended}
    settings |= {ended_after(setting, 3): training(0.5, 0.25) for setting in by_epoch()}
    settings |= {by_sgd(setting): training(0.4, 0.15, references={"left alone": 0.35}) for setting in with_sgd()}
    settings[ACTIVE_BY_SGD] = training(0.4, 0.15, malicious_accuracy=0.39)
    settings |= {dimip_setting(lam): training(0.97 - 0.02 * lam, 0.8 - 1.4 * lam if lam < 0.5 else 0.1) for lam in LAMS}
    settings |= {dimip_setting(lam, WITHOUT): training(0.96, 0.3) for lam in (0.5, 0.9)}
    settings[dimip_setting(0.5, DROPOUT)] = training(0.955, 0.1, after=0.75)
    settings |= {
        f"{defence} {strength}": training(0.97 - lost, attack)
        for defence in OTHER_DEFENCES
        for strength, lost, attack in (("weak", 0.01, 0.7), ("strong", 0.12, 0.11))
    }
    return settings


def made_up(settings: dict[str, dict[str, Any]], seeds: int = 3) -> list[TrialResult]:
    draw = np.random.default_rng(0)
    results = []
    for seed in range(1, seeds + 1):
        for setting, values in settings.items():
            measured = {key: value for key, value in values.items() if key != "model"}
            metric = values["model"] + float(draw.normal(0, 0.0005))
            results.append(TrialResult(GROUP, setting, seed, metric, 60.0, {}, {}, measured))
    return results


def verdicts_of(settings: dict[str, dict[str, Any]], seeds: int = 3) -> list[Verdict]:
    return [claim.verdict for claim in CompletionClaims(Results(made_up(settings, seeds)), [GROUP]).all()]


@pytest.fixture
def tiny() -> Trial:
    """400 images of 8 x 8 with two bright rows that tell their class, in two halves."""
    draw = np.random.default_rng(0)
    classes = np.repeat([0, 1, 2], 134)[:400]
    images = draw.integers(0, 120, (400, 8, 8))
    images += 60 * (np.arange(8)[None, :, None] // 2 == classes[:, None, None])
    images = images.astype(np.uint8)
    sides = {"left": images[:, :, :4], "right": images[:, :, 4:]}
    tables = {side: pa.table({"image": image_column(half, side)}) for side, half in sides.items()}
    tables["left"] = tables["left"].append_column(LABEL, pa.array(classes))
    job = TINY.job(1, {"party_dropout": {"rate": 0.1}}, compare=("alone",), keep="last")
    return Trial("tiny", UNDEFENDED, 1, job, tables)


@pytest.fixture
def few(tiny: Trial) -> Trial:
    """Every third of the images, for two epochs: for what is measured of a training, whatever it has learned."""
    job = replace(TINY, epochs=2).job(1, {"party_dropout": {"rate": 0.1}}, compare=("alone",), keep="last")
    rows = np.arange(0, 400, 3)
    return replace(tiny, job=job, tables={side: table.take(rows) for side, table in tiny.tables.items()})


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """One variant of each kind, and attacks that train for a moment."""
    variants = {variant.name: variant for variant in ModelCompletion.variants}
    monkeypatch.setattr(completion, "FROZEN", (variants["frozen MLP_sim, supervised"],))
    monkeypatch.setattr(completion, "TUNED", (variants["tuned MLP_sim, supervised"],))
    monkeypatch.setattr(completion, "MORE_PER_CLASS", 20)
    complete_by(monkeypatch, CompletionTraining(epochs=1, min_steps=20))


def complete_by(monkeypatch: pytest.MonkeyPatch, training: CompletionTraining) -> None:
    monkeypatch.setattr(completion, "ModelCompletion", lambda: ModelCompletion(training=training))
    monkeypatch.setattr(completion, "ActiveModelCompletion", lambda: ActiveModelCompletion(training=training))


@pytest.mark.usefixtures("hasty")
def test_a_training_gives_both_attacks_the_controls_and_the_embedding(
    tiny: Trial, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    complete_by(monkeypatch, CompletionTraining(epochs=4, min_steps=40))
    result = TrialResult(
        **json.loads(json.dumps(run_trial(ModelCompletionStudy(), tiny, tmp_path / "work", Progress())))
    )
    measured = result.measured
    assert measured["labels"] == {FEW: 42, MORE: 60, ALL: 340}
    assert {run: set(measured[run]) for run in ("honest", "malicious", "scratch")} == {
        "honest": {FEW, MORE, ALL},
        "malicious": {FEW, ALL},
        "scratch": {FEW, MORE, ALL},
    }
    assert set(measured["honest"][ALL]) == {"frozen MLP_sim, supervised", "tuned MLP_sim, supervised"}
    assert (completed("honest", FEW, "frozen")(result) or 0) > 0.5  # chance is a third
    assert 0 < (completed("scratch", FEW)(result) or 0) <= 1
    assert measured["probe"] > 0.5
    assert measured["malicious"] != measured["honest"]
    assert measured["spread"] > 0
    assert 0 < measured["after"] <= 1
    assert 0.3 < (alone(result) or 0) <= 1


@pytest.mark.usefixtures("hasty")
def test_without_controls_nothing_is_trained_from_scratch(few: Trial, tmp_path: Path) -> None:
    defended = replace(few, setting=dimip_setting(0.5))
    measured = run_trial(ModelCompletionStudy(), defended, tmp_path / "work", Progress())["measured"]
    assert "scratch" not in measured
    assert set(measured["honest"]) == {FEW, ALL}


@pytest.mark.parametrize("privacy", [{}, {"dimip": {"lam": 0.5}}, {"dimip": {"lam": 0.5, "random_labels": False}}])
def test_a_training_that_ends_early_is_the_beginning_of_a_longer_one(
    few: Trial, privacy: dict[str, Any], tmp_path: Path
) -> None:
    def losses(epochs: int) -> list[float]:
        job = replace(TINY, epochs=epochs).job(1, privacy, keep="last")
        options = Options(Keys(tmp_path / "keys", study_key(job)), tables=few.tables)
        work = execute(job, tmp_path / str(epochs), options, Progress())
        return [json.loads(line)["loss"] for line in (work.path / "history.jsonl").read_text().splitlines()]

    assert losses(1) == losses(2)[:1]


@pytest.mark.usefixtures("hasty")
def test_a_training_that_ended_early_is_completed_on_its_frozen_extractor_alone(few: Trial, tmp_path: Path) -> None:
    early = replace(few, setting=ended_after(UNDEFENDED, 3))
    measured = run_trial(ModelCompletionStudy(), early, tmp_path / "work", Progress())["measured"]
    assert set(measured) == {"references", "honest", "norm", "spread"}
    assert set(measured["honest"]) == {FEW}


@pytest.mark.usefixtures("hasty")
def test_by_sgd_both_attacks_complete_the_frozen_extractor(tiny: Trial, few: Trial, tmp_path: Path) -> None:
    named = replace(few, tables=tiny.tables, setting=ACTIVE_BY_SGD)
    measured = run_trial(ModelCompletionStudy(), named, tmp_path / "work", Progress())["measured"]
    assert set(measured) == {"references", "honest", "norm", "spread", "malicious", "malicious_accuracy"}
    assert set(measured["honest"]) == set(measured["malicious"]) == {FEW}
    assert measured["malicious"] != measured["honest"]


def test_the_active_attack_by_sgd_is_judged_where_it_was_run() -> None:
    settings = as_in_the_paper()
    texts = {claim.text: claim.verdict for claim in CompletionClaims(Results(made_up(settings)), [GROUP]).all()}
    (own,) = [text for text in texts if "by SGD, the active attack" in text]
    assert texts[own] == Verdict.HOLDS
    del settings[ACTIVE_BY_SGD]
    claims = CompletionClaims(Results(made_up(settings)), [GROUP]).all()
    assert {claim.text for claim in claims} == set(texts) - {own}


@pytest.mark.usefixtures("hasty")
def test_with_batch_normalisation_the_plain_attacker_is_measured_beside_the_standardised_one(
    tiny: Trial, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(completion, "SUPERVISED", completion.FROZEN)
    named = replace(tiny, group=BATCH_NORM.group)
    measured = run_trial(ModelCompletionStudy(), named, tmp_path / "work", Progress())["measured"]
    assert set(measured) == {"references", "honest", "norm", "spread", "after", "supervised", "plain"}
    (plain,), (same,) = (measured[run][FEW].values() for run in ("plain", "supervised"))
    assert measured["supervised"] == measured["honest"]
    assert plain != same
    assert 0.4 < plain <= 1  # chance is a third


def test_the_page_judges_batch_normalisation_by_its_own_trainings(tmp_path: Path) -> None:
    values = {
        UNDEFENDED: training(0.95, 0.8, references={"left alone": 0.85}, norm=10.0),
        dimip_setting(0.1): training(0.94, 0.11, norm=11.0),
        dimip_setting(0.5): training(0.85, 0.1, norm=30.0),
    }
    for own in values.values():
        own |= {"supervised": {FEW: {"a": 0.6}}, "plain": {FEW: {"a": 0.59}}}
    normalised = [replace(result, group=BATCH_NORM.group) for result in made_up(values)]
    page = page_of(ModelCompletionStudy(), [*made_up(as_in_the_paper()), *normalised], tmp_path / "both")
    own = [line.split(" | ") for line in page.splitlines() if line.startswith("| batch norm")]
    assert [line[-1].strip("* |") for line in own] == ["holds", "holds", "does not hold here", "holds"]
    by_row = [replace(result, group=GROUP_NORM.group) for result in made_up(values)]
    whole = page_of(ModelCompletionStudy(), [*made_up(as_in_the_paper()), *normalised, *by_row], tmp_path / "rows")
    compared = [line for line in whole.splitlines() if "from batch norm than from group norm" in line]
    assert len(compared) == len(values)
    assert all("| 0.000 ± 0.000 more |" in line for line in compared)
    without = [replace(result, group=NO_NORM.group) for result in made_up(values)]
    last = page_of(ModelCompletionStudy(), [*normalised, *without], tmp_path / "without")
    compared = [line for line in last.splitlines() if "from batch norm than from no normalisation" in line]
    assert len(compared) == len(values)
    alone_there = page_of(ModelCompletionStudy(), made_up(as_in_the_paper()), tmp_path / "one")
    assert BATCH_NORM.group not in alone_there


def test_the_size_of_an_embedding() -> None:
    rows = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 4.0], [0.0, -4.0]])
    assert embedding_size(rows) == {"norm": 3.5, "spread": pytest.approx(12.5**0.5)}


@pytest.mark.real_data
def test_every_job_is_valid_and_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageHalves, "tables", lambda halves, data: {})  # another test reads images
    trials = list(ModelCompletionStudy().trials(DATA, 2))
    assert len({trial.slug for trial in trials}) == len(trials)
    assert [trial.seed for trial in trials] == sorted(trial.seed for trial in trials)
    of = {group: {trial.setting for trial in trials if trial.group == group} for group in (GROUP, "CIFAR-10 halves")}
    early = {
        group: {ended_after(s, epochs) for s in by_epoch() for epochs in earlier(n)}
        for group, n in zip(of, (5, 12), strict=True)
    }
    settings = of[GROUP] - early[GROUP]
    assert settings == of["CIFAR-10 halves"] - early["CIFAR-10 halves"]
    assert all(early[group] < of[group] for group in of)
    assert {*map(by_sgd, with_sgd()), ACTIVE_BY_SGD} < settings
    settings -= {*map(by_sgd, with_sgd()), ACTIVE_BY_SGD}
    assert set(map(dimip_setting, LAMS)) | {UNDEFENDED, dimip_setting(0.5, DROPOUT)} < settings
    assert all(any(name.startswith(defence) for name in settings) for defence in OTHER_DEFENCES)
    for trial in trials[: len(trials) // 2]:
        check_job(trial.job)
        assert not trial.job.keeps_best
        assert ("alone" in trial.job.compare) == (trial.setting in (UNDEFENDED, by_sgd(UNDEFENDED), ACTIVE_BY_SGD))
        assert (trial.job.train.optimizer.kind == "sgd") == ("by SGD" in trial.setting)
        assert bool(trial.job.parties["left"].protections) == (not trial.setting.startswith(UNDEFENDED))


def test_results_as_in_the_paper_hold_every_claim() -> None:
    assert set(verdicts_of(as_in_the_paper())) == {Verdict.HOLDS}


@pytest.mark.parametrize(
    ("setting", "values", "failing"),
    [
        (dimip_setting(0.5, DROPOUT), training(0.955, 0.1, after=0.65), "party dropout"),
        (dimip_setting(0.9, WITHOUT), training(0.96, 0.05), "L_R makes"),
        ("ppdl strong", training(0.93, 0.11), "every other defence"),
    ],
)
def test_a_single_different_result_fails_its_claim(setting: str, values: dict[str, Any], failing: str) -> None:
    claims = CompletionClaims(Results(made_up({**as_in_the_paper(), setting: values})), [GROUP]).all()
    (failed,) = [claim.text for claim in claims if claim.verdict == Verdict.FAILS]
    assert failing in failed


def test_chance_that_costs_the_model_too_much_or_leaves_the_active_party_nothing_is_no_protection() -> None:
    dear = {
        name: {**own, "model": 0.88} if name.startswith("dimip") else own for name, own in as_in_the_paper().items()
    }
    claims = CompletionClaims(Results(made_up(dear)), [GROUP]).all()
    failed = [claim.text for claim in claims if claim.verdict == Verdict.FAILS]
    assert [("passive attack" in text, "active attack:" in text, "better than" in text) for text in failed[:3]] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_an_undefended_attack_that_is_no_better_than_scratch_fails_its_claims() -> None:
    weak = as_in_the_paper()
    weak[UNDEFENDED]["honest"] = {FEW: figures(0.4, 0.45), MORE: figures(0.7, 0.8), ALL: figures(0.7, 0.8)}
    assert [verdict == Verdict.FAILS for verdict in verdicts_of(weak)[:3]] == [True] * 3


@pytest.mark.parametrize("seeds", [0, 1])
def test_too_few_seeds_resolve_nothing(seeds: int) -> None:
    assert set(verdicts_of(as_in_the_paper(), seeds)) == ({Verdict.NOT_RUN} if seeds == 0 else {Verdict.OPEN})


def test_a_claim_of_alternatives_holds_where_any_does() -> None:
    holds, fails, unresolved, absent = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN, Verdict.NOT_RUN
    assert any_holds([fails, holds, absent]) == holds
    assert any_holds([fails, unresolved]) == unresolved
    assert any_holds([fails, absent]) == absent
    assert any_holds([fails, fails]) == fails
    assert any_holds([]) == absent


def test_the_best_variant_counts() -> None:
    result = TrialResult(GROUP, UNDEFENDED, 1, 0.9, 1.0, {}, {}, training(0.9, 0.4))
    assert completed("honest", FEW)(result) == 0.52
    assert completed("honest", FEW, "frozen")(result) == 0.4
    assert completed("scratch", FEW)(result) is None


def test_the_page_shows_every_setting(tmp_path: Path) -> None:
    page = page_of(ModelCompletionStudy(), made_up(as_in_the_paper()), tmp_path / "whole")
    assert "not run" not in page
    named = [s for s in as_in_the_paper() if ", after " not in s and s != ACTIVE_BY_SGD]
    assert [setting for setting in as_in_the_paper() if f"| {setting} |" in page] == named
    assert re.search(r"gets 0\.160 ± 0\.\d+, and 0\.150 .* model 0\.390 .* and 0\.400", " ".join(page.split()))
    assert page.index("alone, by SGD: 0.350") < page.index(f"| {by_sgd(dimip_setting(0.1))} | 0.400")
    assert re.search(r"\| 1 \| – \| – \| – \| – \| – \| – \|\n\| 3 \| 0\.250", page)
    assert re.search(r"\n\| 5 \| 0\.800 ± 0\.\d+ \| 0\.100 .* \| 0\.970 ", page)
    assert "| linear probe |" in page
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith(("|", "#", "!", "<")))
