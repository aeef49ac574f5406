"""Further parts of the model-completion study: scales of noise, and CIFAR-100."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cutlayer.jobs.options import Progress
from studies.claims import Verdict
from studies.model_completion.attacks import FEW, FROZEN, TUNED
from studies.model_completion.claims import CompletionClaims, dimip_setting, scaled
from studies.model_completion.hundred import HUNDRED
from studies.model_completion.study import ModelCompletionStudy
from studies.results import UNDEFENDED, Results, TrialResult
from studies.trials import Trial, run_trial
from tests.studies.test_completion import GROUP, as_in_the_paper, few, hasty, made_up, tiny, training
from tests.studies.written_pages import page_of

__all__ = ["few", "hasty", "tiny"]  # fixtures
NOISY = "ppdl theta 0.01, scale 0.001"


def scales(values: dict[str, Any]) -> list[TrialResult]:
    return made_up({UNDEFENDED: as_in_the_paper()[UNDEFENDED], "ppdl theta 0.01": training(0.96, 0.7), NOISY: values})


@pytest.mark.parametrize(
    ("model", "attack", "verdict", "words"),
    [
        (0.965, 0.11, Verdict.HOLDS, "`ppdl` hides at some of them"),
        (0.965, 0.5, Verdict.FAILS, "`ppdl` hides at none of them"),
        (0.91, 0.11, Verdict.FAILS, "`ppdl` hides at none of them"),
    ],
)
def test_a_scale_of_noise_hides_where_it_keeps_what_the_party_adds(
    model: float, attack: float, verdict: Verdict, words: str, tmp_path: Path
) -> None:
    results = scales(training(model, attack))
    assert {name: claim.verdict for name, claim in CompletionClaims(Results(results)).scales(GROUP).items()} == {
        "ppdl": verdict
    }
    assert words in " ".join(page_of(ModelCompletionStudy(), results, tmp_path / "page").split())


def test_scales_are_judged_where_they_were_run() -> None:
    assert scaled(NOISY)
    assert not scaled("ppdl theta 0.01")
    assert not scaled(dimip_setting(0.5, "without L_R"))
    assert not CompletionClaims(Results(made_up(as_in_the_paper()))).scales(GROUP)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("setting", [UNDEFENDED, dimip_setting(0.03)])
def test_on_cifar_100_the_undefended_training_has_the_control(setting: str, few: Trial, tmp_path: Path) -> None:
    named = replace(few, group=HUNDRED.group, setting=setting)
    measured = run_trial(ModelCompletionStudy(), named, tmp_path / "work", Progress())["measured"]
    control = {"scratch"} if setting == UNDEFENDED else set()
    assert set(measured) == {"references", "honest", "norm", "spread", "after"} | control
    assert all(set(measured[run]) == {FEW} for run in control | {"honest"})


def hundred(weak: tuple[float, float], strong: tuple[float, float], tmp_path: Path) -> list[str]:
    """Verdicts of the section, of model accuracy and attack at both weights; undefended they are 0.3 and 0.2."""
    undefended = training(0.3, 0.2, references={"left alone": 0.2}, scratch={FEW: {TUNED[0].name: 0.05}})
    undefended["honest"] = {FEW: {FROZEN[0].name: 0.2}}
    settings = {UNDEFENDED: undefended, dimip_setting(0.03): training(*weak), dimip_setting(0.05): training(*strong)}
    results = [replace(result, group=HUNDRED.group) for result in made_up(settings)]
    page = page_of(ModelCompletionStudy(), results, tmp_path)
    return [line.split(" | ")[-1].strip("* |") for line in page.splitlines() if line.startswith("| CIFAR-100")]


def test_cifar_100_is_judged_by_shares_of_what_the_party_adds(tmp_path: Path) -> None:
    holds, fails = "holds", "does not hold here"
    assert hundred((0.29, 0.1), (0.28, 0.03), tmp_path / "a") == [holds] * 5
    assert hundred((0.29, 0.15), (0.23, 0.03), tmp_path / "b") == [holds, holds, fails, fails, fails]
