"""The benchmarks of the defences run, and what they compare with is right."""

import math

import pytest
import torch

from benchmarks import dcor_loss, dimip_step, distance_statistics, gradient_defences, marvell_search, noise
from cutlayer.kernels.dependence.distance_correlation import class_distance_correlation_sqr
from cutlayer.kernels.noise.marvell import minimise_sum_kl


def test_the_published_search_finds_the_same_optimum():
    for case in marvell_search.cases()[:20]:
        best = minimise_sum_kl(*case, 3 * case[3]).sum_kl
        assert marvell_search.alternate(*case, 3 * case[3]) == pytest.approx(best, rel=1e-4, abs=1e-9)


def test_both_searches_run(monkeypatch):
    whole = marvell_search.cases()
    monkeypatch.setattr(marvell_search, "cases", lambda: whole[:3])
    assert 0 < marvell_search.ours_side(0.16)() < 10
    assert 0 < marvell_search.geometric_side(0.16)() < 10


def test_both_losses_are_the_same(monkeypatch):
    seen = []
    monkeypatch.setattr(dcor_loss, "_timed", lambda e, loss: seen.append(loss(e)))
    dcor_loss.tiles_side(200, 16)
    dcor_loss.naive_side(200, 16)
    torch.testing.assert_close(*seen, rtol=1e-4, atol=0)


def test_losses_are_timed():
    e, labels = dcor_loss.sample(100, 8)
    assert dcor_loss._timed(e, lambda x: class_distance_correlation_sqr(x, labels, 2))() > 0


def test_every_defence_of_the_gradient_is_timed():
    threads = torch.get_num_threads()
    result = gradient_defences.gradient_defences(64, 1)
    torch.set_num_threads(threads)
    assert [defence.defence for defence in result.defences] == [name for name, _ in gradient_defences.DEFENCES]
    assert all(math.isfinite(item.share) and item.share > 0 for item in result.defences)


def test_every_variant_of_dimip_is_timed_in_every_setting():
    threads = torch.get_num_threads()
    result = dimip_step.dimip_step(1, steps=1)
    torch.set_num_threads(threads)
    assert len(result.costs) == len(dimip_step.VARIANTS) * len(result.undefended_ms) == 4
    assert {cost.variant for cost in result.costs} == set(dimip_step.VARIANTS)
    assert all(0 < cost.lowest <= cost.ratio <= cost.highest < math.inf for cost in result.costs)


def test_distances_and_their_product_are_timed():
    sides = (distance_statistics.statistics_side, distance_statistics.loss_side, distance_statistics.product_side)
    assert all(0 < side(100, 8)() < 10 for side in sides)


def test_noise_is_timed_beside_torchs_and_beside_its_own_limits(monkeypatch):
    assert 0 < noise.ours_side(2, 100)() < 10
    assert 0 < noise.torch_side(2, 100)() < 10
    assert 0 < noise.lattice_side(2, 300)() < 10
    assert 0 < noise.float_side(2, 300)() < 10
    one = noise.Comparison("noise", "a", "b", 0.9, 0.8, 1.0, 1, 1, 1.0, 1.0, 1.0, 1.0)
    monkeypatch.setattr(noise, "_against_torch", lambda repeats, threads: one)
    monkeypatch.setattr(noise, "compare", lambda *_, **__: one)
    threads = torch.get_num_threads()
    found = noise.noise_speeds(1)
    torch.set_num_threads(threads)
    assert found.keystream_normals == pytest.approx(found.keystream_bytes / 6, abs=1)
    assert found.transform_normals > 0
    assert 0 < found.lattice_limit < found.keystream_bytes / 8
