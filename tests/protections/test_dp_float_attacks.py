"""Attacks on the floating point of private releases: by impossible values, and by low bits, knowing the code."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cutlayer.accounting import ReleasePlan
from cutlayer.kernels.noise.aes import standard_normal
from cutlayer.kernels.noise.gaussian_mechanism import best_auc
from cutlayer.kernels.noise.lattice import lattice_gaussian, lattice_step
from cutlayer.kernels.rows.row_norms import clip_rows
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.protections.contract.views import Mode, PassiveView
from tests.protections.float_attack import impossible
from tests.protections.setup import protection

ROWS, WIDTH, CLIP = 4000, 8, 1.0
Release = Callable[[Tensor, int], Tensor]


def mechanism(epsilon: float, releases: int) -> tuple[Release, float]:
    """What releases an embedding in an epoch, and its standard deviation."""
    plan = ReleasePlan(releases) if releases > 1 else ReleasePlan(1, 1, 1, once=True, bottom="independent")
    options = {"clip": CLIP, "epsilon": epsilon, "delta": 1e-5}
    built = protection("dp_embedding", options, task=None, party="telco", peers=("bank",), plan=plan)

    def release(e: Tensor, epoch: int) -> Tensor:
        released: Tensor = built.embedding_out(
            e, PassiveView(Mode.TRAIN, epoch, epoch, torch.arange(len(e)), torch.abs)
        )
        return released

    return release, built.metrics()["sigma"]


def single_precision(sigma: float) -> Release:
    """The mechanism in floating point: float32 noise added to float32 rows."""

    def release(e: Tensor, epoch: int) -> Tensor:
        noise = standard_normal(bytes(32), b"%d" % epoch, tuple(e.shape))
        return torch.add(clip_rows(e, CLIP), noise, alpha=sigma)

    return release


def candidates(apart: float, n: int = ROWS) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two values of every row, which of them is true, and the true ones."""
    draw = torch.Generator().manual_seed(1)
    first = torch.randn(n, WIDTH, generator=draw) * 0.2
    second = first + torch.randn(n, WIDTH, generator=draw) * apart / WIDTH**0.5
    bit = torch.rand(n, generator=draw) < 0.5
    return clip_rows(first, CLIP), clip_rows(second, CLIP), bit, torch.where(bit[:, None], second, first)


def off_the_lattice(released: Tensor, candidate: Tensor, sigma: float) -> Tensor:
    """Entries that differ from the candidate by something other than whole steps, (n, width) bool."""
    step = lattice_step(sigma, CLIP)
    whole = (released.double() - torch.trunc(candidate.double() / step) * step) / step
    return whole != whole.round()


def exclusion(release: Release, sigma: float, releases: int, apart: float = 0.003) -> tuple[float, int]:
    """AUC of telling which candidate was released by impossible values, and how often a true one was excluded."""
    first, second, bit, e = candidates(apart)
    against = torch.zeros(2, len(bit))
    for epoch in range(releases):
        seen = release(e, epoch)
        for number, candidate in enumerate((first, second)):
            for test in (impossible, off_the_lattice):
                against[number] += test(seen, candidate, sigma).sum(1)
    wrong = int((torch.where(bit, against[1], against[0]) > 0).sum())
    return roc_auc(against[0] - against[1], bit), wrong


@pytest.mark.parametrize(("epsilon", "releases"), [(0.1, 8), (0.1, 1), (8.0, 8), (8.0, 1)])
def test_no_value_excludes_a_candidate(epsilon: float, releases: int) -> None:
    """Mironov's attack, with the tests of both arithmetics: on the lattice every test says the same of both."""
    release, sigma = mechanism(epsilon, releases)
    auc, _ = exclusion(release, sigma, releases)
    assert abs(auc - 0.5) < 0.02


@pytest.mark.parametrize(("epsilon", "releases"), [(0.1, 8), (8.0, 8)])
def test_the_attack_tells_candidates_apart_under_floating_point(epsilon: float, releases: int) -> None:
    _, sigma = mechanism(epsilon, releases)
    first, _, bit, e = candidates(0.003)
    assert exclusion(single_precision(sigma), sigma, releases)[0] > 0.99
    seen = single_precision(sigma)(e, 0)
    assert not bool(impossible(seen[~bit], first[~bit], sigma).any())


