"""What passive parties add to own columns: the paired gain with its interval, and Shapley values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cutlayer.problem.task import Task
from cutlayer.results.utility import Difference, Gain
from cutlayer.training import utility
from cutlayer.training.contributions import contributions, difference_to, gain_over, shapley, utility_by_pattern
from cutlayer.training.utility import interval, metric_replicates, percentile_interval

BINARY = Task("binary", ("no", "yes"))


def outcome(task: Task, logits: Tensor, labels: Tensor, without: dict[tuple[str, ...], Tensor] | None = None) -> Any:
    return SimpleNamespace(task=task, logits=logits, labels=labels, logits_without=without or {})


def drawn(rows: int, seed: int, helps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, logits of own columns, and logits of a model that has a partner's column as well."""
    draw = torch.Generator().manual_seed(seed)
    own, other = torch.randn(2, rows, generator=draw)
    labels = (torch.rand(rows, generator=draw) < torch.sigmoid(own + helps * other)).long()
    return labels, own[:, None], (own + (helps or 0.05) * other)[:, None]


def test_shapley_values_of_a_worked_example() -> None:
    """By hand: in the six orders a adds 10, 10, 30, 30, 10 and 30."""
    worth = {"": 0, "a": 10, "b": 20, "c": 0, "ab": 50, "ac": 10, "bc": 30, "abc": 60}
    values = shapley("abc", {frozenset(names): np.array([float(value)]) for names, value in worth.items()})
    assert {name: float(value[0]) for name, value in values.items()} == pytest.approx({"a": 20, "b": 35, "c": 5})


def test_the_parts_of_the_parties_are_the_whole_gain() -> None:
    labels, own, _ = drawn(2000, 0, 1.0)
    draw = torch.Generator().manual_seed(1)
    a, b = (labels[:, None] * 0.8 + torch.randn(2000, 1, generator=draw) for _ in range(2))
    given = outcome(BINARY, own + a + b, labels, {("a",): own + b, ("b",): own + a, ("a", "b"): own})
    found = contributions(given, ("a", "b"), 0)
    assert [gain.parties for gain in found] == [("a",), ("b",)]
    whole = gain_over(given, own, ("a", "b"), 0)
    assert sum(gain.value or 0 for gain in found) == pytest.approx(whole.value)
    assert all((gain.low or 0) < (gain.value or 0) < (gain.high or 0) for gain in found)


def test_without_own_columns_the_gain_is_over_chance() -> None:
    labels, own, _ = drawn(500, 0, 1.0)
    (only,) = contributions(outcome(BINARY, own, labels), ("a",), 0)
    assert only.value == pytest.approx(BINARY.evaluate(own, labels)["auc"] - 0.5)


def test_the_difference_to_any_model_is_paired_and_that_of_the_gain() -> None:
    labels, own, both = drawn(2000, 3, 1.0)
    ahead = difference_to(outcome(BINARY, both, labels), own, 0)
    assert Gain(parties=("a",), **dict(ahead)) == gain_over(outcome(BINARY, both, labels), own, ("a",), 0)
    same = difference_to(outcome(BINARY, both, labels), both, 0)
    assert (same.value, same.low, same.high) == (0, 0, 0)
    assert difference_to(outcome(BINARY, both[:1], labels[:1]), own[:1], 0) == Difference()


def test_a_group_of_few_rows_has_no_metric_nor_one_from_which_it_follows() -> None:
    labels, own, _ = drawn(300, 5, 1.0)
    given = outcome(BINARY, own, labels)
    sizes = {("a", "b"): 180, ("a",): 95, ("b",): 9, (): 16}
    held = [names for names, size in sizes.items() for _ in range(size)]
    given.present = {name: torch.tensor([name in names for names in held]) for name in "ab"}
    found = {pattern.parties: pattern for pattern in utility_by_pattern(given, ("a", "b"), 0, None)}
    assert {names: pattern.rows for names, pattern in found.items()} == sizes
    # With all but the 9 and the 16, of which there are 25 together, nobody has a figure of fewer than 20.
    assert {names for names, pattern in found.items() if pattern.value is None} == {("b",), ()}
    assert {names for names, pattern in found.items() if pattern.low is None} == {("b",), ()}
    given.present = {"a": torch.arange(300) < 291, "b": torch.ones(300, dtype=torch.bool)}
    assert [pattern.value for pattern in utility_by_pattern(given, ("a", "b"), 0, None)] == [None, None]


