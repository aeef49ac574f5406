"""The feature-privacy study: its jobs, what it takes from a run, and a page whose verdicts follow from the results."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
import torch

from cutlayer.accounting import ReleasePlan
from cutlayer.channel.transcript import Step
from cutlayer.consent import allowed
from cutlayer.data.images import image_column
from cutlayer.errors import DataError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.options import Progress
from cutlayer.results.features import FeatureResult
from cutlayer_published.embedding.adjust import AdjustConfig
from cutlayer_published.embedding.protection import AdaptiveConfig
from studies.claims import Verdict
from studies.datasets import with_epochs
from studies.feature_privacy.claims import (
    FIRST,
    LAST,
    MEAN,
    ONLY,
    TOGETHER,
    feature_privacy_claims,
    inversion,
    overhead,
)
from studies.feature_privacy.diagnostics import class_share, cluster_values, distance_values
from studies.feature_privacy.settings import (
    ADJUST,
    CLIP,
    DATA_SETS,
    DELTA,
    EPOCHS,
    FULL,
    INVERTED,
    LARGE,
    LARGE_CLIP,
    LARGE_RESCALE,
    LARGE_VANILLA,
    MEMBERS,
    ONCE,
    OWNER,
    PER_RUN,
    RESCALE,
    SETTINGS,
    SHADOWED,
    STOPPED,
    UNPROTECTED,
    VANILLA,
    read_halves,
)
from studies.feature_privacy.study import FeaturePrivacyStudy, attack_results
from studies.gallery import Gallery
from studies.image_halves import LABEL
from studies.results import Results, TrialResult
from studies.trials import Trial
from tests.studies.written_pages import page_of

DATA = Path(__file__).parents[2].parent / "shared" / "data"
GROUPS = [data_set.group for data_set in DATA_SETS]
ACCURACY = {UNPROTECTED: 0.98, VANILLA: 0.9, RESCALE: 0.95, ADJUST: 0.925, FULL: 0.965, PER_RUN: 0.97, ONCE: 0.975}
ACCURACY |= {LARGE_VANILLA: 0.8, LARGE_RESCALE: 0.85, MEMBERS: 0.9, STOPPED: 0.93}
ONE_RELEASE = {UNPROTECTED: 0.6, VANILLA: 0.05, FULL: 0.04, PER_RUN: 0.03}
ALL_RELEASES = {UNPROTECTED: 0.61, VANILLA: 0.3, FULL: 0.28, PER_RUN: 0.25}
DIAGNOSTICS = {"ks": 0.02, "largest": 0.6, "scaled_largest": 0.97, "beyond": 0.0}
PURITY = {f"{when}_{key}": value for when in ("first", "last") for key, value in (("purity", 0.6), ("chance", 0.3))}
LEDGER = {
    "epsilon": 92.1,
    "delta": DELTA,
    "auc_bound": 1.0,
    "releases": 20,
    "condition": "c",
    "why": "",
    "strict": 120.0,
}


def tiny_tables(group: str) -> dict[str, pa.Table]:
    """120 rows, with the parties and columns of a data set's job."""
    data_set = next(data_set for data_set in DATA_SETS if data_set.group == group)
    draw = np.random.default_rng(0)
    labels = draw.integers(0, data_set.classes, 120)
    tables = {OWNER: pa.table({LABEL: labels})}
    for party in data_set.parties:
        if "halves" in group:
            images = (25 * labels[:, None, None] + draw.integers(0, 25, (120, 12, 6))).astype(np.uint8)
            tables[party] = pa.table({"image": image_column(images, party)})
        else:
            x = draw.normal(size=(120, 20)) + labels[:, None]
            tables[party] = pa.table({f"x{index}": x[:, index] for index in range(20)})
    return tables


def trained(group: str, setting: str, work: Path) -> TrialResult:
    """A job with two epochs after its release, attacked by inversion alone: shadows take as long as all other tests."""
    data_set = next(data_set for data_set in DATA_SETS if data_set.group == group)
    whole = data_set.job(setting, 1)
    job = with_epochs(whole, whole.train.warmup_epochs + 2)
    for name in data_set.parties:
        audit = job.parties[name].audit.model_copy(update={"attacks": ("inversion",)})
        job.parties[name] = job.parties[name].model_copy(update={"audit": audit})
    trial = Trial(group, setting, 1, job, tiny_tables(group))
    return TrialResult(**json.loads(json.dumps(FeaturePrivacyStudy().train(trial, work, Progress()))))


