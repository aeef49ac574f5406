"""Cross-validation chooses what fits the problem; the parts learn what they can learn."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier

from cutlayer.models.top_estimators.boosting import fit_boosting
from cutlayer.models.top_estimators.choice import AVERAGE, Choice, _HeldOutRows, choose_candidates, folds_of, weights_of
from cutlayer.models.top_estimators.kinds import fits_of
from cutlayer.models.top_estimators.linear import fit_linear
from cutlayer.models.top_estimators.network import _Budget, fit_network
from cutlayer.models.top_estimators.rows import FitRows
from cutlayer.models.top_estimators.sections import AutoTopConfig
from cutlayer.problem.task import Task
from tests.models.estimator_rows import BINARY, fit_briefly, rows_of

FITS = fits_of(AutoTopConfig())


def chosen(x: np.ndarray, y: np.ndarray, task: Task = BINARY, **fits: Any) -> Choice:
    rows = rows_of(x, y if task.kind != "regression" else (y - task.center) / task.scale, len(task.classes))
    return choose_candidates(rows, torch.from_numpy(y), task, fits or FITS, "auto", 0, np.ones(len(rows), dtype=bool))


def scored(choice: Choice) -> dict[str, float]:
    return {each.name: each.score for each in choice.candidates}


@pytest.fixture
def _one_brief_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the candidates are told apart by what all of them are, networks need not be at their best."""
    monkeypatch.setattr(_Budget, "of", lambda _rows: _Budget(1, 32, 60))


@pytest.mark.usefixtures("_one_brief_network")
def test_a_linear_problem_is_no_work_for_trees_alone() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(800, 12))
    y = (x.sum(axis=1) + 2 * draw.normal(size=800) > 0).astype(np.int64)
    choice = chosen(x, y)
    assert choice.weights.get("linear", 0) + choice.weights.get("network", 0) > 0.6
    assert scored(choice)["linear"] > scored(choice)["boosting"] + 0.01


@pytest.mark.usefixtures("_one_brief_network")
def test_exclusive_or_is_no_work_for_a_linear_model() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(1_500, 4))
    choice = chosen(x, ((x[:, 0] > 0) ^ (x[:, 1] > 0)).astype(np.int64))
    assert scored(choice)["linear"] < 0.6
    assert scored(choice)["boosting"] > 0.97
    assert "linear" not in choice.weights


@pytest.mark.usefixtures("_one_brief_network")
def test_the_average_is_chosen_where_it_predicts_better_and_only_there() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(1_200, 6))
    y = (x[:, 0] + x[:, 1] + 2 * (x[:, 2] * x[:, 3] > 0) + draw.normal(size=1_200) > 1).astype(np.int64)
    choice = chosen(x, y)
    losses = {each.name: each.loss for each in choice.candidates}
    assert choice.chosen == AVERAGE
    assert losses[AVERAGE] == min(losses.values())
    single = chosen(x, y, linear=FITS["linear"])
    assert single.chosen == "linear"
    assert single.weights == {"linear": 1.0}
    assert [each.name for each in single.candidates] == ["linear"]


def _exclusive_or(rows: FitRows) -> np.ndarray:
    """Log probabilities by whether the first two numbers have one sign."""
    share = np.where((rows.numbers[:, 0] > 0) ^ (rows.numbers[:, 1] > 0), 0.99, 0.01)
    return np.log(np.stack([1 - share, share], axis=1))


