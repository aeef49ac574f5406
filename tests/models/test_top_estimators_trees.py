"""Trees as tensors predict what scikit-learn predicts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from cutlayer.kernels.rows.grade_columns import columns_of_grades
from cutlayer.models.top_estimators.boosting import fit_boosting, nested_runs
from cutlayer.models.top_estimators.rows import MIN_LOG_PROBABILITY, FitRows
from cutlayer.models.top_estimators.trees import TreeEnsemble

ROWS, CARDS = 700, (6, 40)


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Codes (n, 2) and numbers (n, 3) with missing values."""
    draw = np.random.default_rng(seed)
    codes = np.stack([draw.integers(count, size=ROWS) for count in CARDS], axis=1)
    numbers = draw.normal(size=(ROWS, 3)).astype(np.float32)
    numbers[draw.random((ROWS, 3)) < 0.1] = np.nan
    return codes, numbers


def target(codes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    known = np.nan_to_num(numbers, nan=2.0)
    return np.sin(codes[:, 0] * 2.0) + (codes[:, 1] % 5 == 0) * 2 + known[:, 0] * known[:, 1] + known[:, 2]


def identity(count: int) -> tuple[np.ndarray, int]:
    return np.arange(count), count


def test_two_classes_several_classes_and_a_regression_equal_the_fitted_estimator() -> None:
    codes, numbers = table()
    value = target(codes, numbers)
    x = np.concatenate([codes, numbers], axis=1)
    fresh_codes, fresh = table(1)
    other = np.concatenate([fresh_codes, fresh], axis=1)
    flags = [True, True, False, False, False]
    settings = {"categorical_features": flags, "random_state": 0, "max_iter": 12}
    cases = [
        (HistGradientBoostingClassifier(**settings), (value > 0).astype(int), 2),
        (HistGradientBoostingClassifier(**settings), np.digitize(value, [-1, 0, 2]), 4),
        (HistGradientBoostingRegressor(**settings), value, 0),
        (HistGradientBoostingRegressor(random_state=0, max_leaf_nodes=2, max_iter=3), value, 0),
    ]
    for model, labels, classes in cases:
        model.fit(x, labels)
        as_numbers = model._is_categorical_remapped is None
        assert as_numbers or any(node["is_categorical"] for each in model._predictors for node in each[0].nodes)
        ranks = [] if as_numbers else [identity(count) for count in CARDS]
        trees = TreeEnsemble.of(model, ranks, 5 if as_numbers else 3, classes)
        given = (np.empty((ROWS, 0), np.int64), other) if as_numbers else (fresh_codes, fresh)
        raw = trees.raw(torch.from_numpy(given[0]), torch.from_numpy(given[1]))
        wanted = model.decision_function(other) if classes else model.predict(other)
        np.testing.assert_allclose(raw.numpy().reshape(wanted.shape), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("leaves", [2, 31, 32, 33])
@pytest.mark.parametrize("classes", [0, 3])
def test_leaves_of_many_rows_are_those_of_a_walk_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, classes: int, leaves: int
) -> None:
    codes, numbers = table()
    value = target(codes, numbers)
    labels = np.digitize(value, np.quantile(value, np.arange(1, classes) / classes)) if classes else value
    rows = FitRows(codes, numbers, CARDS, labels, classes)
    trees = fit_boosting(rows, 0, {"max_iter": 10, "max_leaf_nodes": leaves, "min_samples_leaf": 2})
    assert (trees._masked(3)[0] is None) == (leaves > 32)
    fresh_codes, fresh = table(1)
    fresh[:20, 2] = trees.threshold[trees.feature % 3 == 2][0]  # on a border, or the nearest float32 to it
    fresh[20:30] = np.inf
    fresh[30:40] = -np.inf
    given = torch.from_numpy(fresh_codes), torch.from_numpy(fresh)
    fast = trees.raw(*given)
    monkeypatch.setattr("cutlayer.models.top_estimators.trees.MASKED_ROWS", ROWS + 1)
    assert trees.raw(*given).equal(fast)


def test_a_model_that_is_loaded_over_another_looks_up_its_own_leaves() -> None:
    codes, numbers = table()
    given = torch.from_numpy(codes), torch.from_numpy(numbers)
    one, other = (
        fit_boosting(FitRows(codes, numbers, CARDS, sign * target(codes, numbers), 0), 0, {"max_iter": 3})
        for sign in (1, -1)
    )
    wanted = other.raw(*given)
    assert not one.raw(*given).equal(wanted)
    one.load_state_dict(other.state_dict())
    assert one.raw(*given).equal(wanted)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_a_fit_by_several_threads_is_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch, classes: int) -> None:
    codes, numbers = table()
    value = target(codes, numbers)
    labels = np.digitize(value, np.quantile(value, np.arange(1, classes) / classes)) if classes else value
    rows, made = FitRows(codes, numbers, CARDS, labels, classes), []
    for threads in (1, 3):
        monkeypatch.setattr("cutlayer.models.top_estimators.boosting.work_threads", lambda count=threads: count)
        monkeypatch.setattr("cutlayer.models.top_estimators.boosting.MANY_ROWS", 0)
        made.append(list(fit_boosting(rows, 0, {"max_iter": 4}).buffers()))
    assert all(one.equal(three) for one, three in zip(*made, strict=True))


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_columns_of_a_grade_are_fitted_as_one_and_read_as_they_are(classes: int) -> None:
    codes, numbers = table()
    value = np.nan_to_num(numbers[:, 0] + numbers[:, 1])
    grade = np.digitize(value, [-1.5, -0.5, 0.5, 1.5]) + 3 * (value > 2)  # some grades have no row
    nested = columns_of_grades(torch.from_numpy(grade), 9).numpy()
    nested[:40] = np.nan  # of a row that was not sent
    beside = np.column_stack([numbers[:, 1], nested, numbers[:, 2] > 0]).astype(np.float32)
    value = target(codes, numbers)
    labels = np.digitize(value, np.quantile(value, np.arange(1, classes) / classes)) if classes else value
    assert nested_runs(beside) == [range(1), range(1, 10), range(10, 11)]

    rows = FitRows(codes, beside, CARDS, labels, classes)
    trees = fit_boosting(rows, 0, {"max_iter": 8})
    summed = np.column_stack([numbers[:, 1], nested.sum(axis=1), numbers[:, 2] > 0]).astype(np.float32)
    one = fit_boosting(FitRows(codes, summed, CARDS, labels, classes), 0, {"max_iter": 8})
    given = torch.from_numpy(codes)
    assert trees.raw(given, torch.from_numpy(beside)).equal(one.raw(given, torch.from_numpy(summed)))
    assert len({column % 11 for column in trees.feature.tolist() if column < 22} & {*range(1, 10)}) > 2

    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    flags = np.arange(13) < 2
    model = kind(categorical_features=flags, random_state=0, max_iter=8)
    apart = np.concatenate([codes, beside], axis=1)
    model.fit(apart, labels)
    wanted = model.decision_function(apart) if classes else model.predict(apart)
    np.testing.assert_allclose(
        trees.raw(given, torch.from_numpy(beside)).numpy().reshape(wanted.shape), wanted, atol=1e-9
    )


