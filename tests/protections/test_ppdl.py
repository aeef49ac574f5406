"""PPDL against its algorithm walked entry by entry, and against what is known of the published setting."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutlayer_published.gradients import ppdl as module
from cutlayer_published.gradients.ppdl import _random_walks
from cutlayer_published.gradients.sparse_vector import take_passing
from tests.protections.setup import KEY, gradients, protection, view


def walked(scores, thresholds, first, limit):
    taken, current = [], first
    for index, score in enumerate(scores):
        if len(taken) < limit and score >= current:
            taken.append(index)
            current = thresholds[index]
    return taken


def test_by_hand():
    scores = np.array([1.0, 3.0, 2.0, 5.0, 0.0, 4.0])
    thresholds = np.array([9.0, 2.5, 0.0, 4.5, 0.0, 0.0])
    # 3 >= 2; then 2 < 2.5 but 5 >= 2.5; then 0 and 4 are below 4.5.
    assert take_passing(scores, thresholds, 2.0, 6).tolist() == [1, 3]
    assert take_passing(scores, thresholds, 2.0, 1).tolist() == [1]
    assert take_passing(scores, thresholds, 9.0, 6).tolist() == []
    assert take_passing(scores, thresholds, 2.0, 0).tolist() == []
    assert take_passing(scores[:0], thresholds[:0], 2.0, 3).tolist() == []


numbers = st.floats(-4, 4, width=16)


@given(st.lists(st.tuples(numbers, numbers), max_size=70), numbers, st.integers(0, 80))
def test_the_chain_is_the_walk(pairs, first, limit):
    scores, thresholds = np.array(pairs, dtype=float).reshape(-1, 2).T
    assert take_passing(scores, thresholds, first, limit).tolist() == walked(scores, thresholds, first, limit)


@given(st.integers(1, 3000), st.integers(1, 400), st.integers(0, 100))
def test_walks_visit_every_entry_once(entries, wanted, seed):
    visited = np.concatenate(list(_random_walks(entries, wanted, bytes([seed]) * 32)))
    assert sorted(visited.tolist()) == list(range(entries))


def test_walks_go_in_random_order():
    first = [next(_random_walks(50, 1, KEY + number.to_bytes(4, "big")))[0] for number in range(5000)]
    counts = np.bincount(first, minlength=50)
    assert ((counts - 100) ** 2 / 100).sum() < 110  # chi-squared with 49 degrees of freedom: p = 1e-6


def test_it_releases_its_share_cut_off_and_zeros_else():
    g, _ = gradients(200, 50)
    ppdl = protection("ppdl", {"theta": 0.1})
    sent = ppdl.gradient_out(g, "telco", view())
    assert int((sent != 0).sum()) == 1000
    assert float(sent.abs().max()) == pytest.approx(0.001)
    metrics = ppdl.metrics()
    assert (metrics["entries"], metrics["entries_released"]) == (10_000, 1000)
    assert 1000 <= metrics["entries_walked"] <= 10_000


def test_at_the_published_setting_it_is_random_signs():
    g, _ = gradients(2000, 50)
    sent = protection("ppdl", {"theta": 0.1}).gradient_out(g, "telco", view())
    released = sent[sent != 0]
    assert float((released.abs() > 0.00099).double().mean()) > 0.99
    assert abs(float(released.sign().mean())) < 0.05
    assert abs(np.corrcoef(sent.numpy().ravel(), g.numpy().ravel())[0, 1]) < 0.05


def test_without_noise_to_speak_of_it_releases_what_reaches_tau():
    g = torch.tensor([[0.5, -0.002, 0.0001, -0.3, 0.0, 0.02]])
    options = {"theta": 1.0, "scale": 1e-12, "gamma": 0.1, "tau": 0.01}
    sent = protection("ppdl", options).gradient_out(g, "telco", view())
    torch.testing.assert_close(sent, torch.tensor([[0.1, 0.0, 0.0, -0.1, 0.0, 0.02]]), rtol=0, atol=1e-9)


def test_scores_thresholds_and_values_have_each_a_noise_of_its_own(monkeypatch):
    """Scores get twice the scale, and what is released only the noise that decided nothing."""
    noises = torch.tensor([0.25, 0.125, 0.75])[:, None]

    def constant(key, nonce, shape):
        return torch.full(shape, 0.125) if nonce == b"first" else noises.expand(shape)

    monkeypatch.setattr(module, "standard_laplace", constant)
    g = torch.tensor([[0.5, -0.2, 0.05]])
    options = {"theta": 1.0, "scale": 0.5, "gamma": 1.0, "tau": 0.21}
    # Scores: 0.54, 0.24 and 0.09, and 0.07 less with the other tau. Every threshold is 0.0625; values get 0.375.
    sent = protection("ppdl", options).gradient_out(g, "telco", view())
    torch.testing.assert_close(sent, g + 0.375)
    high = protection("ppdl", options | {"tau": 0.28}).gradient_out(g, "telco", view())
    assert int((high != 0).sum()) == 2
    torch.testing.assert_close(high[high != 0], (g + 0.375)[high != 0])


def test_scales_are_those_of_the_paper():
    ppdl = protection("ppdl", {"theta": 0.1, "epsilon": 1.8})
    s1, s2 = ppdl._scales(90)
    assert (s1, s2) == (pytest.approx(2 * 90 / (8 / 9 * 1.8)), pytest.approx(2 * 90 / (2 / 9 * 1.8)))


def test_the_share_that_passes_is_that_of_the_walk():
    draw = np.random.default_rng(0)
    shares = []
    for _ in range(20):
        r, t = 2 * draw.laplace(size=5000), draw.laplace(size=5000)
        shares.append(len(walked(r, t, draw.laplace(), 5000)) / 5000)
    g = torch.full((1000, 100), 1e-6)
    ppdl = protection("ppdl", {"theta": 1.0})
    ppdl.gradient_out(g, "telco", view())
    metrics = ppdl.metrics()
    assert metrics["entries_released"] / metrics["entries"] == pytest.approx(np.mean(shares), abs=0.02)
    assert metrics["entries_walked"] == metrics["entries"]


@pytest.mark.parametrize("theta", [0.0, 1e-9])
def test_a_share_of_no_entry_sends_zeros(theta):
    g, _ = gradients(20, 5)
    assert not protection("ppdl", {"theta": theta}).gradient_out(g, "telco", view()).any()