def test_the_first_fold_rules_out_what_is_clearly_behind_and_nothing_else() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(900, 4))
    fitted: list[str] = []
    # Few trees and fewer, in place of boosting and networks: what is ruled out depends on losses alone.
    fits = {
        "linear": FITS["linear"],
        **{name: partial(fit_boosting, settings={"max_iter": n}) for name, n in (("boosting", 20), ("fewer", 18))},
    }
    counted = {name: lambda rows, seed, name=name: (fitted.append(name), fits[name](rows, seed))[1] for name in fits}
    # Of noisy labels neither of the other two is clearly behind.
    choice = chosen(x, (x[:, 0] * x[:, 1] + 0.5 * draw.normal(size=900) > 0).astype(np.int64), **counted)
    assert fitted.count("linear") == 1
    assert fitted.count("boosting") == fitted.count("fewer") == choice.folds == 3
    by_name = {each.name: each for each in choice.candidates}
    assert [name for name, each in by_name.items() if each.ruled_out] == ["linear"]
    assert by_name["linear"].loss > 0.6 > by_name["boosting"].loss
    assert by_name["linear"].error is None
    fitted.clear()
    fits["boosting"] = lambda *_: SimpleNamespace(predicted=_exclusive_or)
    choice = chosen(x[:120], _exclusive_or(rows_of(x, x, 0)).argmax(axis=1)[:120], **counted)
    assert fitted.count("linear") == choice.folds == 5  # a fold of 24 rows rules nothing out
    noise = draw.integers(2, size=900)
    assert not any(each.ruled_out for each in chosen(x, noise, linear=FITS["linear"], again=FITS["linear"]).candidates)


class Told:
    """A part that says what a column of the rows holds: the log probability of class 1."""

    def __init__(self, column: int) -> None:
        self.column = column

    def predicted(self, rows: FitRows) -> np.ndarray:
        share = rows.numbers[:, self.column].astype(np.float64)
        return np.log(np.stack([1 - share, share], axis=1))


@pytest.mark.parametrize("share", [0.9, 0.6])
def test_the_average_is_scored_with_weights_of_other_rows(share: float) -> None:
    """Each candidate is right in one of two groups: weights of the scored rows would take the right one of each."""
    group, y = np.repeat([0, 1], 20), np.tile([0, 1], 20)
    right, wrong = np.where(y, share, 1 - share), np.where(y, 1 - share, share)
    numbers = np.stack([np.where(group == 0, right, wrong), np.where(group == 1, right, wrong)], axis=1)
    rows = rows_of(numbers, y, 2)
    fits = {name: lambda _, __, column=column: Told(column) for column, name in enumerate(("first", "second"))}
    choice = choose_candidates(rows, torch.from_numpy(y), BINARY, fits, 2, 0, np.ones(40, dtype=bool), group)
    losses = {each.name: each.loss for each in choice.candidates}
    assert (
        losses["first"] == pytest.approx(losses["second"]) == pytest.approx(-np.log(share * (1 - share)) / 2, rel=1e-6)
    )
    assert losses[AVERAGE] == pytest.approx(-np.log(1 - share), rel=1e-3)
    assert choice.chosen in fits


@pytest.mark.parametrize(("most", "folds"), [(10**6, 3), (60, 3), (60, 1)])
def test_no_candidate_is_scored_on_a_group_that_it_was_fitted_to(
    monkeypatch: pytest.MonkeyPatch, most: int, folds: int
) -> None:
    """Also where some rows of a group are not scored, and of so many rows that some are left out."""
    monkeypatch.setattr("cutlayer.models.top_estimators.choice.MAX_ROWS", most)
    draw = np.random.default_rng(0)
    group, y, scored_rows = draw.integers(12, size=120), draw.integers(2, size=120), draw.random(120) < 0.5
    rows = rows_of(np.stack([group, scored_rows, np.full(120, 0.5)], axis=1), y, 2)
    judged: list[int] = []

    def fit(train: FitRows, _: int) -> Any:
        def predicted(others: FitRows) -> np.ndarray:
            assert not {*train.numbers[:, 0]} & {*others.numbers[:, 0]}
            assert others.numbers[:, 1].all()
            judged.append(len(others))
            return Told(2).predicted(others)

        return SimpleNamespace(predicted=predicted)

    choose_candidates(rows, torch.from_numpy(y), BINARY, {"one": fit, "two": fit}, folds, 0, scored_rows, group)
    assert len(judged) == 2 * folds
    if most == 10**6:
        assert sum(judged) == 2 * scored_rows.sum()


