"""Party-wise dropout: who is dropped how often, what the top model then sees, and what is sent back."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from cutlayer.accounting import NoFormalGuarantee, ReleasePlan
from cutlayer.errors import ConfigError
from cutlayer.protections import REGISTRY, build
from cutlayer.protections.contract.base import Protection
from cutlayer.protections.contract.views import Mode
from tests.conformance.table import PROTECTIONS
from tests.protections.setup import context, resume, saved, view

STEPS = 4000
PARTIES = ("telco", "shop")


def dropout(rate, seed=0):
    built = build("party_dropout", {"rate": rate}, "privacy")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built.setup(context())
    return built


def embeddings():
    return {name: torch.full((8, 4), index + 1.5) for index, name in enumerate(PARTIES)}


def dropped(protection, steps=STEPS, mode=Mode.TRAIN):
    """Who was dropped in which step, bool (steps, parties)."""
    found = []
    for step in range(steps):
        es = embeddings()
        seen = protection.embeddings_in(es, replace(view(step=step), mode=mode))
        for name in PARTIES:
            assert torch.equal(seen[name], es[name]) or not seen[name].any(), "whole, unscaled, or zeros"
        found.append([not bool(seen[name].any()) for name in PARTIES])
    return np.array(found)


def plausible(count, share):
    low, high = stats.binom.interval(1 - 1e-6, STEPS, share)
    return low <= count <= high


@cache
def dropped_half():
    """A protection that drops each party in half of the steps, and who was dropped: two tests read it."""
    protection = dropout(0.5)
    return protection, dropped(protection)


@pytest.mark.parametrize("rate", [0.5, {"telco": 0.05, "shop": 0.3}])
def test_each_party_is_dropped_as_often_as_it_says(rate):
    if rate == 0.5:
        protection, found = dropped_half()
    else:
        protection = dropout(rate)
        found = dropped(protection)
    counts = found.sum(axis=0)
    metrics = protection.metrics()
    assert metrics["steps"] == STEPS
    for name, count in zip(PARTIES, counts, strict=True):
        share = rate[name] if isinstance(rate, dict) else rate
        assert plausible(count, share)
        assert not plausible(count, share * 2 / 3), "the test has no power"
        assert not plausible(count, share * 3 / 2), "the test has no power"
        assert metrics[f"dropped.{name}"] == count


def test_parties_and_steps_are_independent():
    _, found = dropped_half()
    for first, second in ((found[:, 0], found[:, 1]), (found[1:, 0], found[:-1, 0])):
        table = [[np.sum((first == a) & (second == b)) for b in (0, 1)] for a in (0, 1)]
        assert stats.chi2_contingency(table).pvalue > 1e-4


def test_a_party_without_a_rate_is_never_dropped():
    protection = dropout({"shop": 0.5})
    assert dropped(protection, 200).sum(axis=0).tolist()[0] == 0
    assert protection.metrics().keys() == {"steps", "dropped.shop"}


@pytest.mark.parametrize("mode", [Mode.EVALUATE, Mode.SERVE])
def test_nobody_is_dropped_outside_of_training(mode):
    protection = dropout(0.9)
    assert not dropped(protection, 50, mode).any()
    assert protection.metrics()["steps"] == 0


def test_the_seed_decides_the_draws_and_the_random_state_is_left_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, same, other = (dropped(dropout(0.5, seed), 100) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


def test_it_goes_on_where_it_was():
    whole, first, second = (dropout({"telco": 0.5, "shop": 0.2}) for _ in range(3))
    expected = dropped(whole, 100)
    dropped(first, 60)
    resume(second, saved(first))
    assert second.metrics() == first.metrics()
    for step in range(60, 100):
        seen = second.embeddings_in(embeddings(), view(step=step))
        assert [not bool(seen[name].any()) for name in PARTIES] == expected[step].tolist()
    assert second.metrics() == whole.metrics()


def test_a_gradient_flows_to_those_who_stay():
    es = {name: e.requires_grad_() for name, e in embeddings().items()}
    protection = dropout({"telco": 0.999})
    seen = protection.embeddings_in(es, view())
    sum(e.sum() for e in seen.values()).backward()
    assert es["telco"].grad is None
    assert bool(es["shop"].grad.eq(1).all())


def test_a_rate_for_a_stranger_is_told_with_a_near_miss():
    message = r"parties\.bank\.privacy\.party_dropout\.rate\.tleco: no passive party of that name; did you mean 'telco'"
    with pytest.raises(ConfigError, match=message):
        dropout({"tleco": 0.1})
    with pytest.raises(ConfigError, match=r"rate\.bank: no passive party of that name"):
        dropout({"bank": 0.1})


@pytest.mark.parametrize("rate", [1.0, -0.1, 1, "0.1", True, {"telco": 1.0}, {"telco": None}, [0.1], float("nan")])
def test_a_rate_outside_of_its_range_is_refused(rate):
    with pytest.raises(ConfigError, match=r"privacy\.party_dropout"):
        build("party_dropout", {"rate": rate}, "privacy")


def test_it_promises_nothing_formal():
    assert isinstance(dropout(0.1).event(ReleasePlan(training=1)), NoFormalGuarantee)


ZEROS = [name for name, kind in REGISTRY.items() if kind.gradient_out is not Protection.gradient_out]


@pytest.mark.parametrize(("name", "mixed"), list(product(ZEROS, [True, False])))
def test_every_protection_of_a_gradient_bears_that_of_a_dropped_party(name, mixed):
    """It is all zeros: what is sent is finite, in batches of one class and of two."""
    built = build(name, PROTECTIONS[name].options, "privacy")
    built.setup(context())
    labels = torch.arange(16) % 2 if mixed else torch.zeros(16, dtype=torch.int64)
    for step in range(3):
        sent = built.gradient_out(torch.zeros(16, 4), "telco", view(labels, step))
        assert sent.shape == (16, 4)
        assert bool(sent.isfinite().all())
