"""Distance correlation as a cut gradient: against autograd through whole matrices, alone and beside others."""

import math

import pytest
import torch
from torch.nn.functional import one_hot

from cutlayer.protections import build_chain
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.views import ActiveView, Mode
from tests.protections.setup import protection, view

N, WIDTH = 120, 7


def batch(classes=2, seed=0):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (N,), generator=draw)
    e = torch.randn(N, WIDTH, generator=draw)
    e[:, 0] += labels
    return e, labels


def centred(rows, unbiased):
    n = len(rows)
    a = (rows[:, None] - rows[None]).square().sum(2)
    a = torch.where(a > 0, a, 1.0).sqrt() * (a > 0)
    if not unbiased:
        return a - a.mean(0) - a.mean(1, keepdim=True) + a.mean()
    a = a - a.sum(0) / (n - 2) - a.sum(1, keepdim=True) / (n - 2) + a.sum() / ((n - 1) * (n - 2))
    return a * (1 - torch.eye(n, dtype=a.dtype))


def naive(e, y, weight, floor=0.05, unbiased=False):
    """Gradient of weight log(floor + dCor) in float64, through the whole matrices."""
    e = e.double().requires_grad_()
    a, b = centred(e, unbiased), centred(y.double().reshape(len(y), -1), unbiased)
    value = (a * b).sum() / ((a * a).sum() * (b * b).sum()).sqrt()
    (weight * torch.log(floor + value)).backward()
    return e.grad, float(value.detach())


def given(dcor, e, labels, step=0):
    received = {"telco": e.clone().requires_grad_()}
    weight, terms = dcor.cut_gradient(view(labels, step, received))
    assert weight == 1.0
    return terms.get("telco")


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("floor", [0.0, 0.05])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_gradient_is_that_of_naive_autograd(classes, floor, unbiased):
    e, labels = batch(classes)
    options = {"alpha": 0.03, "floor": floor, "estimate": "unbiased" if unbiased else "biased"}
    dcor = protection("dcor", options, classes=classes)
    expected, value = naive(e, one_hot(labels, classes), 0.03, floor, unbiased)
    got = given(dcor, e, labels)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))
    assert dcor.metrics()["mean_dcor"] == pytest.approx(value, rel=1e-4)


def test_the_gradient_for_numbers():
    e, _ = batch()
    y = e[:, 1] * 100 + 5
    expected, _ = naive(e, y, 0.01)
    got = given(protection("dcor", {"alpha": 0.01}, kind="regression"), e, y)
    torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))


def test_the_gradient_is_in_proportion_to_alpha():
    e, labels = batch()
    full = given(protection("dcor", {"alpha": 0.02}), e, labels)
    half = given(protection("dcor", {"alpha": 0.01}), e, labels)
    torch.testing.assert_close(full, 2 * half)


def test_every_party_gets_its_own_term_and_keeps_its_graph():
    e, labels = batch()
    received = {"telco": e.clone().requires_grad_(), "shop": (2 * e[:, :3]).requires_grad_()}
    _, terms = protection("dcor", {"alpha": 0.01}).cut_gradient(view(labels, 0, received))
    torch.testing.assert_close(
        terms["shop"].double(), naive(2 * e[:, :3], one_hot(labels), 0.01)[0], rtol=1e-4, atol=1e-9
    )
    assert terms["telco"].shape == e.shape
    assert all(tensor.grad is None and tensor.requires_grad for tensor in received.values())


def test_a_step_against_the_gradient_lowers_the_correlation():
    e, labels = batch()
    before = naive(e, one_hot(labels), 1.0)[1]
    after = naive(e - 10 * given(protection("dcor", {"alpha": 1.0}), e, labels), one_hot(labels), 1.0)[1]
    assert after < before


@pytest.mark.parametrize("estimate", ["biased", "unbiased"])
@pytest.mark.parametrize(
    ("e", "labels"),
    [
        (torch.ones(20, 3), torch.arange(20) % 2),
        (torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(20, dtype=torch.int64)),
        (torch.randn(1, 3), torch.zeros(1, dtype=torch.int64)),
    ],
)
def test_without_dependence_nothing_is_added(estimate, e, labels):
    dcor = protection("dcor", {"alpha": 0.05, "estimate": estimate})
    assert not given(dcor, e, labels).any()
    metrics = dcor.metrics()
    assert metrics["terms_without_dependence"] == metrics["terms"] == 1
    assert all(math.isfinite(value) for value in metrics.values())


