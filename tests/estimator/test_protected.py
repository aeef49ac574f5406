"""A prediction is a release: through the same protections as in training, counted, and limited by what was planned."""

from __future__ import annotations

import copy
from contextvars import Context
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from cutlayer import CutlayerError
from cutlayer.config import FrozenModel, Job
from cutlayer.data.align import intersect
from cutlayer.data.party_data import PartyTable
from cutlayer.data.sources import as_table
from cutlayer.data.split import split_rows
from cutlayer.errors import BudgetExceeded, ConfigError, DataError
from cutlayer.estimator.job import job_of
from cutlayer.estimator.saved import parameters_of
from cutlayer.jobs.check import check_job
from cutlayer.parties.session.plan import plan_of
from cutlayer.protections import REGISTRY
from cutlayer.protections.dp_embedding import DPEmbeddingConfig
from cutlayer.protections.nopeek import NoPeekConfig
from cutlayer.serving import PredictionReleases
from cutlayer.training.run_ledger import ledger_of
from cutlayer_published.embedding.protection import AdaptiveConfig
from cutlayer_published.gradients.noisy_gradient import NoisyGradientConfig
from tests.estimator.tables import classifier, regressor, tables
from tests.serving.runs import fixed

NOISY = DPEmbeddingConfig(clip=1.0, epsilon=8.0, delta=1e-5)
X, Y = tables()


def noisy(predictions: int, config: FrozenModel = NOISY, **changes: Any) -> Any:
    """A classifier whose shop releases noisy embeddings."""
    return classifier(**{"protections": [config], "predictions": predictions, "epochs": 1, **changes}).fit(X, Y)


def serving_of(model: Any) -> PredictionReleases:
    """What the shop releases predictions through."""
    width = model.models_.widths["shop"]
    return PredictionReleases(model.job_, model.folder_, "shop", width, model.key)


def job_with(predictions: int, *protections: FrozenModel) -> Job:
    """The job of a classifier that plans some predictions."""
    given = {party: as_table(table, party) for party, table in X.items()}
    wanted = classifier(protections=protections, predictions=predictions, epochs=1)
    return job_of(wanted, given, ("bank", "shop"), "binary")[0]


# `grade_dp` needs a bottom model that grades rows.
@pytest.mark.parametrize("name", [name for name in REGISTRY if name != "grade_dp"])
def test_every_config_means_what_the_same_keys_mean_in_a_job_file(name: str) -> None:
    protection = REGISTRY[name]
    config = protection.start
    job = job_with(1, config)
    owner, other = ("bank", "shop") if protection.side == "active" else ("shop", "bank")
    assert job.parties[owner].privacy == {name: config.model_dump(exclude_unset=True)}
    assert not job.parties[other].privacy


@pytest.mark.parametrize(("name", "owner"), [("max_norm", "bank"), ("nopeek", "shop")])
def test_a_config_of_each_side_works_through_the_estimator(name: str, owner: str) -> None:
    model = classifier(protections=[REGISTRY[name].start], predictions=1, epochs=1).fit(X, Y)
    (stated,) = model.report_.protections
    assert (stated.name, stated.party) == (name, owner)
    assert model.predict(X).shape == (len(Y),)


@pytest.mark.parametrize(
    "settings", [NoisyGradientConfig(scale=0.1), AdaptiveConfig(clip=1.0, epsilon=8.0, delta=1e-5, estimate={})]
)
def test_who_makes_settings_of_a_plugin_has_consented_to_its_module(settings: FrozenModel) -> None:
    """As who names a class of a model does; a run that is loaded needs consent, since others may have written it."""

    def answered() -> Any:
        model = classifier(protections=[settings], predictions=1, epochs=1).fit(X, Y)
        assert model.predict(X).shape == (len(Y),)
        with pytest.raises(ConfigError, match="expected consent before it imports cutlayer_published"):
            parameters_of(model.job_)
        return model.job_

    job = Context().run(answered)  # where nothing is allowed, as the tests allow it
    ((owner, made),) = parameters_of(job)["protections"].items()
    assert (owner, made) == ("bank" if type(settings) is NoisyGradientConfig else "shop", [settings])


def test_a_protected_prediction_is_as_good_as_the_reports_test_figure_and_not_as_the_bare_models() -> None:
    draw = np.random.default_rng(1)
    rows = 3000
    y = (draw.random(rows) < 0.5).astype(int)
    given = {"bank": draw.normal(size=(rows, 1)), "shop": 1.5 * y[:, None] + draw.normal(size=(rows, 2))}
    config = DPEmbeddingConfig(clip=1.0, noise_multiplier=0.5)
    model = classifier(protections=[config], predictions=1, test=0.4, epochs=4, batch_size=256, key=bytes(32)).fit(
        given, y
    )
    positions = intersect({name: PartyTable(name, table).digests for name, table in given.items()})["bank"]
    test = positions[split_rows(rows, model.job_.train.split, model.job_.train.seed).test]
    held_out = {name: table[test] for name, table in given.items()}
    stated = next(row for row in model.report_.utility.rows if row.name == "this run").metrics["auc"]
    protected = roc_auc_score(y[test], model.predict_proba(held_out)[:, 1])
    bare = roc_auc_score(y[test], model.predict_proba_unprotected(held_out)[:, 1])
    assert protected == pytest.approx(stated, abs=0.05)
    assert bare > stated + 0.1
    assert model.evaluate_unprotected(held_out, y[test]).metrics["auc"] == pytest.approx(bare, abs=1e-6)


