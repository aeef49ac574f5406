"""Defences of the cut gradient against attackers who add up all releases of a row, in their own and published forms."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from cutlayer.kernels.noise.shared_noise import class_second_moments, leak_of_sum_kl, shared_noise
from cutlayer.protections import build
from cutlayer.protections.contract.keyed_noise import Noise
from tests.kernels.test_shared_noise import sizes
from tests.protections.releases import trained, worst_leak
from tests.protections.setup import gradients, protection, resume, saved, view

SEEDS = 2


def mean_leak(name, options, **more):
    return np.mean([worst_leak(trained(name, options, seed=seed, **more)) for seed in range(SEEDS)])


@pytest.mark.parametrize(
    ("spread", "forms"), [(0.02, ((0.16, "shared"), (0.64, "shared"))), (0.25, ((0.16, "past"), (0.16, "shared")))]
)
def test_the_published_marvell_exposes_all_labels_and_noise_of_one_covariance_holds_its_target(spread, forms):
    assert mean_leak("marvell", {"sum_kl": 0.16, "form": "paper"}, spread=spread) > 0.98
    for sum_kl, form in forms:
        read = mean_leak("marvell", {"sum_kl": sum_kl, "form": form}, spread=spread)
        assert leak_of_sum_kl(sum_kl) - 0.06 < read < leak_of_sum_kl(sum_kl) + 0.02


def test_a_target_for_each_release_is_no_target_for_the_run():
    read = mean_leak("marvell", {"sum_kl": 0.16, "form": "shared"}, spread=0.02, planned=1)
    assert leak_of_sum_kl(0.16) + 0.1 < read
    assert leak_of_sum_kl(8 * 0.16) - 0.06 < read < leak_of_sum_kl(8 * 0.16) + 0.02


@pytest.mark.parametrize("classes", [2, 3])
def test_all_rows_get_noise_of_the_covariance_that_the_programme_gives(classes):
    g, labels = gradients(60, 4, classes=classes)
    marvell = protection("marvell", {"sum_kl": 0.3, "form": "shared"}, classes=classes, epochs=3)
    steps = [marvell.gradient_out(g, "telco", view(labels, step)) - g for step in range(120)]
    drawn = torch.stack(steps).double()
    root = shared_noise(class_second_moments(g, labels, sizes(labels, classes)).mean(0), 0.1)
    expected = root @ root.T
    for code in range(classes):
        own = drawn[:, labels == code].reshape(-1, 4)
        error = 5 * float(expected.diagonal().max()) / math.sqrt(len(own))
        torch.testing.assert_close(own.T @ own / len(own), expected, rtol=0, atol=error)
        for wrong in (2 / 3, 3 / 2):
            assert abs(wrong * float(own.var(0).sum()) / float(expected.trace()) - 1) > 0.2
    # The noise of a row correlates with that of no other row.
    rows = drawn[:, :, 0] / drawn[:, :, 0].std(0)
    between = rows.T @ rows / len(rows) - torch.eye(60)
    assert float(between.abs().max()) < 6 / math.sqrt(len(rows))
    metrics = marvell.metrics()
    assert metrics["mean_sum_kl"] == pytest.approx(0.1)
    assert metrics["mean_power_over_g"] == pytest.approx(
        float(expected.trace() / class_second_moments(g, labels, sizes(labels, classes)).mean(0).trace()), rel=1e-6
    )


def test_shared_noise_repeats_for_the_same_key_step_and_peer_only():
    g, labels = gradients(100, 6)
    shared = {"sum_kl": 0.16, "form": "shared"}
    first = protection("marvell", shared).gradient_out(g, "telco", view(labels, 5))
    assert torch.equal(protection("marvell", shared).gradient_out(g.clone(), "telco", view(labels, 5)), first)
    for peer, step, noise in (("telco", 6, Noise(bytes(range(32)))), ("shop", 5, None), ("telco", 5, Noise(bytes(32)))):
        other = protection("marvell", shared, **({"noise": noise} if noise else {}))
        assert not torch.equal(other.gradient_out(g, peer, view(labels, step)), first)


def test_a_batch_of_one_class_is_withheld_until_both_were_seen_and_then_gets_the_noise_of_both():
    g, labels = gradients(300, 6)
    ones = torch.ones_like(labels)
    marvell = protection("marvell", {"sum_kl": 0.16, "form": "shared"})
    assert not marvell.gradient_out(g, "telco", view(ones)).any()
    marvell.gradient_out(g, "telco", view(labels, 1))
    noise = (marvell.gradient_out(g, "telco", view(ones, 2)) - g).double()
    moments = class_second_moments(g, labels, sizes(labels, 2))
    moments[1] = class_second_moments(g, ones, sizes(ones, 2))[1]
    power = float(shared_noise(moments.mean(0), 0.08).square().sum())
    assert float(noise.square().sum(1).mean()) == pytest.approx(power, rel=0.3)
    assert not marvell.gradient_out(g, "shop", view(ones, 2)).any()
    metrics = marvell.metrics()
    assert (metrics["one_class_batches_withheld"], metrics["one_class_batches_served"]) == (2, 1)


def test_shared_noise_of_a_dead_party_is_none_and_of_tiny_gradients_finite():
    labels = torch.tensor([0, 1, 0, 1])
    marvell = protection("marvell", {"sum_kl": 0.16, "form": "shared"})
    assert not marvell.gradient_out(torch.zeros(4, 2), "telco", view(labels)).any()
    assert marvell.metrics()["batches_without_difference"] == 1
    sent = marvell.gradient_out(torch.full((4, 2), 1e-30), "telco", view(labels, 1))
    assert bool(sent.isfinite().all())
    assert bool((sent != 1e-30).any())


def test_a_resumed_run_continues_the_shared_noise():
    g, labels = gradients(100, 6)
    marvell, resumed = (protection("marvell", {"sum_kl": 0.16, "form": "shared"}) for _ in range(2))
    marvell.gradient_out(g, "telco", view(labels))
    resume(resumed, saved(marvell))
    ones = view(torch.ones_like(labels), 1)
    assert torch.equal(resumed.gradient_out(g, "telco", ones), marvell.gradient_out(g, "telco", ones))
    assert resumed.metrics() == marvell.metrics()


def test_marvell_notes_the_leak_of_the_run_before_it_starts():
    def notes(options, epochs):
        return build("marvell", options, "privacy").notes(epochs)

    assert notes({"sum_kl": 0.16}, 12)[0].startswith(
        "sum_kl 0.0133 per release, over 12 epochs, leaks an AUC of 0.611;"
    )
    published = notes({"sum_kl": 0.16, "form": "paper"}, 12)
    assert published[0].startswith("sum_kl 0.16 per release, over 12 epochs, leaks an AUC of 0.836;")
    assert "differs by class" in published[1]
    assert len(notes({"s": 4.0, "form": "paper"}, 12)) == 1


def test_one_draw_of_max_norm_leaves_no_mean_over_epochs_but_exposes_labels_still():
    published, once = (mean_leak("max_norm", {"form": form}, spread=0.02) for form in ("paper", "once"))
    assert published > 0.97
    assert 0.8 < once < 0.9


def factors(sent, g):
    return sent.double().norm(dim=1) / g.double().norm(dim=1) * (sent * g).sum(1).sign()


def test_a_row_has_one_max_norm_draw_in_every_epoch_for_every_party_and_after_a_resume():
    g, _ = gradients(40, 4)
    norms = g.double().norm(dim=1)
    sigma = ((norms.max() / norms) ** 2 - 1).sqrt()
    short = norms < norms.max()
    rows = torch.randperm(100)[:40]
    step = replace(view(n=40), rows=rows)

    def eps(built, g=g, sigma=sigma, party="telco", **more):
        sent = built.gradient_out(g, party, replace(step, **more))
        return ((factors(sent, g) - 1) / sigma)[short]

    first = eps(protection("max_norm", {"form": "once"}))
    for other in (
        eps(protection("max_norm", {"form": "once"}), step=7, epoch=1),
        eps(protection("max_norm", {"form": "once"}), party="shop"),
        eps(protection("max_norm", {"form": "once"}), g=3 * g),
    ):
        torch.testing.assert_close(other, first, rtol=1e-3, atol=1e-4)
    order = torch.randperm(40)
    moved = protection("max_norm", {"form": "once"}).gradient_out(g[order], "telco", replace(step, rows=rows[order]))
    torch.testing.assert_close(moved, protection("max_norm", {"form": "once"}).gradient_out(g, "telco", step)[order])
    assert not torch.allclose(eps(protection("max_norm", {"form": "once"}, noise=Noise(bytes(32)))), first, atol=0.1)
    assert not torch.allclose(eps(protection("max_norm", {"form": "once"}), rows=rows.flip(0)), first, atol=0.1)
    assert not torch.allclose(eps(protection("max_norm", {"form": "paper"}), step=7), first, atol=0.1)
    assert "mean of its gradients" in build("max_norm", {"form": "paper"}, "privacy").notes(6)[0]
    assert "where one class is rare" in build("max_norm", {}, "privacy").notes(6)[0]
    assert not build("max_norm", {}, "privacy").notes(1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("marvell", {"sum_kl": 0.16, "form": "shared"}),
        ("max_norm", {"form": "once"}),
        ("iso_noise", {"ratio": 5.0, "form": "paper"}),
    ],
)
def test_a_form_that_follows_the_batch_says_so_before_the_run(name, options):
    assert "follows each batch" in build(name, options, "privacy").notes(6)[-1]
    assert "follows each batch" not in " ".join(build(name, {**options, "form": "past"}, "privacy").notes(6))
