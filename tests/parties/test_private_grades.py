"""Grades of a private fit: its account, its noise, and all the ways that grades go."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from cutlayer.accounting import Composition, Entry, Ledger, NoFormalGuarantee, RandomizedGrade
from cutlayer.accounting.ledger import REFUSAL_ENTRY
from cutlayer.accounting.plan import Approximation, PrivateFit
from cutlayer.accounting.run_store import RunLine
from cutlayer.config import BudgetConfig, Job, validated
from cutlayer.data.profile import ColumnProfile
from cutlayer.errors import BudgetExceeded, ConfigError
from cutlayer.jobs.cautions import private_fit_cautions, readable_columns
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.kernels.noise import gaussian_mechanism
from cutlayer.models.grade import GradeBottom
from cutlayer.serving.models import PartyModel
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.run_ledger import ledger_of
from cutlayer.training.run_sums import check_budget
from cutlayer_export.part import export_part, load_part
from tests.parties.processes import lay_out
from tests.parties.runs import ACTIVE, KEY, PASSIVES, run, tables
from tests.parties.test_grades import kept, raw
from tests.parties.threads import run_apart
from tests.training.test_all_runs import World

TELCO = PASSIVES[0]
PRIVATE = {"kind": "grade", "epsilon": 2.0, "least_z": 0, "limits": {"other": 1.0}}
FIXED = {"numbers": {"scale": "none", "missing": "zero"}}


def private(fit: dict[str, Any] | None = None, *, features: dict[str, Any] = FIXED, **options: Any) -> Job:
    made = raw(**options)
    made["parties"][TELCO] |= {"fit": PRIVATE | (fit or {}), "features": features}
    return validated(Job, made, "")


def test_the_account_is_of_grade_and_fit_together() -> None:
    """Against the product of both trade-off functions, integrated by summation over the likelihood ratios of each."""
    (total,) = [total for total in ledger_of(private(epsilon=4.0)).totals if total.protects == "features"]
    fit = PrivateFit.within(2.0, 1e-5)
    assert total.delta == 1e-5
    assert 4.0 < total.epsilon <= 6.0
    assert total.condition == "unconditional"
    at = np.linspace(-12, 12, 4801)
    density = np.exp(-(at**2) / 2) / np.exp(-(at**2) / 2).sum()
    kept_share = 1 / (1 + np.exp(-4.0))
    ratios = np.concatenate([at * fit.mu + fit.mu**2 / 2 + 4, at * fit.mu + fit.mu**2 / 2 - 4])
    one = np.concatenate([density * kept_share, density * (1 - kept_share)])
    order = np.argsort(ratios)
    zero = (one * np.exp(-ratios))[order]
    area = (one[order] * (np.cumsum(zero) - zero / 2)).sum()
    assert total.auc_bound == pytest.approx(fit.approximation.auc(area), abs=2e-4)
    assert gaussian_mechanism.epsilon(fit.mu, 0.9e-5) == pytest.approx(2.0 - 0.007, abs=1e-3)


def test_fits_add_up_and_a_delta_below_their_slack_has_no_epsilon() -> None:
    fit = PrivateFit.within(2.0, 1e-5)
    one = Composition.of([RandomizedGrade(1.0, fit=fit)])
    two = Composition.of([RandomizedGrade(1.0, fit=fit)] * 2)
    assert two.mu == pytest.approx(np.sqrt(2) * one.mu)
    assert one.epsilon(1e-5) < two.epsilon(1e-5) < 6.0
    tail = fit.approximation.tail
    assert one.epsilon(tail) == np.inf
    assert all(delta > tail for _, delta in one.curve())
    assert one.epsilon(one.approximation.least_delta) < 20


def test_what_a_computed_fit_may_exceed_exact_noise_by_is_in_every_statement() -> None:
    """A mechanism whose probabilities are e^.0035 times those of exact noise, or as many times less, with a tail."""
    fit = PrivateFit.within(2.0, 1e-5)
    assert fit.epsilon == pytest.approx(2.0, abs=1e-9)
    left = 1e-5 * math.exp(-0.0035) - 1e-6
    assert gaussian_mechanism.epsilon(fit.mu, left) == pytest.approx(2.0 - 0.007, abs=1e-5)
    whole = Composition.of([RandomizedGrade(1.0, fit=fit)] * 3)
    exact = replace(whole, approximation=Approximation())
    left = 1e-4 * math.exp(-3 * 0.0035) - 3e-6
    assert whole.epsilon(1e-4) == pytest.approx(exact.epsilon(left) + 0.021, abs=1e-5)
    assert whole.rdp_epsilon(1e-4) == pytest.approx(exact.rdp_epsilon(left) + 0.021, abs=1e-5)
    one = Composition.of([RandomizedGrade(1.0, fit=fit)])
    plain = replace(one, approximation=Approximation()).auc_bound
    assert one.auc_bound == pytest.approx(1 - math.exp(-0.007) * (1 - plain) + 2e-6)  # type: ignore[operator]


def test_releases_whose_slacks_exceed_their_delta_have_an_epsilon_at_a_larger_one() -> None:
    event = RandomizedGrade(8.0, condition="unconditional", fit=PrivateFit.within(2.0, 1e-5))
    entries = [Entry("grade_dp", TELCO, "features", (ACTIVE,), event, 1e-5, run=run) for run in range(11)]
    (few,), (many,) = (Ledger(tuple(entries[:count])).totals for count in (4, 11))
    assert few.delta == pytest.approx(1e-5)
    assert many.delta == pytest.approx(2.2e-5 * math.exp(11 * 0.0035))
    assert 35.0 < few.epsilon < many.epsilon < 110.0  # type: ignore[operator]
    assert many.rdp_epsilon is not None
    lines = [RunLine(str(run), TELCO, "job", "s", "rows", 1, "p", Ledger((entries[0],))) for run in range(11)]
    with pytest.raises(BudgetExceeded, match=r"at delta 2\.28\d*e-05 over 11 runs"):
        check_budget(TELCO, lines, BudgetConfig(epsilon=1000.0, delta=1e-5, over="all_runs"))


def test_a_budget_of_a_smaller_delta_than_the_slack_is_refused() -> None:
    job = private()
    part = job.parties[TELCO]
    privacy = {**part.privacy, "budget": {"epsilon": 30.0, "delta": 1e-6}}
    parties = {**job.parties, TELCO: part.model_copy(update={"privacy": privacy})}
    with pytest.raises(BudgetExceeded, match=r"lower fit\.delta"):
        check_job(job.model_copy(update={"parties": parties}))


def test_a_pilot_costs_all_rows_that_its_model_is_fitted_to(tmp_path: Path) -> None:
    """Pilots of other labels release the same few rows, and were counted for these alone."""
    world, given = World(tmp_path), tables(rows=600)
    world.run(private(), given, pilot=60)
    world.run(validated(Job, raw(), ""), given, pilot=60)
    rows = given[TELCO].num_rows
    assert [line.count for line in world.lines(TELCO)] == [rows, 60]


@pytest.mark.parametrize(
    ("fit", "said"),
    [
        ({"limits": {"other": 1.0}, "least_z": 3.0}, ""),  # ranked by noisy counts
        ({"limits": {}}, "whether fit.limits refuse"),  # the default limit does
        ({"limits": {"other": 1.0}, "epsilon": None, "least_z": 3.0}, "fit.least_z or fit.limits"),
        ({"limits": {"other": 1.0}, "epsilon": None}, ""),
    ],
)
def test_the_ledger_names_refusals_where_there_may_be_one(fit: dict[str, Any], said: str) -> None:
    found = [entry.event for entry in ledger_of(private(fit)).entries if entry.protection == REFUSAL_ENTRY]
    assert [said in event.why for event in found if isinstance(event, NoFormalGuarantee)] == [True] * bool(said)


def test_a_label_owner_is_told_what_holds_whatever_it_sends() -> None:
    assert readable_columns(private(), TELCO).endswith("whatever it knows and sends")
    said = readable_columns(private({"limits": {}}), TELCO)  # as init has it
    assert "sends; whether fit.limits refuse grades tells one bit about all rows" in said
    assert said.endswith(", which no epsilon covers")
    assert "which it is tells 2.6 bits" in readable_columns(private({"limits": {}, "least_epsilon": 2.0}), TELCO)
    assert "without a bound" in readable_columns(validated(Job, raw(), ""), TELCO)


def test_a_total_names_what_no_epsilon_of_it_covers() -> None:
    """It stands alone in both reports, in the ledger of all runs and in the check, and says `unconditional`."""

    def total(fit: dict[str, Any]) -> str:
        totals = ledger_of(private(fit)).totals
        return next(each.statement for each in totals if each.protects == "features")

    stepped = total({"limits": {}, "least_epsilon": 2.0})
    assert "unconditional; " in stepped
    assert "outside of it, whether fit.limits refuse grades tells one bit about all rows" in stepped
    assert "which it is tells 2.6 bits" in stepped
    assert stepped.count("outside of it") == 1
    assert "outside of it, whether fit.limits refuse grades" in total({"limits": {}})
    assert "outside" not in total({"limits": {"other": 1.0}})


@pytest.mark.parametrize(
    ("rows", "columns", "classes", "warned"),
    [(16_000, 8, 2, False), (1_600, 8, 2, True), (16_000, 8, 14, True), (16_000, 100, 2, True)],
)
def test_a_fit_whose_noise_drowns_the_labels_is_known_before_any_is_drawn(
    rows: int, columns: int, classes: int, *, warned: bool
) -> None:
    """By rows, columns, classes and both epsilons: at the label owner, and at a partner that has no label."""
    job = private(task="multiclass" if classes > 2 else "binary", eps=1.0)
    about: dict[str, Any] = {"kind": "number", "type": "double", "missing": 0}
    features = [ColumnProfile(party=TELCO, name=f"x{at}", role="feature", distinct=9, **about) for at in range(columns)]
    counts = {f"{at}": rows // classes for at in range(min(classes, 10))}
    label = ColumnProfile(party=ACTIVE, name="y", role="label", distinct=classes, classes=counts, **about)
    held = dict.fromkeys(job.parties, rows)
    found = [*private_fit_cautions(job, held, [*features, label])]
    assert [f"rows to {rows:,} of {columns} columns" in line for line in found] == [True] * warned
    assert all(f"labels of {classes} classes" in line for line in found)
    assert not [*private_fit_cautions(validated(Job, raw(), ""), held, [*features, label])]


@pytest.mark.parametrize(
    ("fit", "features", "said"),
    [
        ({}, {}, "features whose scales and codes no row decides on"),
        ({}, {"numbers": {"scale": "none"}}, "features whose scales"),
        ({}, {**FIXED, "categories": {"min_count": 5}}, "features whose scales"),
        ({}, {"numbers": {**FIXED["numbers"], "quantiles": 4}}, "features whose scales"),
        ({"folds": 3}, FIXED, "neither candidates nor folds"),
        ({"epsilon": 0.0}, FIXED, "greater than or equal to 0.01"),
        ({"epsilon": 1e-6}, FIXED, "greater than or equal to 0.01"),
    ],
)
def test_what_does_not_go_together_is_refused(fit: dict[str, Any], features: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_job(private(fit, features=features))


def test_a_private_fit_without_drawn_grades_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"grade_dp beside fit\.epsilon"):
        check_job(private(epsilon=None))


def test_labels_that_the_columns_do_not_rank_are_refused_by_noisy_counts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="better than chance"):
        run(private({"least_z": 100.0}), tables(rows=300), tmp_path)


def test_a_run_that_is_begun_again_is_the_same_release(tmp_path: Path) -> None:
    """Were its noise another one each time, its mean over runs would be the exact fit."""
    given, job = tables(rows=900), private({"epsilon": 5.0}, eps=3.0)
    world = World(tmp_path)
    first, again = (world.run(job, given, out=out) for out in ("first", "again"))
    model, other = (load_file(path / "checkpoint" / TELCO / "best.safetensors") for path in (first, again))
    assert all(torch.equal(model[name], other[name]) for name in model if name != "random")
    assert torch.equal(kept(first, "released")["released"], kept(again, "released")["released"])


def test_other_rows_are_another_release_with_noise_of_its_own(tmp_path: Path) -> None:
    given, job, world = tables(rows=900), private({"epsilon": 5.0}, eps=3.0), World(tmp_path)
    world.run(job, given)
    total = world.total(TELCO)
    values = given[TELCO]["telco_0"].to_numpy() + 0.0
    values[:450] += 1e-3
    changed = {**given, TELCO: given[TELCO].set_column(1, "telco_0", pa.array(values))}
    world.run(job, changed)
    assert world.total(TELCO) > total + 5.0


def test_the_model_adds_to_the_label_owners_columns(tmp_path: Path) -> None:
    given = tables(rows=4800)
    trained = run(private({"epsilon": 8.0}), given, tmp_path)
    alone = trained.active.task.evaluate(trained.active.logits_without[TELCO,], trained.active.labels)
    assert trained.active.metrics["auc"] > alone["auc"] + 0.03


def test_predictions_and_an_exported_part_have_the_same_grades(tmp_path: Path) -> None:
    given, job = tables(rows=600), private({"epsilon": 8.0}, epsilon=2.0)
    folder = RunFolder(tmp_path / "run")
    execute(job, folder.path, Options(Keys(tmp_path, KEY), tables=given), Progress())
    answers = []
    for number, rows in enumerate(({}, given)):
        predict(job, folder, tmp_path / f"{number}.csv", PredictionRequest(rows, key=KEY))
        lines = (line.split(",") for line in (tmp_path / f"{number}.csv").read_text().splitlines()[1:])
        answers.append({line[0]: float(line[1]) for line in lines})
    assert {row: answers[1][row] for row in answers[0]} == pytest.approx(answers[0], rel=1e-9)
    part = PartyModel.load(job, folder, TELCO)
    other = load_part(export_part(job, part, tmp_path / "part").folder).bottom
    codes, numbers = torch.randint(6, (500, 1)), torch.randn(500, 3)
    assert isinstance(part.bottom, GradeBottom)
    assert isinstance(other, GradeBottom)
    assert torch.equal(part.bottom.grade(codes, numbers, None), other.grade(codes, numbers, None))
    assert len(part.bottom.grade(codes, numbers, None).unique()) > 1


def test_organisations_have_the_same_grades(tmp_path: Path) -> None:
    given, made = tables(rows=400), raw()
    made["parties"][TELCO] |= {"fit": PRIVATE, "features": FIXED}
    run(validated(Job, made, ""), given, tmp_path / "whole")
    sites = lay_out(tmp_path, made, given)
    run_apart(sites)
    sent = load_file(sites[TELCO].run / "checkpoint" / TELCO / "released.safetensors")["released"]
    assert torch.equal(sent, kept(tmp_path / "whole", "released")["released"])