def test_columns_that_are_not_nested_are_fitted_apart() -> None:
    flags = np.array([[1, 0], [1, 1], [0, 0], [1, np.nan]], dtype=np.float32)
    assert nested_runs(flags) == [range(1), range(1, 2)]
    assert nested_runs(flags[:3]) == [range(2)]
    assert nested_runs(np.array([[1, 0], [0, 1]], dtype=np.float32)) == [range(1), range(1, 2)]
    assert nested_runs(np.array([[1, 0], [2, 1]], dtype=np.float32)) == [range(1), range(1, 2)]
    assert nested_runs(np.zeros((3, 0), np.float32)) == []


def test_unseen_codes_and_codes_beyond_the_limit_of_the_library_count_as_missing() -> None:
    draw = np.random.default_rng(0)
    codes = draw.integers(500, size=(3_000, 1))
    labels = (np.sin(codes[:, 0]) + draw.normal(size=3_000) > 0).astype(np.int64)
    rows = FitRows(codes, np.empty((3_000, 0), np.float32), (900,), labels, 2)
    trees = fit_boosting(rows, 0, {"max_iter": 20})
    every = torch.arange(900)[:, None]
    predicted = trees(every, torch.zeros(900, 0))
    unseen = np.setdiff1d(np.arange(900), codes)
    assert len(unseen) > 250
    assert predicted[unseen].unique(dim=0).shape[0] == 1
    counts = np.bincount(codes[:, 0], minlength=900)
    rare = int(np.argmin(np.where(counts > 0, counts, 3_000)))
    assert torch.equal(predicted[rare], predicted[unseen[0]])
    assert predicted.unique(dim=0).shape[0] > 20
    # What the library itself predicts for a missing category.
    ranks, count = trees.ranks.numpy(), int(trees.ranks.max())
    ranked = np.where(ranks[codes] == count, np.nan, ranks[codes])
    model = HistGradientBoostingClassifier(categorical_features=[True], max_iter=20, random_state=0).fit(ranked, labels)
    wanted = model.decision_function(np.array([[np.nan], [0.0], [7.0]]))
    codes_of = torch.tensor(
        [[int(unseen[0])], [int(np.flatnonzero(ranks == 0)[0])], [int(np.flatnonzero(ranks == 7)[0])]]
    )
    np.testing.assert_allclose(trees.raw(codes_of, torch.zeros(3, 0))[:, 0].numpy(), wanted, rtol=0, atol=1e-12)