@pytest.mark.parametrize("classes", [2, 0])
def test_weights_of_rows_count_in_scores_and_in_the_average(classes: int) -> None:
    """A candidate that is right in the rows that weigh most is chosen, and has the loss of these."""
    y, heavy = np.tile([0, 1], 40), np.repeat([True, False], 40)
    wrong = 1.0 - y if not classes else np.where(y, 0.1, 0.9)
    right = 1.0 * y if not classes else np.where(y, 0.9, 0.1)
    numbers = np.stack([np.where(heavy, right, wrong), np.where(heavy, wrong, right)], axis=1)
    rows = replace(rows_of(numbers, y if classes else y.astype(float), classes), weights=np.where(heavy, 99.0, 1.0))
    task = BINARY if classes else Task.fitted("regression", (), torch.from_numpy(y.astype(float)))

    def told(column: int) -> Any:
        value = Told(column).predicted if classes else lambda rows: rows.numbers[:, [column]].astype(np.float64)
        return lambda *_: SimpleNamespace(predicted=value)

    choice = choose_candidates(
        rows, torch.from_numpy(y), task, {"heavy": told(0), "light": told(1)}, 2, 0, np.ones(80, dtype=bool)
    )
    losses = {each.name: each.loss for each in choice.candidates}
    expected = -(0.99 * np.log(0.9) + 0.01 * np.log(0.1)) if classes else (0.01 * 1.0) ** 0.5 * task.scale
    assert losses["heavy"] == pytest.approx(expected, rel=1e-5)
    assert choice.weights["heavy"] > 0.9
    judged = _HeldOutRows(rows, torch.from_numpy(y), task, [np.arange(80)])
    predictions = [told(column)().predicted(rows) for column in (0, 1)]
    assert judged.weights(predictions, np.arange(80)).tolist() == [1.0, 0.0]
    assert judged.weights(predictions, np.arange(40, 80)).tolist() == [0.0, 1.0]


def test_weights_of_models_that_hardly_differ_are_those_of_the_least_loss() -> None:
    """Of labels that are mostly noise: 200 steps of EM would stay near equal weights."""
    draw = np.random.default_rng(0)
    better, worse = 0.5 + 0.08 * np.tanh(draw.normal(size=(2, 4000)))
    rows = rows_of(np.zeros((4000, 1)), (draw.random(4000) < better).astype(np.int64), 2)
    predictions = [np.log(np.stack([1 - share, share], axis=1)) for share in (better, worse)]
    assert weights_of(predictions, rows)[0] > 0.85


def test_folds() -> None:
    assert [folds_of(rows) for rows in (499, 500, 10_000, 10_001)] == [5, 3, 3, 1]
    draw = np.random.default_rng(0)
    x = draw.normal(size=(17_000, 2))
    choice = chosen(x, (x[:, 0] + draw.normal(size=17_000) > 0).astype(np.int64), linear=FITS["linear"])
    assert choice.folds == 1
    only = choice.candidates[0]
    assert only.score == pytest.approx(0.75, abs=0.25)
    assert 0 < only.error < 0.02


def test_a_regression_is_scored_in_the_unit_of_its_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    fit_briefly(monkeypatch)
    x, y = load_diabetes(return_X_y=True)
    task = Task.fitted("regression", (), torch.from_numpy(y))
    result = {each.name: each for each in chosen(x, y, task).candidates}
    assert result["linear"].score > 0.45
    assert result["linear"].loss == pytest.approx(55, abs=4)
    assert result[AVERAGE].score > 0.45


