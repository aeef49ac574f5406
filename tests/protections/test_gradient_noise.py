"""The published baselines on the cut gradient: scales that are right and not nearly right, and hand-computed cases."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from cutlayer.accounting import NoFormalGuarantee, ReleasePlan
from cutlayer.errors import ConfigError
from cutlayer.protections import build_chain
from cutlayer.protections.contract.keyed_noise import Noise
from tests.protections.setup import gradients, protection, resume, saved, view

N, WIDTH = 2000, 50
CASES = [
    ("iso_noise", {"ratio": 2.0, "form": "paper"}),
    ("noisy_gradient", {"scale": 0.01}),
    ("noisy_gradient", {"scale": 0.01, "distribution": "gaussian"}),
    ("ppdl", {"theta": 0.1}),
]


def noise_of(name, options, g):
    return (protection(name, options).gradient_out(g, "telco", view()) - g).double().numpy().ravel()


@pytest.mark.parametrize(
    ("name", "options", "law"),
    [
        ("noisy_gradient", {"scale": 0.01}, stats.laplace(scale=0.01)),
        ("noisy_gradient", {"scale": 0.01, "distribution": "gaussian"}, stats.norm(scale=0.01)),
        ("iso_noise", {"ratio": 2.0, "form": "paper"}, None),
    ],
)
def test_noise_has_its_distribution_and_no_other_scale(name, options, law):
    g, _ = gradients(N, WIDTH)
    law = law or stats.norm(scale=2.0 * float(g.double().norm(dim=1).max()) / math.sqrt(WIDTH))
    drawn = noise_of(name, options, g)
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(wrong * drawn, law.cdf).pvalue < 1e-12
    assert abs(np.corrcoef(drawn, g.numpy().ravel())[0, 1]) < 0.02


def test_laplace_noise_is_not_gaussian_and_the_other_way_round():
    g = torch.zeros(N, WIDTH)
    laplace, gaussian = (noise_of(name, options, g) for name, options in CASES[1:3])
    assert stats.kurtosis(laplace) == pytest.approx(3.0, abs=0.5)
    assert stats.kurtosis(gaussian) == pytest.approx(0.0, abs=0.2)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_noise_repeats_for_the_same_key_step_peer_and_content_only(name, options):
    g, _ = gradients(60, 5)
    first = protection(name, options).gradient_out(g, "telco", view(step=3))
    assert torch.equal(protection(name, options).gradient_out(g.clone(), "telco", view(step=3)), first)
    others = [
        protection(name, options).gradient_out(g, "telco", view(step=4)) - g,
        protection(name, options).gradient_out(g, "shop", view(step=3)) - g,
        protection(name, options, noise=Noise(bytes(32))).gradient_out(g, "telco", view(step=3)) - g,
        protection(name, options).gradient_out(g + 1e-6, "telco", view(step=3)) - g - 1e-6,
    ]
    assert all(not torch.allclose(other, first - g, atol=1e-7) for other in others)
    assert isinstance(protection(name, options).event(ReleasePlan(training=2)), NoFormalGuarantee)


def test_iso_noise_leaves_zeros_and_tells_the_ratio():
    noise = protection("iso_noise", {"ratio": 4.0, "form": "paper"})
    assert not noise.gradient_out(torch.zeros(5, 3), "telco", view()).any()
    noise.gradient_out(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), "telco", view())
    assert noise.metrics() == {
        "batches": 2,
        "batches_of_zeros": 1,
        "batches_withheld": 0,
        "rows_shortened": 0,
        "mean_signal_to_noise": pytest.approx(3 / 5 / 4),
    }


def test_signal_to_noise_of_a_fixed_scale():
    noise = protection("noisy_gradient", {"scale": 0.5, "distribution": "gaussian"})
    noise.gradient_out(torch.tensor([[3.0, 4.0]]), "telco", view())
    assert noise.metrics() == {"entries": 2, "signal_to_noise": pytest.approx(math.sqrt(12.5) / 0.5)}


def test_compression_keeps_the_largest_of_the_whole_message():
    g = torch.tensor([[1.0, -5.0, 0.5], [-3.0, 0.1, 2.0]])
    compression = protection("gradient_compression", {"keep": 0.5})
    sent = compression.gradient_out(g, "telco", view())
    assert torch.equal(sent, torch.tensor([[0.0, -5.0, 0.0], [-3.0, 0.0, 2.0]]))
    energy = (25 + 9 + 4) / (1 + 25 + 0.25 + 9 + 0.01 + 4)
    assert compression.metrics() == {
        "entries": 6,
        "entries_kept": 3,
        "mean_energy_kept": pytest.approx(energy),
    }
    compression.gradient_out(torch.eye(2), "telco", view(step=1))
    metrics = compression.metrics()
    assert (metrics["entries"], metrics["entries_kept"]) == (10, 5)
    assert metrics["mean_energy_kept"] == pytest.approx((energy + 1.0) / 2)


@pytest.mark.parametrize(("keep", "kept"), [(0.0, 0), (0.1, 10), (0.999, 99), (1.0, 100)])
def test_compression_keeps_exactly_its_share_even_of_equal_entries(keep, kept):
    for g in (torch.ones(10, 10), torch.randn(10, 10, generator=torch.Generator().manual_seed(0))):
        sent = protection("gradient_compression", {"keep": keep}).gradient_out(g, "telco", view())
        assert int((sent != 0).sum()) == kept
        assert torch.equal(sent[sent != 0], g[sent != 0])


def test_compression_agrees_with_a_sort():
    g, _ = gradients(300, 20, scale=1e-20)
    sent = protection("gradient_compression", {"keep": 0.07}).gradient_out(g, "telco", view())
    order = g.abs().flatten().argsort(descending=True)
    expected = torch.zeros(6000)
    expected[order[:420]] = g.flatten()[order[:420]]
    assert torch.equal(sent.flatten(), expected)


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"levels": 1, "bound": 1.0}, [1.0, -1.0, 1.0, -1.0, 1.0]),
        ({"levels": 2, "bound": 1.0}, [0.0, -0.0, 1.0, -1.0, 1.0]),
        ({"levels": 4, "bound": 1.0}, [0.5, 0.0, 0.5, -1.0, 1.0]),
        ({"levels": 3, "bound": 1.5}, [0.5, -0.5, 0.5, -0.5, 1.5]),
    ],
)
def test_discrete_levels_by_hand(options, sent):
    g = torch.tensor([[0.3, -0.2, 0.6, -0.9, 7.0]])
    discrete = protection("discrete_sgd", options)
    torch.testing.assert_close(discrete.gradient_out(g, "telco", view()), torch.tensor([sent]), rtol=1e-6, atol=0)
    assert discrete.metrics()["entries_outside"] == 1


def test_the_default_interval_is_two_deviations_around_the_mean_made_symmetric():
    g = torch.tensor([[0.0, 4.0]])
    discrete = protection("discrete_sgd", {"levels": 1})
    assert torch.equal(discrete.gradient_out(g, "telco", view()).abs(), torch.tensor([[6.0, 6.0]]))
    assert discrete.metrics()["mean_bound"] == pytest.approx(2 + 2 * 2)


@pytest.mark.parametrize("levels", [1, 2, 6, 24])
@pytest.mark.parametrize("scale", [1.0, 1e-30])
def test_discrete_levels_are_few_symmetric_and_near(levels, scale):
    g, _ = gradients(300, 20, scale=scale)
    discrete = protection("discrete_sgd", {"levels": levels})
    sent = discrete.gradient_out(g, "telco", view())
    bound = discrete.metrics()["mean_bound"]
    assert len(sent.unique()) <= levels + 1
    assert bool((sent == 0).any()) == (levels % 2 == 0)
    inside = g.abs() <= bound
    assert float((sent - g)[inside].abs().max()) <= bound / levels * (1 + 1e-5)
    assert not discrete.gradient_out(torch.zeros(3, 2), "telco", view()).any()


def test_levels_with_noise_on_top_act_in_that_order():
    privacy = {"noisy_gradient": {"scale": 0.001}, "discrete_sgd": {"levels": 1}}
    chain = build_chain("bank", "active", privacy, "privacy")
    assert [item.name for item in chain.protections] == ["discrete_sgd", "noisy_gradient"]
    for pair in (("gradient_compression", {"keep": 0.1}), ("ppdl", {"theta": 0.1})):
        with pytest.raises(ConfigError, match="keep one of them"):
            build_chain("bank", "active", {"discrete_sgd": {"levels": 1}, pair[0]: pair[1]}, "privacy")


@pytest.mark.parametrize(
    ("name", "options"), [*CASES, ("gradient_compression", {"keep": 0.1}), ("discrete_sgd", {"levels": 2})]
)
def test_counts_survive_a_resume_and_empty_batches_pass(name, options):
    one, other = protection(name, options), protection(name, options)
    one.gradient_out(torch.zeros(0, 4), "telco", view(n=0))
    one.gradient_out(gradients(20, 4)[0], "telco", view())
    resume(other, saved(one))
    assert other.metrics() == one.metrics()
    assert all(math.isfinite(value) for value in protection(name, options).metrics().values())


def test_a_key_names_its_use_and_its_content():
    own = Noise(bytes(range(32)))
    g = torch.zeros(4, 6)
    use = {"hook": "h", "peer": "telco", "step": 3, "content": g}
    others = [{"hook": "i"}, {"peer": "shop"}, {"step": 4}, {"content": g + 1}, {"content": g.view(6, 4)}]
    others += [{"content": torch.zeros(4, 6, dtype=torch.int32)}]
    assert own.key(**use) == Noise(bytes(range(32))).key(**{**use, "content": g.clone()})
    keys = {own.key(**use), Noise(bytes(32)).key(**use)} | {own.key(**{**use, **other}) for other in others}
    assert len(keys) == 2 + len(others)
    assert {len(key) for key in keys} == {32}
    contents = [g, g + 1, g.view(6, 4), torch.zeros(4, 6, dtype=torch.int32)]
    digests = {noise.digest(content) for noise in (own, Noise(bytes(32))) for content in contents}
    assert len(digests) == 8, "released again, these are no repetitions"


def test_draws_of_another_shape_or_law_share_no_numbers():
    own, use = Noise(bytes(range(32))), {"hook": "h", "peer": "telco", "step": 3, "content": torch.zeros(2)}
    draws = [own.normal((100, 40), **use), own.normal((4000,), **use), own.laplace((4000,), **use)]
    matrix = torch.corrcoef(torch.stack([draw.flatten().double() for draw in draws]))
    assert float((matrix - torch.eye(3, dtype=torch.float64)).abs().max()) < 0.08