def test_every_prediction_has_noise_of_its_own_and_is_counted() -> None:
    model = noisy(predictions=4)
    first, second = model.predict_proba(X), model.predict_proba(X)
    assert np.abs(first - second).max() > 0
    model.evaluate(X, Y)
    model.score(X, Y)
    for call in (model.predict, model.predict_proba):
        with pytest.raises(BudgetExceeded, match="shop: prediction 5 was asked for, but 4 were planned"):
            call(X)
    with pytest.raises(BudgetExceeded, match="nothing was released"):
        model.evaluate(X, Y)
    without = {"bank": X["bank"]}
    assert model.predict(without, absent=["shop"]).shape == (len(Y),)
    np.testing.assert_array_equal(model.predict_proba_unprotected(X), model.predict_proba_unprotected(X))


def test_fine_tuning_releases_the_rows_once_more() -> None:
    given = {**X, "mill": X["shop"][:, :1]}
    model = classifier(protections={"mill": [NOISY]}, predictions=1, epochs=1).fit(given, Y)
    model.finetune_top(given, Y, ["shop"])
    with pytest.raises(BudgetExceeded, match="mill: prediction 2"):
        model.predict(given, ["shop"])


def test_a_copy_has_no_predictions_of_its_own() -> None:
    """The count is in the run folder, so that copies of an estimator share it."""
    model = noisy(predictions=2)
    copy.deepcopy(model).predict(X)
    copy.deepcopy(model).predict(X)
    with pytest.raises(BudgetExceeded):
        model.predict(X)


@pytest.fixture(scope="module")
def unplanned() -> Any:
    """Of no planned predictions; not to be changed."""
    return noisy(predictions=0)


def test_without_planned_predictions_a_counted_party_refuses(unplanned: Any) -> None:
    model = unplanned
    message = "expected planned predictions: shop counts its releases, and a prediction is one of every row, got none"
    for call in (lambda: model.predict(X), lambda: model.evaluate(X, Y), lambda: model.finetune_top(X, Y, [])):
        with pytest.raises(ConfigError, match=message):
            call()
    assert model.predict_proba_unprotected(X).shape == (len(Y), 2)


def test_a_party_that_counts_nothing_predicts_without_a_plan() -> None:
    model = noisy(0, NoPeekConfig(alpha=0.1))
    for _ in range(2):
        model.predict(X)


def test_bad_tables_take_no_prediction() -> None:
    model = noisy(predictions=1)
    with pytest.raises(DataError, match="expected as many rows everywhere"):
        model.predict({"bank": X["bank"], "shop": X["shop"][:9]})
    with pytest.raises(DataError, match="shop"):
        model.predict({"bank": X["bank"]})
    with pytest.raises(CutlayerError, match="as many labels in y as rows"):
        model.evaluate(X, Y[:7])
    with pytest.raises(CutlayerError, match="only these were trained on"):
        model.evaluate(X, np.where(Y == 1, 5, 6))
    model.predict(X)


def test_where_one_party_has_none_left_no_other_releases() -> None:
    given = {**X, "mill": X["shop"][:, :1]}
    config = {"mill": [NOISY], "shop": [NOISY]}
    model = classifier(protections=config, predictions=2, epochs=1).fit(given, Y)
    model.predict(given, absent=["shop"])
    model.predict(given, absent=["shop"])
    with pytest.raises(BudgetExceeded, match="mill: prediction 3"):
        model.predict(given)
    assert serving_of(model).predictions_made == 0


def test_predictions_are_clipped_and_have_the_noise_of_the_ledger() -> None:
    model = noisy(predictions=6, key=bytes(32))
    serving, width = serving_of(model), model.models_.widths["shop"]
    sigma = next(iter(model.report_.protections)).metrics["sigma"]
    plain = torch.zeros(4000, width)
    found = serving.release(fixed(plain), 4000)
    assert float(found.std()) == pytest.approx(sigma, rel=0.03)
    far = torch.full((6000, width), 1e6)
    released = serving.release(fixed(far), 6000)
    assert float(released.mean(0).norm()) == pytest.approx(1.0, abs=5 * sigma * width**0.5 / 6000**0.5)
    assert not torch.equal(serving.release(fixed(plain), 4000), found)
    assert serving.predictions_made == 3


def test_planned_predictions_are_paid_for(unplanned: Any) -> None:
    """By more noise where epsilon is set, and by a larger epsilon where the noise is."""
    by_epsilon = [unplanned.report_, noisy(9).report_]
    totals = [report.ledger.totals[0].epsilon for report in by_epsilon]
    sigmas = [report.protections[0].metrics["sigma"] for report in by_epsilon]
    assert totals[0] == pytest.approx(totals[1]) == pytest.approx(8.0)
    assert sigmas[1] > 2 * sigmas[0]
    fixed = DPEmbeddingConfig(clip=1.0, noise_multiplier=2.0)
    spent = [ledger_of(job_with(count, fixed)).totals[0].epsilon for count in (0, 9)]
    assert spent[0] is not None
    assert spent[1] is not None
    assert spent[1] > 2 * spent[0]
    assert plan_of(job_with(3, NOISY), "shop").max_releases == plan_of(job_with(0), "shop").max_releases + 3


def test_a_regressor_predicts_through_the_protections_too() -> None:
    values = X["bank"]["age"].to_numpy() + X["shop"][:, 0]
    model = regressor(protections=[NOISY], predictions=2, epochs=1).fit(X, values)
    assert np.abs(model.predict(X) - model.predict(X)).max() > 0
    with pytest.raises(BudgetExceeded):
        model.predict(X)
    np.testing.assert_array_equal(model.predict_unprotected(X), model.predict_unprotected(X))


def test_the_active_party_plans_no_predictions() -> None:
    job = job_with(0)
    parties = {**job.parties, "bank": job.parties["bank"].model_copy(update={"serving": 2})}
    with pytest.raises(ConfigError, match=r"no parties\.bank\.serving at the active party"):
        check_job(job.model_copy(update={"parties": parties}))