def test_candidates_that_all_predict_every_row_exactly_are_chosen_from() -> None:
    y = np.repeat([1.0, 3.0], 30)
    x, task = y[:, None], Task.fitted("regression", (), torch.from_numpy(y))

    def exact(rows: FitRows, seed: int) -> Any:
        return SimpleNamespace(predicted=lambda held: held.targets[:, None])

    choice = chosen(x, y, task, first=exact, second=exact)
    assert (choice.chosen, choice.weights) == ("first", {"first": 1.0})
    assert {each.loss for each in choice.candidates} == {0.0}


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_logistic_regression_is_that_of_scikit_learn(load: Any) -> None:
    x, y = load(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    part = fit_linear(rows_of(x, y.astype(np.int64), len(set(y))), 0)
    losses = []
    for strength in (0.001, 0.01, 0.1, 1.0, 10.0):
        model = LogisticRegression(C=strength, max_iter=5_000).fit(x, y)
        losses.append(float(np.abs(part.predicted(rows_of(x, y, len(set(y)))) - model.predict_log_proba(x)).mean()))
    assert min(losses) < 0.05
    assert sorted(losses)[1] > 3 * min(losses)


def test_ridge_regression_predicts_as_that_of_scikit_learn() -> None:
    x, y = load_diabetes(return_X_y=True)
    y = (y - y.mean()) / y.std()
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    predicted = fit_linear(rows_of(x[:300], y[:300], 0), 0).predicted(rows_of(x[300:], y[300:], 0))[:, 0]
    ours, theirs = (
        1 - np.square(p - y[300:]).mean() / y[300:].var()
        for p in (predicted, Ridge().fit(x[:300], y[:300]).predict(x[300:]))
    )
    assert ours > theirs - 0.02


def test_categories_of_many_codes_are_a_sparse_matrix_with_the_same_result() -> None:
    draw = np.random.default_rng(0)
    codes = draw.integers(60, size=(4_000, 3))
    effects = draw.normal(size=(3, 60))
    value = sum(effects[column][codes[:, column]] for column in range(3))
    y = (value + draw.logistic(size=4_000) > 0).astype(np.int64)
    rows = FitRows(codes, np.empty((4_000, 0), np.float32), (60, 60, 61), y, 2)
    part = fit_linear(rows, 0)
    table = part.table[:, 1] - part.table[:, 0]
    first = table[part.inputs.groups[:60]].numpy()
    assert np.corrcoef(first, effects[0])[0, 1] > 0.95
    assert bool(part(torch.tensor([[0, 0, 60]]), torch.zeros(1, 0)).isfinite().all())


def test_networks_match_scikit_learns_on_few_rows() -> None:
    x, y = load_wine(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:110], order[110:]
    predicted = fit_network(rows_of(x[train], y[train].astype(np.int64), 3), 0).predicted(rows_of(x[test], y[test], 3))
    accuracy = float((predicted.argmax(axis=1) == y[test]).mean())
    assert (
        accuracy >= MLPClassifier(random_state=0, max_iter=1_000).fit(x[train], y[train]).score(x[test], y[test]) - 0.02
    )


def test_a_network_learns_an_interaction_of_a_category_and_a_number() -> None:
    draw = np.random.default_rng(0)
    codes, numbers = draw.integers(2, size=(3_000, 1)), draw.normal(size=(3_000, 1)).astype(np.float32)
    y = ((codes[:, 0] == 1) == (numbers[:, 0] > 0)).astype(np.int64)
    rows = FitRows(codes, numbers, (2,), y, 2)
    predicted = fit_network(rows.take(np.arange(2_000)), 0).predicted(rows.take(np.arange(2_000, 3_000)))
    assert (predicted.argmax(axis=1) == y[2_000:]).mean() > 0.95


def test_own_columns_are_no_candidate_where_another_ranks_clearly_better() -> None:
    """Noise on a partner's columns makes probabilities too bold: a greater loss, and the better ranking."""
    from cutlayer.models.top_estimators.choice import OWN_COLUMNS, _is_own_behind

    bold = {"boosting": (0.725, 0.01, 0.437), OWN_COLUMNS: (0.685, 0.01, 0.427)}
    assert _is_own_behind(bold)
    assert not _is_own_behind({"boosting": (0.693, 0.01, 0.437), OWN_COLUMNS: (0.685, 0.01, 0.427)})
    assert not _is_own_behind({"boosting": (float("nan"), 0.01, 0.4), OWN_COLUMNS: (0.685, float("nan"), 0.4)})
    assert not _is_own_behind({"boosting": (0.9, 0.01, 0.4)})