def measured(setting: str, accuracy: float, change: dict[str, Any], shift: float) -> dict[str, Any]:
    """What a training of one setting gave, alike at both parties."""
    attacks: dict[str, dict[str, dict[str, float]]] = {}
    if setting in ONE_RELEASE:
        attacks[f"inversion, {LAST}"] = {"value": ONE_RELEASE[setting] + shift, "baseline": 0.0}
        attacks[f"inversion, {MEAN}"] = {"value": ALL_RELEASES[setting] + shift, "baseline": 0.0}
    if setting == ONCE:
        attacks[f"inversion, {ONLY}"] = {"value": 0.25 + shift, "baseline": 0.0}
    if setting in SHADOWED:
        right = 0.62 if setting == UNPROTECTED else 0.52
        attacks["membership"] = {"value": right, "accuracy": right + shift, "tpr_at_1_percent_fpr": 0.01}
    inside = {} if setting == UNPROTECTED else {**DIAGNOSTICS, "class_share": 0.5 + 0.2 * (setting in (ADJUST, FULL))}
    inside = {key: value + shift for key, value in inside.items()}
    if setting != ONCE:
        inside |= {**PURITY, "first_kept_purity": 0.7 + shift, "last_kept_purity": 0.7 + shift, "last_kept": 0.9}
    result = {"attacks": attacks, "diagnostics": inside}
    for part, values in change.items():
        result[part] = {**result[part], **values}
    return {
        "accuracy": accuracy,
        "references": {"all columns in one place": 0.985, "chance": 0.1} if setting == UNPROTECTED else {},
        "ledger": {**LEDGER, "epsilon": None}
        if setting in (RESCALE, FULL, LARGE_RESCALE)
        else {}
        if setting == UNPROTECTED
        else LEDGER,
        "epoch_seconds": 1.0 + 0.05 * (setting != UNPROTECTED) + 0.1 * (setting == RESCALE),
        "attacks": {name: dict.fromkeys(("a", "b"), figures) for name, figures in result["attacks"].items()},
        "skipped": [],
        "pictures": {},
        "diagnostics": dict.fromkeys(("a", "b"), result["diagnostics"]),
    }


def made_up(
    group: str,
    accuracy: dict[str, float] = ACCURACY,
    changes: dict[str, dict[str, Any]] | None = None,
    seeds: int = 3,
) -> list[TrialResult]:
    """Results of one data set that would hold every claim, but for the changes."""
    draw = np.random.default_rng(0)
    results = []
    for seed in range(1, seeds + 1):
        shift = float(draw.normal(0, 0.002))
        for setting in settings_of(group):
            result = measured(setting, accuracy[setting] + shift, (changes or {}).get(setting, {}), shift)
            results.append(TrialResult(group, setting, seed, accuracy[setting], 60.0, {}, {}, result))
    return results


def settings_of(group: str) -> tuple[str, ...]:
    return next(data_set.settings for data_set in DATA_SETS if data_set.group == group)


def verdicts_of(results: list[TrialResult], group: str) -> list[Verdict]:
    return [claim.verdict for claim in feature_privacy_claims(Results(results), group)]


def test_a_protected_training_gives_attacks_account_and_diagnostics(tmp_path: Path) -> None:
    result = trained("BBCSport", FULL, tmp_path / "work")
    assert set(result.measured["attacks"]) == {f"inversion, {release}" for release in (LAST, MEAN, FIRST)}
    assert all(set(parties) == {"first", "second"} for parties in result.measured["attacks"].values())
    assert result.measured["ledger"]["epsilon"] is None
    assert "estimated from other rows" in result.measured["ledger"]["why"]
    for figures in result.measured["diagnostics"].values():
        assert 0 < figures["ks"] < 1
        assert 0 < figures["largest"] <= 1 + 1e-6
        assert figures["first_purity"] >= figures["first_chance"] - 0.1
        assert 0 <= figures["class_share"] <= 1
    assert result.measured["epoch_seconds"] > 0
    assert result.measured["pictures"] == {}


