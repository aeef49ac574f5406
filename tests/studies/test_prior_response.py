"""Randomised response with a prior: eps for every prior and k in exact arithmetic, and the published algorithm."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cutlayer.errors import ConfigError, DataError
from cutlayer.kernels.noise.randomized_response import flip_threshold, transition_matrix
from studies.label_dp import prior_response as module
from studies.label_dp.prior_response import likely_classes, randomized_response_with_prior
from studies.label_dp.stages import prior_likelihood

SECRET = bytes(range(32))
WORDS = 2**64
ROWS, FEW = 30_000, 6_000
"""Rows whose rates of draws are counted, and rows of which two draws are compared."""


def digests(rows: int = ROWS, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (rows, 16), dtype=np.uint8))


def random_priors(rows: int, classes: int, seed: int) -> torch.Tensor:
    draw = np.random.default_rng(seed)
    return torch.from_numpy(draw.dirichlet(np.full(classes, draw.choice([0.1, 1.0])), rows))


def exact_probabilities(eps: float, likely: tuple[int, ...], classes: int) -> list[list[Fraction]]:
    """Probability of each drawn class (column) by the true one (row), of uniform words of 64 bits."""
    k = len(likely)

    def remainders(values: int) -> list[Fraction]:
        return [Fraction(WORDS // values + (part < WORDS % values), WORDS) for part in range(values)]

    table = [[Fraction(0)] * classes for _ in range(classes)]
    for true in range(classes):
        others = [label for label in likely if label != true]
        flip = (
            Fraction(flip_threshold(eps, k), WORDS) if true in likely and others else Fraction(int(true not in likely))
        )
        if true in likely:
            table[true][true] = 1 - flip
        for label, share in zip(others, remainders(len(others)) if others else [], strict=True):
            table[true][label] += flip * share
    return table


def test_the_exact_table_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of 3 bits are few enough to try all; the code must give the shares that the table states."""
    low = np.arange(8, dtype=np.uint64)
    words = np.stack([np.repeat(low, 8), np.tile(low, 8)], axis=1)
    monkeypatch.setattr(module, "flip_threshold", lambda eps, classes: 3)
    for classes in (np.array([0]), np.array([1, 3]), np.array([0, 2, 3])):
        for code in range(4):
            drawn = module._draw(code, classes, words, 1.0)
            counts = np.bincount(drawn, minlength=4)
            others = classes[classes != code]
            expected = np.zeros(4)
            parts = np.bincount(np.arange(8) % max(len(others), 1), minlength=len(others))[: len(others)]
            if code in classes:
                expected[code] = 8 * (5 if len(others) else 8)
                expected[others] = 3 * parts
            else:
                expected[others] = 8 * parts
            assert counts.tolist() == expected.tolist()


@settings(deadline=None, max_examples=100)
@given(st.floats(1e-6, 60), st.integers(2, 12), st.data())
def test_no_two_labels_are_distinguished_beyond_eps(eps: float, classes: int, data: st.DataObject) -> None:
    """For every set of likely classes, and so for every prior, in exact arithmetic."""
    likely = tuple(sorted(data.draw(st.sets(st.integers(0, classes - 1), min_size=1))))
    table = exact_probabilities(eps, likely, classes)
    with mp.workdps(60):
        bound = mp.exp(mp.mpf(eps))
        for drawn in likely:
            column = [row[drawn] for row in table]
            ratio = max(column) / min(column)
            assert mp.mpf(ratio.numerator) / ratio.denominator <= bound
    assert all(sum(row) == 1 for row in table)


