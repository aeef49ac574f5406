"""Randomised response: rates by exact binomial bounds, and a draw that belongs to the row."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cutlayer.errors import ConfigError, DataError
from cutlayer.kernels.noise import randomized_response as module
from cutlayer.kernels.noise.randomized_response import flip_probability, flip_threshold, randomized_response

SECRET = bytes(range(100, 132))
ROWS = 60_000


def digests(rows=ROWS, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (rows, 16), dtype=np.uint8))


def codes(classes, rows=ROWS, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, classes, rows))


def rate_fits(flips, rows, probability):
    """Whether so many flips are within the exact binomial bounds of a false-alarm rate of 1e-6."""
    low, high = stats.binom.interval(1 - 1e-6, rows, probability)
    return low <= flips <= high


@pytest.mark.parametrize("eps", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_flip_rate_is_exact_and_wrong_rates_are_seen(eps, classes):
    y = codes(classes)
    flips = int((randomized_response(y, digests(), classes, eps, SECRET, "y") != y).sum())
    probability = (classes - 1) / (classes - 1 + math.exp(eps))
    assert flip_probability(eps, classes) == pytest.approx(probability, rel=1e-12)
    assert rate_fits(flips, ROWS, probability)
    for wrong in (2 / 3, 3 / 2):
        assert not rate_fits(flips, ROWS, min(wrong * probability, 1.0))


@settings(deadline=None)
@given(st.floats(0, 60), st.integers(2, 2000))
def test_no_two_labels_are_told_apart_beyond_eps(eps, classes):
    """With the probabilities that 64-bit words give, in exact arithmetic; one word fewer would be too few."""
    threshold = flip_threshold(eps, classes)
    rarest = Fraction(2**64 // (classes - 1), 2**64)

    def ratio(words):
        return (2**64 - words) / (words * rarest)

    with mp.workdps(80):
        bound = mp.exp(mp.mpf(eps))
        assert mp.mpf(ratio(threshold).numerator) / ratio(threshold).denominator <= bound
        fewer = threshold - 1
        assert fewer == 0 or mp.mpf(ratio(fewer).numerator) / ratio(fewer).denominator > bound * (1 - mp.mpf(10) ** -49)
    assert threshold / 2**64 == pytest.approx(flip_probability(eps, classes), rel=1e-12, abs=2.0**-64)


def test_a_threshold_from_float64_would_be_too_small():
    """That the test above can fail: for some eps the probability in float64 lies below the exact one."""
    rounded = [(eps / 64, math.ceil(flip_probability(eps / 64, 2) * 2**64)) for eps in range(1, 640)]
    assert any(threshold < flip_threshold(eps, 2) for eps, threshold in rounded)
    assert flip_threshold(1e300, 5) == 1


def test_every_label_flips_at_the_same_rate():
    y = codes(2)
    drawn = randomized_response(y, digests(), 2, 1.0, SECRET, "y")
    for label in (0, 1):
        mine = y == label
        assert rate_fits(int((drawn != y)[mine].sum()), int(mine.sum()), flip_probability(1.0, 2))


def test_the_other_classes_are_taken_uniformly():
    y = torch.full((ROWS,), 2)
    drawn = randomized_response(y, digests(), 5, 0.5, SECRET, "y")
    counts = torch.bincount(drawn[drawn != y], minlength=5)
    assert counts[2] == 0
    assert stats.chisquare(counts[[0, 1, 3, 4]].numpy()).pvalue > 1e-3


def test_a_majority_vote_over_epochs_recovers_no_more_than_one_draw():
    y = codes(2)
    votes = torch.stack([randomized_response(y, digests(), 2, 1.0, SECRET, "y") for _ in range(15)])
    right = (votes.double().mean(0).round() == y).double().mean()
    assert float(right) == pytest.approx(1 / (1 + math.exp(-1)), abs=0.01)
    assert torch.equal(votes[0], votes[14])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.floats(0, 4))
def test_a_draw_depends_on_neither_order_nor_company(seed, classes, eps):
    y, ids = codes(classes, 200, seed), digests(200, seed)
    whole = randomized_response(y, ids, classes, eps, SECRET, "y")
    some = torch.from_numpy(np.random.default_rng(seed).permutation(200)[:80])
    assert torch.equal(randomized_response(y[some], ids[some], classes, eps, SECRET, "y"), whole[some])


def test_pieces_join_without_a_seam(monkeypatch):
    y, ids = codes(3, 1000), digests(1000)
    whole = randomized_response(y, ids, 3, 1.0, SECRET, "y")
    monkeypatch.setattr(module, "_ROWS_AT_A_TIME", 64)
    assert torch.equal(randomized_response(y, ids, 3, 1.0, SECRET, "y"), whole)


@pytest.mark.parametrize(
    "other",
    [
        {"eps": 1.0 + 2**-40},
        {"secret": bytes(32)},
        {"column": "z"},
        {"classes": 3},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_purpose_draws_independently(other):
    y, ids = codes(2), digests()
    base = {"classes": 2, "eps": 1.0, "secret": SECRET, "column": "y"}
    first = (randomized_response(y, ids, **base) != y).double()
    second = (randomized_response(y, ids, **(base | other)) != y).double()
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 5 / ROWS**0.5


def test_the_draw_of_a_row_does_not_tell_what_its_other_label_would_have_drawn():
    ids = digests()
    zeros, ones = torch.zeros(ROWS, dtype=torch.int64), torch.ones(ROWS, dtype=torch.int64)
    first = randomized_response(zeros, ids, 2, 1.0, SECRET, "y").double()
    second = 1 - randomized_response(ones, ids, 2, 1.0, SECRET, "y").double()
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 5 / ROWS**0.5


def test_a_huge_eps_keeps_everything_and_none_is_a_valid_table():
    y = codes(4)
    assert torch.equal(randomized_response(y, digests(), 4, 1000.0, SECRET, "y"), y)
    assert randomized_response(y[:0], digests(0), 4, 1.0, SECRET, "y").shape == (0,)


def test_the_input_is_left_alone():
    y = codes(2, 500)
    before = y.clone()
    randomized_response(y, digests(500), 2, 0.0, SECRET, "y")
    assert torch.equal(y, before)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"eps": -1.0}, ConfigError, "expected eps >= 0, got -1.0"),
        ({"eps": float("nan")}, ConfigError, "eps >= 0"),
        ({"eps": float("inf")}, ConfigError, "eps >= 0"),
        ({"classes": 1}, ConfigError, "2 classes or more"),
        ({"secret": b"short"}, ConfigError, "16 bytes or more"),
        ({"codes": torch.tensor([0, 2])}, DataError, "codes from 0 to 1, got 0 to 2"),
        ({"codes": torch.tensor([0, -1])}, DataError, "got -1 to 0"),
        ({"codes": torch.tensor([0.0, 1.0])}, DataError, "int64"),
        ({"digests": digests(3)}, DataError, "uint8"),
        ({"digests": digests(2).long()}, DataError, "uint8"),
    ],
)
def test_bad_input_is_refused(change, error, message):
    good = {
        "codes": torch.tensor([0, 1]),
        "digests": digests(2),
        "classes": 2,
        "eps": 1.0,
        "secret": SECRET,
        "column": "y",
    }
    with pytest.raises(error, match=message):
        randomized_response(**(good | change))