def test_images_that_are_released_once_are_shown_as_rebuilt(tmp_path: Path) -> None:
    result = trained("MNIST halves", ONCE, tmp_path / "work")
    assert set(result.measured["attacks"]) == {f"inversion, {ONLY}"}
    assert inversion(LAST)(result) == inversion(ONLY)(result) == inversion(MEAN)(result)
    assert (result.measured["ledger"]["releases"], result.measured["ledger"]["condition"]) == (
        1,
        "conditional on the bottom model and the encoding",
    )
    assert result.measured["ledger"]["strict"] > result.measured["ledger"]["epsilon"] > 0
    assert any("purity" in key for key in result.measured["diagnostics"]["left"])  # of the warm-up
    page = page_of(FeaturePrivacyStudy(), [result], tmp_path / "out")
    assert "rebuilt.svg" in page
    picture = ElementTree.parse(tmp_path / "out" / "figures" / "feature-privacy-mnist-halves-rebuilt.svg")
    images = picture.findall(".//{http://www.w3.org/2000/svg}image")
    assert len(images) == 2 * len(result.measured["pictures"][ONLY]) == 6
    assert all(image.get("href", "").startswith("data:image/png;base64,") for image in images)


def test_figures_of_attacks_are_kept_by_release_and_party() -> None:
    base = {"run": "this run", "known": 9, "rows": 90, "metric": "r2", "low": 0.5, "high": 0.7, "baseline": 0.5}
    base |= {"value": 0.6, "metrics": {"accuracy": 0.55}}
    features = [
        FeatureResult.model_validate(base | changed)
        for changed in (
            {"attack": "membership", "party": "a", "release": "final models, on the same rows again"},
            {"attack": "inversion", "party": "a", "release": "epoch 20, the last recorded"},
            {"attack": "inversion", "party": "b", "release": "mean of 20.0 releases", "value": 0.7},
            {"attack": "inversion", "party": "a", "release": "8 epochs side by side", "value": 0.8},
            {"attack": "inversion", "party": "a", "release": "epoch 1, the first recorded", "value": 0.9},
        )
    ]
    results = attack_results(features)
    assert results["membership"] == {"a": {"value": 0.6, "baseline": 0.5, "accuracy": 0.55}}
    assert set(results) == {"membership", *(f"inversion, {release}" for release in (LAST, MEAN, TOGETHER, FIRST))}
    assert results[f"inversion, {LAST}"]["a"]["value"] == 0.6
    assert results[f"inversion, {MEAN}"]["b"]["value"] == 0.7