def noise_under(released: Tensor, candidate: Tensor, sigma: float) -> Tensor:
    """The noise, in whole steps, that a release holds if the candidate was the row."""
    step = lattice_step(sigma, CLIP)
    return (released.double() / step - torch.trunc(candidate.double() / step)).long()


def trailing_zeros(noise: Tensor) -> Tensor:
    """How often two divides the noise: sums of numbers that have been rounded coarsely are often even."""
    return ((noise & -noise).double().log2().nan_to_num(neginf=0.0)).sum(1)


def radius_bits(noise: Tensor) -> Tensor:
    """Residues of the squared radii of Box-Muller's pairs: an entry of a draw's first half and one of its second."""
    flat = noise.flatten()
    cosines, sines = flat.view(2, -1)
    squares = (cosines**2 + sines**2) % 64
    return squares.repeat(2).view(noise.shape).double().sum(1)


def zeros(noise: Tensor) -> Tensor:
    """Noise of no steps, which a mechanism that skipped some entries would have too often."""
    return (noise == 0).double().sum(1)


@pytest.mark.parametrize("statistic", [trailing_zeros, radius_bits, zeros, lambda noise: (noise & 7).sum(1)])
@pytest.mark.parametrize("epsilon", [0.1, 8.0])
def test_the_noise_under_the_true_candidate_looks_no_different(
    statistic: Callable[[Tensor], Tensor], epsilon: float
) -> None:
    """Knowing lattice, candidates and which entries are pairs: low bits, residues, exact zeros, over 20 releases."""
    release, sigma = mechanism(epsilon, 20)
    first, second, bit, e = candidates(0.003)
    score = torch.zeros(len(bit), dtype=torch.float64)
    for epoch in range(20):
        seen = release(e, epoch)
        score += statistic(noise_under(seen, first, sigma)) - statistic(noise_under(seen, second, sigma))
    assert abs(roc_auc(score, bit) - 0.5) < 0.03


@pytest.mark.parametrize("where", ["inside", "on the clip", "beyond the clip", "all but zero"])
def test_a_fitted_attack_on_all_bits_learns_nothing(where: str) -> None:
    """Least squares on the 24 bits of every entry, for two values that all the releases are of: held-out AUC."""
    release, sigma = mechanism(8.0, 20)
    length = {"inside": 0.4, "on the clip": CLIP, "beyond the clip": 3.0, "all but zero": 1e-7}[where]
    draw = torch.Generator().manual_seed(3)
    first = torch.nn.functional.normalize(torch.randn(1, WIDTH, generator=draw)) * length
    second = torch.nn.functional.normalize(first + torch.randn(1, WIDTH, generator=draw) * 0.001 * length) * length
    bit = torch.rand(20_000, generator=draw) < 0.5
    seen = release(torch.where(bit[:, None], second, first), 0)
    steps = (seen.double() / lattice_step(sigma, CLIP)).long() + 2**23
    bits = ((steps[:, :, None] >> torch.arange(24)) & 1).flatten(1).double()
    inputs = torch.cat([bits, torch.ones(len(bits), 1)], dim=1)
    ridge = inputs[::2].T @ inputs[::2] + torch.eye(inputs.shape[1])
    weights = torch.linalg.solve(ridge, inputs[::2].T @ bit[::2].double())
    assert abs(roc_auc(inputs[1::2] @ weights, bit[1::2]) - 0.5) < 0.03


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_the_best_test_is_that_of_the_theorem(epsilon: float) -> None:
    """The likelihood ratio of opposite rows on the clip's boundary: neither better nor worse than N(0, 1), N(mu, 1)."""
    release, sigma = mechanism(epsilon, 1)
    row = torch.zeros(1, WIDTH)
    row[0, 0] = 5.0
    bit = torch.arange(40_000) % 2 == 0
    seen = release(torch.where(bit[:, None], row, -row), 0)
    bound = best_auc(2 * CLIP / sigma)
    assert abs(roc_auc(seen[:, 0].double(), bit) - bound) < 0.008


def test_rows_that_differ_below_a_step_are_released_alike() -> None:
    """What truncation cuts off is in no released number, however many releases there are."""
    sigma = mechanism(8.0, 20)[1]
    step = lattice_step(sigma, CLIP)
    points = torch.trunc(candidates(0.003)[0] / step)
    inner = (points + 0.25 * points.sign()) * step, (points + 0.75 * points.sign()) * step
    fixed = bytes(32)
    first, second = (lattice_gaussian(rows, sigma, CLIP, fixed) for rows in inner)
    assert torch.equal(first, second)