@pytest.mark.parametrize("eps", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_likelihood_is_that_of_the_draws_and_within_eps(eps: float, classes: int) -> None:
    for likely in product([False, True], repeat=classes):
        if not any(likely):
            continue
        mask = torch.tensor(likely)
        chosen = mask.nonzero().flatten()
        table = exact_probabilities(eps, tuple(chosen.tolist()), classes)
        stated = prior_likelihood(chosen, mask.expand(len(chosen), -1), eps)
        expected = torch.tensor([[float(table[true][drawn]) for true in range(classes)] for drawn in chosen.tolist()])
        torch.testing.assert_close(stated.float(), expected)
        assert float((stated.amax(1) / stated.amin(1)).max()) <= math.exp(eps) * (1 + 1e-12)


@pytest.mark.parametrize("true", [0, 1, 3])
def test_rates_of_the_draws_are_those_of_the_paper(true: int) -> None:
    eps, likely = 1.0, torch.tensor([True, True, True, False])
    drawn = randomized_response_with_prior(
        torch.full((ROWS,), true), digests(), likely.expand(ROWS, -1), eps, SECRET, "y"
    )
    kept = math.e / (math.e + 2)
    expected = [kept if label == true else (1 - kept) / 2 for label in range(3)] if true < 3 else [1 / 3] * 3
    for label, share in enumerate([*expected, 0.0]):
        low, high = stats.binom.interval(1 - 1e-6, ROWS, share) if share else (0, 0)
        assert low <= int((drawn == label).sum()) <= high


@pytest.mark.parametrize("eps", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_classes_are_those_that_the_label_is_most_likely_drawn_right_from(eps: float, classes: int) -> None:
    """Against all subsets: no set, of any size, gives a higher probability that the drawn label is the true one."""
    priors = random_priors(40, classes, seed=classes)
    likely = likely_classes(priors, eps)
    for prior, mask in zip(priors, likely, strict=True):
        values = {}
        for members in product([False, True], repeat=classes):
            if any(members):
                kept = 1 / (1 + (sum(members) - 1) * math.exp(-eps))
                values[members] = kept * float(prior[torch.tensor(members)].sum())
        assert values[tuple(mask.tolist())] == pytest.approx(max(values.values()), rel=1e-12)


def test_a_flat_prior_is_randomised_response_and_a_sure_one_a_constant() -> None:
    assert bool(likely_classes(torch.full((3, 4), 0.25), 1.0).all())
    torch.testing.assert_close(
        prior_likelihood(torch.arange(4), torch.ones(4, 4, dtype=torch.bool), 1.0), transition_matrix(1.0, 4).T
    )
    sure = likely_classes(torch.tensor([[0.0, 0.02, 0.98, 0.0]]), 1.0)
    assert sure.tolist() == [[False, False, True, False]]
    drawn = randomized_response_with_prior(torch.arange(4), digests(4), sure.expand(4, -1), 1.0, SECRET, "y")
    assert drawn.tolist() == [2] * 4
    assert prior_likelihood(drawn, sure.expand(4, -1), 1.0).unique().tolist() == [1.0]


def test_two_classes_are_constant_where_the_prior_is_surer_than_the_response() -> None:
    """At eps 1 a share of 0.743, that of Criteo's negatives, is above 0.731: the draw of every row is constant."""
    kept = math.e / (1 + math.e)
    shares = torch.tensor([[0.743, 0.257], [kept + 1e-6, 1 - kept - 1e-6], [kept - 1e-6, 1 - kept + 1e-6]])
    assert likely_classes(shares, 1.0).tolist() == [[True, False], [True, False], [True, True]]


def test_a_draw_depends_on_the_row_its_label_its_classes_and_the_key() -> None:
    y, likely = torch.arange(FEW) % 4, torch.ones(FEW, 4, dtype=torch.bool)
    likely[:, 3] = False

    def draw(
        ids: torch.Tensor | None = None, sets: torch.Tensor = likely, eps: float = 1.0, **key: object
    ) -> torch.Tensor:
        options = {"secret": SECRET, "column": "y", "draws": "", **key}
        return randomized_response_with_prior(y, digests(FEW) if ids is None else ids, sets, eps, **options)  # type: ignore[arg-type]

    first = draw()
    assert torch.equal(first, draw())
    order = torch.randperm(FEW, generator=torch.Generator().manual_seed(0))
    assert torch.equal(
        first[order], randomized_response_with_prior(y[order], digests(FEW)[order], likely, 1.0, SECRET, "y")
    )
    others = likely.clone()
    others[:, 3], others[:, 2] = True, False
    same = (y < 2) & (first < 2)  # drawn from both sets, with the same probabilities, but independently
    assert float((draw(sets=others) != first)[same].double().mean()) > 0.3
    for other in (draw(digests(FEW, seed=1)), draw(secret=bytes(32)), draw(column="z"), draw(draws="2")):
        assert 0.3 < float((other != first).double().mean()) < 0.9


@pytest.mark.parametrize(
    "prior", [torch.zeros(2, 3), torch.tensor([[0.5, -0.1]]), torch.tensor([[math.nan, 1.0]]), torch.ones(3)]
)
def test_bad_priors_are_refused(prior: torch.Tensor) -> None:
    with pytest.raises(DataError, match="expected priors"):
        likely_classes(prior, 1.0)


def test_bad_draws_are_refused() -> None:
    y, full = torch.zeros(3, dtype=torch.int64), torch.ones(3, 2, dtype=torch.bool)
    with pytest.raises(DataError, match="one likely class or more"):
        randomized_response_with_prior(y, digests(3), full[:2], 1.0, SECRET, "y")
    with pytest.raises(DataError, match="one likely class or more"):
        randomized_response_with_prior(y, digests(3), ~full, 1.0, SECRET, "y")
    with pytest.raises(ConfigError, match="eps"):
        randomized_response_with_prior(y, digests(3), full, -1.0, SECRET, "y")
    with pytest.raises(DataError, match="label codes from 0 to 1"):
        randomized_response_with_prior(y + 2, digests(3), full, 1.0, SECRET, "y")
