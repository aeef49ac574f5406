"""One row of each id, drawn by a key, and the label of it, drawn: what the law of both together is."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch

from cutlayer.kernels.noise.one_of_each import draw_row_of_each_id
from cutlayer.kernels.noise.randomized_response import randomized_response, transition_matrix

SECRET = bytes(range(32))
Labels = tuple[int, ...]


def digests(count: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(256, size=(count, 16), dtype=np.uint8)


def chosen_of(sizes: npt.NDArray[np.int64], secret: bytes = SECRET) -> npt.NDArray[np.int64]:
    """Number of the chosen row among those of its id, by the number of rows of each id."""
    ids = np.repeat(np.arange(len(sizes)), sizes)
    chosen, of_rows = draw_row_of_each_id(ids, np.repeat(digests(len(sizes)), sizes, axis=0), secret)
    assert (of_rows == ids).all()
    assert (ids[chosen] == np.arange(len(sizes))).all()
    return chosen - (np.cumsum(sizes) - sizes)


def law(labels: Labels, eps: float, classes: int) -> npt.NDArray[np.float64]:
    """Exact probability of each drawn label of an id: the mean over its rows of randomised response."""
    return transition_matrix(eps, classes).numpy()[list(labels)].mean(axis=0)


@pytest.mark.parametrize(("eps", "classes"), [(0.5, 2), (1.0, 2), (2.0, 3)])
def test_no_two_sets_of_labels_of_an_id_differ_by_more_than_epsilon(eps: float, classes: int) -> None:
    """All sets of one to three labels: any replaced, added and removed rows, as long as one is left."""
    sets = [labels for size in (1, 2, 3) for labels in product(range(classes), repeat=size)]
    laws = {labels: law(labels, eps, classes) for labels in sets}
    differ = {(a, b): math.log((laws[a] / laws[b]).max()) for a in sets for b in sets}
    assert max(differ.values()) == pytest.approx(eps)
    one = [
        found
        for (a, b), found in differ.items()
        if len(a) == len(b) == 3 and sum(x != y for x, y in zip(a, b, strict=True)) == 1
    ]
    assert max(one) <= math.log1p((math.exp(eps) - 1) / 3) + 1e-9 < eps


@pytest.mark.parametrize("labels", [(1,), (0, 1), (0, 0, 1), (2, 1, 1), (2, 0, 1, 1)])
def test_what_is_drawn_has_this_law(labels: Labels) -> None:
    count, eps, classes = 40_000, 1.0, 3
    sizes = np.full(count, len(labels))
    ids, own = np.repeat(np.arange(count), sizes), digests(count)
    every = np.tile(np.array(labels, dtype=np.float64), count)
    chosen, _ = draw_row_of_each_id(ids, np.repeat(own, sizes, axis=0), SECRET, every)
    codes = torch.from_numpy(every[chosen]).long()
    drawn = randomized_response(codes, torch.from_numpy(own), classes, eps, SECRET, "label")
    expected = law(labels, eps, classes)
    error = np.sqrt(expected * (1 - expected) / count)
    assert (np.abs(np.bincount(drawn, minlength=classes) / count - expected) < 4.5 * error).all()


def test_each_row_of_an_id_is_as_likely_as_any_other() -> None:
    counts = np.bincount(chosen_of(np.full(30_000, 5)), minlength=5)
    assert (np.abs(counts - 6000) < 4.5 * math.sqrt(30_000 * 0.16)).all()


def test_a_further_row_changes_the_choice_only_where_it_is_chosen() -> None:
    before, after = chosen_of(np.full(10_000, 3)), chosen_of(np.full(10_000, 4))
    moved = before != after
    assert (after[moved] == 3).all()
    assert 0.22 < moved.mean() < 0.28


def test_the_choice_is_of_the_secret_and_the_id_alone() -> None:
    sizes = np.random.default_rng(1).integers(1, 6, size=500)
    first = chosen_of(sizes)
    assert (chosen_of(sizes) == first).all()
    assert (chosen_of(sizes[:100]) == first[:100]).all()
    assert (chosen_of(sizes, bytes(32)) != first).mean() > 0.4
    assert (first[sizes == 1] == 0).all()
    chosen, of_rows = draw_row_of_each_id(np.zeros(0, np.int64), digests(0), SECRET)
    assert len(chosen) == len(of_rows) == 0


def labelled(labels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The label of the chosen row of each id, by the labels of its rows, (ids, rows)."""
    count, rows = labels.shape
    ids, own = np.repeat(np.arange(count), rows), np.repeat(digests(count), rows, axis=0)
    chosen, of_rows = draw_row_of_each_id(ids, own, SECRET, labels.ravel())
    assert (of_rows == ids).all()
    assert (ids[chosen] == np.arange(count)).all()
    return labels.ravel()[chosen]


@pytest.mark.parametrize("values", [2, 5, 1000])
def test_the_order_of_the_rows_of_an_id_has_no_part_in_the_label(values: int) -> None:
    """A table of the same rows in another order is no other table, whose labels would be refused as changed."""
    draw = np.random.default_rng(0)
    labels = draw.integers(values, size=(2000, 4)) / 7
    first = labelled(labels)
    assert (labelled(draw.permuted(labels, axis=1)) == first).all()


def test_a_further_row_anywhere_changes_the_label_only_to_its_own() -> None:
    draw = np.random.default_rng(0)
    labels, new = draw.normal(size=(10_000, 3)), draw.normal(size=10_000)
    before, after = labelled(labels), labelled(np.insert(labels, 1, new, axis=1))
    moved = before != after
    assert (after[moved] == new[moved]).all()
    assert 0.22 < moved.mean() < 0.28