def test_an_unbiased_estimate_below_zero_adds_nothing():
    for seed in range(50):
        draw = torch.Generator().manual_seed(seed)
        e, labels = torch.randn(30, 4, generator=draw), torch.randint(0, 2, (30,), generator=draw)
        dcor = protection("dcor", {"alpha": 0.05, "estimate": "unbiased"})
        term = given(dcor, e, labels)
        assert bool(term.any()) == (dcor.metrics()["mean_dcor"] > 0)
        assert bool(term.isfinite().all())


def test_start_and_ramp_in_epochs_of_ten_steps():
    e, labels = batch()
    full = given(protection("dcor", {"alpha": 0.02}), e, labels)
    late = protection("dcor", {"alpha": 0.02, "start": 0.2, "ramp": 0.5})
    shares = []
    for step in range(10):
        term = given(late, e, labels, step)
        shares.append(0.0 if term is None else float(term.norm() / full.norm()))
    assert shares == pytest.approx([0, 0, 0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1], abs=1e-5)
    assert late.metrics()["steps_before_start"] == 2
    assert late.metrics()["terms"] == 8


def test_a_start_without_a_ramp_is_a_step_of_the_weight():
    e, labels = batch()
    full = given(protection("dcor", {"alpha": 0.02}), e, labels)
    late = protection("dcor", {"alpha": 0.02, "start": 0.2})
    terms = [given(late, e, labels, step) for step in range(4)]
    assert terms[:2] == [None, None]
    assert torch.equal(terms[2], full)
    assert torch.equal(terms[3], full)


def test_only_the_whitened_form_sees_a_label_in_a_direction_of_little_variance():
    e, labels = batch()
    scaled = e * torch.tensor([0.1, 10.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    seen = {}
    for form in ("paper", "whitened"):
        for name, embeddings in (("plain", e), ("scaled", scaled)):
            dcor = protection("dcor", {"alpha": 1.0, "floor": 0.0, "form": form, "estimate": "unbiased"})
            gradient = given(dcor, embeddings, labels)
            assert gradient.dtype == torch.float32
            seen[form, name] = dcor.metrics()["mean_dcor"]
    assert seen["paper", "scaled"] < 0.1 * seen["paper", "plain"]
    assert seen["whitened", "scaled"] > 0.8 * seen["whitened", "plain"] > 0.01


def test_the_gradient_of_the_whitened_form_is_that_of_finite_differences():
    e, labels = batch()
    dcor = protection("dcor", {"alpha": 1.0, "form": "whitened"})

    def value(embeddings):
        one = protection("dcor", {"alpha": 1.0, "form": "whitened"})
        given(one, embeddings, labels)
        return math.log(0.05 + one.metrics()["mean_dcor"])

    gradient = given(dcor, e, labels).double()
    step = 0.1 * gradient / gradient.norm()
    change = (value((e + step).float()) - value((e - step).float())) / 2
    assert change == pytest.approx(0.1 * float(gradient.norm()), rel=0.02)
    assert not given(protection("dcor", {"alpha": 1.0, "form": "whitened"}), torch.ones(N, WIDTH), labels).any()


def test_the_order_of_the_file_does_not_matter():
    e, labels = batch()
    task = torch.randn(N, WIDTH, generator=torch.Generator().manual_seed(3)) * 1e-3
    sent = []
    both = {"marvell": {"sum_kl": 4.0, "form": "shared"}, "dcor": {"alpha": 0.01}}
    for privacy in (both, dict(reversed(both.items()))):
        chain = build_chain("bank", "active", privacy, "privacy")
        sent.append(through(chain, e, labels, task))
    assert torch.equal(*sent)
    alone = through(build_chain("bank", "active", {"marvell": both["marvell"]}, "privacy"), e, labels, task)
    assert not torch.equal(alone, sent[0])


def through(chain: Chain, e, labels, task):
    from tests.protections.setup import context

    chain.setup(context())
    given_view = ActiveView(Mode.TRAIN, 0, 0, torch.arange(N), labels, {"telco": e.requires_grad_()}, {"telco": task})
    return chain.gradient_out(chain.cut_gradients(given_view)["telco"], "telco", given_view)


def test_marvell_hides_the_sum_of_both_gradients():
    e, labels = batch()
    task = torch.zeros(N, WIDTH)
    chain = build_chain(
        "bank", "active", {"marvell": {"sum_kl": 0.16, "form": "shared"}, "dcor": {"alpha": 0.01}}, "privacy"
    )
    through(chain, e, labels, task)
    metrics = {item.name: item.metrics() for item in chain.protections}
    assert metrics["marvell"]["mean_sum_kl"] == pytest.approx(0.16 / 2)
    assert metrics["dcor"]["terms"] == 1