@pytest.mark.real_data
@pytest.mark.usefixtures("without_pixels")
def test_every_job_is_valid_and_named_once() -> None:
    if not DATA.exists():
        pytest.skip(f"the data sets are not at {DATA.parent.name}/{DATA.name} beside the checkout")
    trials = list(FeaturePrivacyStudy().trials(DATA, 2))
    settings = (len(SETTINGS) + 2) * len(DATA_SETS) + 3 * len(LARGE)
    assert len({trial.slug for trial in trials}) == len(trials) == 2 * settings
    assert [trial.seed for trial in trials] == sorted(trial.seed for trial in trials)
    for trial in trials[: len(trials) // 2]:
        with allowed("studies", "cutlayer_published"):
            check_job(trial.job)
        assert len(trial.job.passives) == 2
        assert trial.tables[OWNER].column_names == [LABEL]
        assert len({table.num_rows for table in trial.tables.values()}) == 1
        for party in trial.job.passives:
            assert LABEL not in trial.tables[party].column_names
            assert ("inversion" in trial.job.parties[party].audit.attacks) == (trial.setting in INVERTED)
    sizes = {trial.group: trial.tables[OWNER].num_rows for trial in trials}
    assert sizes == {
        "handwritten": 2000,
        "BBCSport": 544,
        "Adult": 48_842,
        "MNIST halves": 10_000,
        "CIFAR-10 halves": 8000,
    }


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npz.*--data"):
        read_halves("none.npz", 10, ("left", "right"), tmp_path)


@pytest.mark.parametrize("data_set", DATA_SETS, ids=GROUPS)
def test_our_settings_have_the_total_that_the_papers_noise_adds_up_to(data_set: Any) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld  # here: it takes half a second

    plan = ReleasePlan.of(data_set.job(PER_RUN, 1).train)
    noise = {setting: AdaptiveConfig(**data_set.protection(setting)).multiplier(plan) for setting in SETTINGS[1:6]}
    assert noise[PER_RUN] == pytest.approx(noise[VANILLA], rel=1e-9)
    assert noise[VANILLA] == pytest.approx(math.sqrt(2 * math.log(125)) / data_set.epsilon)
    once = AdaptiveConfig(**data_set.protection(ONCE)).multiplier(
        ReleasePlan.of(data_set.job(ONCE, 1).train, once=True)
    )
    assert once == pytest.approx(noise[VANILLA] / math.sqrt(EPOCHS), rel=1e-9)
    assert all(data_set.protection(name)["clip"] == LARGE_CLIP for name in LARGE)
    large = {**data_set.protection(LARGE_RESCALE), "clip": CLIP}
    assert large == data_set.protection(RESCALE)
    losses = pld.from_gaussian_mechanism(noise[VANILLA], value_discretization_interval=1e-2)
    assert losses.get_epsilon_for_delta(DELTA) == pytest.approx(data_set.single, rel=0.01)
    assert losses.self_compose(EPOCHS).get_epsilon_for_delta(DELTA) == pytest.approx(data_set.total, rel=0.01)


def test_results_like_the_papers_would_hold_every_claim() -> None:
    assert set(verdicts_of(made_up("MNIST halves"), "MNIST halves")) == {Verdict.HOLDS}


@pytest.mark.parametrize(
    ("setting", "accuracy", "failing"),
    [
        (UNPROTECTED, 0.88, {0}),
        (RESCALE, 0.89, {1}),
        (ADJUST, 0.89, {2}),
        (ADJUST, 0.968, {5, 20}),
        (STOPPED, 0.88, {20, 21}),
        (PER_RUN, 0.95, {10}),
        (ONCE, 0.95, {11}),
    ],
)
def test_one_accuracy_that_is_otherwise_fails_its_claim(setting: str, accuracy: float, failing: set[int]) -> None:
    results = verdicts_of(made_up("CIFAR-10 halves", {**ACCURACY, setting: accuracy}), "CIFAR-10 halves")
    assert {index for index, verdict in enumerate(results) if verdict == Verdict.FAILS} == failing


def test_rescaling_is_judged_at_a_large_c_too() -> None:
    good, poor = (verdicts_of(made_up("Adult", {**ACCURACY, LARGE_RESCALE: value}), "Adult") for value in (0.85, 0.7))
    assert (good[19], poor[19]) == (Verdict.HOLDS, Verdict.FAILS)
    assert good[:19] + good[20:] == poor[:19] + poor[20:]
    assert len(good) == 1 + len(verdicts_of(made_up("MNIST halves"), "MNIST halves"))


@pytest.mark.parametrize(
    ("setting", "part", "values", "failing"),
    [
        (FULL, "attacks", {f"inversion, {LAST}": {"value": 0.7}}, {6, 7}),
        (FULL, "attacks", {f"inversion, {MEAN}": {"value": 0.01}}, {7, 12}),
        (UNPROTECTED, "attacks", {"membership": {"accuracy": 0.48}}, {8}),
        (FULL, "attacks", {"membership": {"accuracy": 0.6}}, {9}),
        (ONCE, "attacks", {f"inversion, {ONLY}": {"value": 0.5}}, {12}),
        (VANILLA, "diagnostics", {"ks": 0.2}, {13}),
        (VANILLA, "diagnostics", {"largest": 0.98}, {14}),
        (RESCALE, "diagnostics", {"scaled_largest": 1.3}, {15}),
        (ADJUST, "diagnostics", {"first_kept_purity": 0.5}, {16}),
        (ADJUST, "diagnostics", {"last_kept_purity": 0.5}, {17}),
        (ADJUST, "diagnostics", {"class_share": 0.4}, {18}),
        (MEMBERS, "attacks", {"membership": {"accuracy": 0.6}}, {20}),
    ],
)
def test_one_figure_that_is_otherwise_fails_its_claim(
    setting: str, part: str, values: dict[str, Any], failing: set[int]
) -> None:
    draw = np.random.default_rng(1)
    results = made_up("Adult", changes={setting: {part: values}})
    for result in results:  # equal values in every seed would have no interval to speak of
        for figures in result.measured["diagnostics"].values():
            figures.update({key: value + float(draw.normal(0, 1e-3)) for key, value in figures.items()})
    outcome = verdicts_of(results, "Adult")
    assert {index for index, verdict in enumerate(outcome) if verdict == Verdict.FAILS} == failing


@pytest.mark.parametrize("seeds", [0, 1])
def test_too_few_seeds_resolve_nothing(seeds: int) -> None:
    results = set(verdicts_of(made_up("Adult", seeds=seeds), "Adult"))
    assert results == ({Verdict.NOT_RUN} if seeds == 0 else {Verdict.OPEN})


def test_overheads_are_shares_of_the_unprotected_epoch() -> None:
    runs = Results(made_up("Adult"))
    shares = {setting: overhead(runs, "Adult", setting) for setting in (VANILLA, RESCALE, ADJUST)}
    assert {setting: share.value for setting, share in shares.items() if share} == pytest.approx(
        {VANILLA: 0.05, RESCALE: 0.1, ADJUST: 0.0}
    )


def test_the_page_shows_every_setting_of_every_data_set(tmp_path: Path) -> None:
    page = page_of(FeaturePrivacyStudy(), [result for group in GROUPS for result in made_up(group)], tmp_path / "whole")
    assert "not run" not in page
    assert "not in the paper" not in page
    for group in GROUPS:
        part = page.partition(f"## {group}\n")[2].partition("\n## ")[0]
        utility = part.partition("### Utility")[2].partition("### Inversion")[0]
        shown = [setting for setting in settings_of(group) if setting != MEMBERS]
        assert all(f"| {setting} |" in utility for setting in ("centralised", *shown, "majority class"))
        assert utility.count("no formal guarantee") == 2 + (LARGE_RESCALE in settings_of(group))
    assert "| vanilla | 0.899" in page or "| vanilla | 0.900" in page
    assert "0.9512 against 0.9048" in page
    assert "| the paper, 5,000 rows of CIFAR-10 | 17.3% | 80.0% | 23.4% |" in page
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith(("|", "#", "!", "<")))


