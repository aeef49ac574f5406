"""Attacks on the floating point of private releases: by impossible values, and by low bits, knowing the code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from protection_setup import protection
from torch import Tensor

from cutlayer.accounting import ReleasePlan
from cutlayer.kernels.lattice import lattice_step
from cutlayer.kernels.noise import standard_normal
from cutlayer.kernels.roc import roc_auc
from cutlayer.kernels.row_norms import clip_rows
from cutlayer.protections.base import Mode, PassiveView

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

    return release, built.figures()["sigma"]


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


def impossible(released: Tensor, candidate: Tensor, sigma: float) -> Tensor:
    """Entries that no float32 noise turns the candidate into, (n, width) bool."""
    nearest = ((released.double() - candidate.double()) / float(np.float32(sigma))).float().numpy()
    possible = torch.zeros(released.shape, dtype=torch.bool)
    for direction in (-np.inf, np.inf):
        noise = nearest
        for _ in range(4):
            possible |= torch.add(candidate, torch.from_numpy(noise), alpha=sigma) == released
            noise = np.nextafter(noise, np.float32(direction))
    return ~possible


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


@pytest.mark.parametrize(("epsilon", "releases"), [(0.1, 20), (0.1, 1), (8.0, 20), (8.0, 1)])
def test_no_value_excludes_a_candidate(epsilon: float, releases: int) -> None:
    """Mironov's attack, with the tests of both arithmetics: on the lattice every test says the same of both."""
    release, sigma = mechanism(epsilon, releases)
    auc, _ = exclusion(release, sigma, releases)
    assert abs(auc - 0.5) < 0.02


@pytest.mark.parametrize(("epsilon", "releases"), [(0.1, 20), (8.0, 20)])
def test_the_attack_tells_candidates_apart_under_floating_point(epsilon: float, releases: int) -> None:
    _, sigma = mechanism(epsilon, releases)
    first, _, bit, e = candidates(0.003)
    assert exclusion(single_precision(sigma), sigma, releases)[0] > 0.99
    seen = single_precision(sigma)(e, 0)
    assert not bool(impossible(seen[~bit], first[~bit], sigma).any())