def test_a_number_that_was_never_missing_in_the_fit_may_be_missing_later() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(400, 2)).astype(np.float32)
    y = (x[:, 0] > 0.5).astype(int)
    model = HistGradientBoostingClassifier(random_state=0).fit(x, y)
    holes = np.array([[np.nan, 0.1], [0.2, np.nan], [np.nan, np.nan]], dtype=np.float32)
    raw = TreeEnsemble.of(model, [], 2, 2).raw(torch.zeros(3, 0, dtype=torch.int64), torch.from_numpy(holes))
    np.testing.assert_allclose(raw[:, 0].numpy(), model.decision_function(holes), rtol=0, atol=1e-12)


def test_every_buffer_is_finite_and_a_class_without_a_row_has_the_lowest_probability() -> None:
    codes, numbers = table()
    # Missing or not is all that the label depends on, so that a tree parts the missing values from all others.
    labels = np.where(np.isnan(numbers[:, 0]), 3, 1)
    trees = fit_boosting(FitRows(codes, numbers, CARDS, labels, 5), 0)
    assert all(bool(buffer.isfinite().all()) for buffer in trees.buffers())
    predicted = trees(torch.from_numpy(codes), torch.from_numpy(numbers))
    assert predicted.shape == (ROWS, 5)
    np.testing.assert_array_equal(predicted.argmax(1).numpy(), labels)
    assert bool((predicted[:, [0, 2, 4]] == MIN_LOG_PROBABILITY).all())


@pytest.mark.parametrize("weighted", [False, True])
def test_row_weights_reach_the_library(weighted: bool) -> None:
    codes, numbers = table()
    labels = np.random.default_rng(0).integers(2, size=ROWS)
    weights = np.where(labels == 1, 5.0, 0.2) if weighted else None
    part = fit_boosting(FitRows(codes, numbers, CARDS, labels, 2, weights), 0, {"max_iter": 5})
    given = np.ones(ROWS) if weights is None else weights
    odds = given[labels == 1].sum() / given[labels == 0].sum()
    assert float(part.baseline) == pytest.approx(np.log(odds))  # from which the trees start


def test_trees_that_lead_back_or_have_two_parents_are_refused() -> None:
    codes, numbers = table()
    rows = FitRows(codes, numbers, CARDS, (target(codes, numbers) > 0).astype(int), 2)
    state = fit_boosting(rows, 0, {"max_iter": 2}).state_dict()
    inner = (state["left"] != torch.arange(len(state["left"]))).nonzero()[:, 0]
    TreeEnsemble().load_state_dict(state)
    for node, child in ((inner[1], 0), (inner[1], state["left"][inner[2]]), (inner[1], len(state["left"]) - 1)):
        left = state["left"].clone()
        left[node] = child
        with pytest.raises(RuntimeError, match="trees whose nodes do not lead on"):
            TreeEnsemble().load_state_dict(state | {"left": left})