def test_distances_of_wide_normal_rows_are_normal_and_two_heaps_are_not() -> None:
    draw = torch.Generator().manual_seed(0)
    wide = torch.randn(400, 256, generator=draw)
    near = distance_values(wide[:300], wide[300:], 20.0)
    assert near["ks"] < 0.05
    heaps = torch.zeros(400, 2)
    heaps[::2, 0] = 1.0
    far = distance_values(heaps[:300], heaps[300:], CLIP)
    assert far["ks"] > 0.3
    assert far["largest"] == pytest.approx(0.5)


def test_the_published_scale_lets_a_share_of_the_pairs_exceed_the_sensitivity() -> None:
    """Of normal distances about the tail probability lies beyond the estimate, and so beyond 2C after the scaling."""
    rows = torch.randn(1000, 512, generator=torch.Generator().manual_seed(1)) / 512**0.5
    results = distance_values(rows[:500], rows[500:], 2.0)
    assert results["beyond"] == pytest.approx(0.01, abs=0.01)
    assert results["scaled_largest"] > 1 > results["largest"]


def test_the_share_between_classes_is_that_of_an_analysis_of_variance() -> None:
    draw = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 50)
    plane = draw.normal(size=(150, 2)) + 3 * labels[:, None]
    flat = np.concatenate([plane, 1e-6 * draw.normal(size=(150, 5))], axis=1)
    total = ((plane - plane.mean(0)) ** 2).sum()
    within = sum(((plane[labels == code] - plane[labels == code].mean(0)) ** 2).sum() for code in range(3))
    results = class_share(torch.from_numpy(flat), torch.from_numpy(labels))
    assert results == pytest.approx(1 - within / total, rel=1e-6)
    assert class_share(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1])) == 0.0


def test_clusters_of_gradients_that_stand_apart_are_pure_and_doubtful_rows_are_left_out() -> None:
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    apart = 10 * torch.eye(3)[labels] + 0.1 * torch.randn(90, 3, generator=draw)
    steps = [Step(0, 0, torch.arange(90), gradients={"a": apart})]
    results = cluster_values(steps, "a", labels, AdjustConfig(classes=3), seed=0)
    assert (results["purity"], results["kept_purity"], results["kept"]) == (1.0, 1.0, 1.0)
    assert results["chance"] < 0.6
    apart[0] = apart[1:3].mean(0)  # half way between two classes
    doubtful = cluster_values(
        [Step(0, 0, torch.arange(90), gradients={"a": apart})], "a", labels, AdjustConfig(classes=3), seed=0
    )
    assert (doubtful["kept"], doubtful["purity"]) == (89 / 90, 89 / 90)
    assert doubtful["kept_purity"] == 1.0


def test_a_gallery_without_pictures_is_still_one() -> None:
    assert ElementTree.fromstring(Gallery("none.svg", "none", ()).svg()).tag.endswith("svg")