@pytest.mark.parametrize(("helps", "shown"), [(1.0, 1), (0.0, 0)])
def test_a_useful_partner_is_shown_and_a_useless_one_is_not(helps: float, shown: int) -> None:
    labels, own, both = drawn(2000, 3, helps)
    assert gain_over(outcome(BINARY, both, labels), own, ("a",), 0).shown == shown
    assert gain_over(outcome(BINARY, own, labels), both, ("a",), 0).shown == -shown


def test_the_interval_covers_the_true_gain() -> None:
    """Nineteen in twenty intervals do; of 120 at least 107 do with a probability of 99 %."""
    labels, own, both = drawn(400_000, 4, 0.5)
    truth = BINARY.evaluate(both, labels)["auc"] - BINARY.evaluate(own, labels)["auc"]
    gains = [gain_over(outcome(BINARY, both, labels), own, ("a",), 0) for labels, own, both in map(sample, range(120))]
    covered = [gain.low <= truth <= gain.high for gain in gains if gain.low is not None and gain.high is not None]
    assert 107 <= sum(covered) <= 119 + (len(covered) == 120)
    assert np.mean([gain.low for gain in gains]) > truth - 0.06  # an interval of any width would cover


def sample(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    return drawn(600, 100 + seed, 0.5)


def test_pairing_narrows_the_interval() -> None:
    labels, own, both = drawn(1000, 5, 0.3)
    low, high = (gain := gain_over(outcome(BINARY, both, labels), own, ("a",), 0)).low, gain.high
    alone = interval(BINARY, own, labels, 0)
    assert low is not None and high is not None  # noqa: PT018
    assert high - low < 0.8 * (alone[1] - alone[0])


def test_resamples_of_an_auc_spread_as_those_of_the_rows_themselves() -> None:
    labels, own, _ = drawn(300, 6, 0.5)
    draw = np.random.default_rng(0)
    rows = torch.from_numpy(draw.integers(300, size=(1000, 300)))
    exact = percentile_interval(np.array([BINARY.evaluate(own[some], labels[some])["auc"] for some in rows]))
    assert percentile_interval(metric_replicates(BINARY, own, labels, 0)) == pytest.approx(exact, abs=0.006)


def test_blocks_of_many_rows_spread_as_the_rows_do(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, own, _ = drawn(4000, 8, 0.5)
    low, high = percentile_interval(metric_replicates(BINARY, own, labels, 0))
    monkeypatch.setattr(utility, "MAX_RESAMPLED_UNITS", 500)
    assert percentile_interval(metric_replicates(BINARY, own, labels, 0)) == pytest.approx(
        (low, high), abs=0.2 * (high - low)
    )


@pytest.mark.parametrize("task", [Task("multiclass", ("a", "b", "c")), Task("regression")])
def test_every_task_has_a_gain(task: Task) -> None:
    draw = torch.Generator().manual_seed(7)
    if task.kind == "regression":
        labels = torch.randn(500, generator=draw)
        good = labels[:, None] + 0.5 * torch.randn(500, 1, generator=draw)
    else:
        labels = torch.randint(3, (500,), generator=draw)
        good = torch.nn.functional.one_hot(labels, 3) + 0.5 * torch.randn(500, 3, generator=draw)
    gain = gain_over(outcome(task, good, labels), torch.zeros_like(good), ("a",), 0)
    assert gain.shown == 1
    assert gain.value == pytest.approx(
        task.evaluate(good, labels)[task.metric] - task.evaluate(torch.zeros_like(good), labels)[task.metric]
    )


def test_rows_of_one_class_have_no_gain() -> None:
    gain = gain_over(outcome(BINARY, torch.randn(9, 1), torch.ones(9).long()), torch.randn(9, 1), ("a",), 0)
    assert (gain.value, gain.low, gain.high, gain.shown) == (None, None, None, 0)
