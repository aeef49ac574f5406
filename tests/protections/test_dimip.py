"""DIMIP: against algorithm 1 in plain autograd, signs, predictors, resume, and completion by a departed party."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, nll_loss
from torch.nn.utils import vector_to_parameters

from cutlayer.errors import ConfigError
from cutlayer.protections import build, build_chain
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.views import ActiveView, Mode
from tests.protections.setup import context, protection, resume, saved, view

N, WIDTH, CLASSES, LAM = 24, 4, 3, 0.3
LABELS = torch.randint(0, CLASSES, (100,), generator=torch.Generator().manual_seed(9))


def dimip(classes=CLASSES, **options):
    return protection(
        "dimip", {"lam": LAM, "hidden": 16, "lr": 1e-3, **options}, classes=classes, labels=LABELS % classes
    )


def received(step=0, parties=("telco", "shop")):
    draw = torch.Generator().manual_seed(100 + step)
    return {party: torch.randn(N, WIDTH, generator=draw).requires_grad_() for party in parties}


def at(step, embeddings=None, classes=CLASSES):
    labels = LABELS[torch.arange(N) + step] % classes
    return view(labels, step, received(step) if embeddings is None else embeddings)


class Plain:
    """Algorithm 1 for one party in float64: L_A and L_R from `nll_loss`, psi by a loss and its backward pass."""

    def __init__(self, built, party):
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, CLASSES)
        ).double()
        start = built.state_dict()["predictors"][f"of {party}"]["weights"]
        vector_to_parameters(start.double(), self.layers.parameters())
        self.adam = torch.optim.Adam(self.layers.parameters(), lr=1e-3)

    def update(self, e, labels):
        self.adam.zero_grad()
        cross_entropy(self.layers(e.detach().double()), labels).backward()  # descends -L_A
        self.adam.step()

    def gradient(self, e, labels, drawn, lam=LAM):
        h = e.detach().double().requires_grad_()
        log_probs = torch.log_softmax(self.layers(h), 1)
        objective = -nll_loss(log_probs, labels)  # L_A
        if drawn is not None:
            objective = objective + nll_loss(log_probs, drawn)  # L_R
        (lam * objective).backward()
        self.layers.zero_grad()
        return h.grad


@pytest.mark.parametrize("random_labels", [True, False])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_gradient_is_that_of_algorithm_1(steps, random_labels):
    built = dimip(predictor_steps=steps, random_labels=random_labels)
    plain = {party: Plain(built, party) for party in ("telco", "shop")}
    for number in range(4):
        now = at(number)
        weight, terms = built.cut_gradient(now)
        assert weight == 1 - LAM
        for party, reference in plain.items():
            e = now.embeddings[party]
            for _ in range(steps):
                reference.update(e, now.labels)
            drawn = built._drawn(N, party, number) if random_labels else None
            expected = reference.gradient(e, now.labels, drawn)
            assert terms[party].dtype == torch.float32
            torch.testing.assert_close(terms[party].double(), expected, rtol=1e-4, atol=1e-7)


def test_a_single_pass_takes_the_gradient_before_the_update():
    built = dimip(single_pass=True)
    plain = Plain(built, "telco")
    for number in range(4):
        now = at(number)
        _, terms = built.cut_gradient(now)
        e, drawn = now.embeddings["telco"], built._drawn(N, "telco", number)
        torch.testing.assert_close(terms["telco"].double(), plain.gradient(e, now.labels, drawn), rtol=1e-4, atol=1e-7)
        plain.update(e, now.labels)
    whole = dimip()
    assert not torch.equal(
        whole.cut_gradient(at(0))[1]["telco"], dimip(single_pass=True).cut_gradient(at(0))[1]["telco"]
    )


def test_the_predictor_ascends_the_likelihood_and_the_party_descends_it():
    for single_pass in (False, True):
        built = dimip(random_labels=False, single_pass=single_pass, lr=0.01)
        e = {"telco": received()["telco"]}
        losses = []
        for _ in range(60):
            _, terms = built.cut_gradient(at(0, e))
            losses.append(loss_of(built, "telco", e["telco"], at(0).labels))
        assert losses[-1] < losses[0] - 0.2  # psi learned the labels of this batch
        moved = e["telco"].detach() - 20 * terms["telco"]  # as the passive party's own descent does
        assert loss_of(built, "telco", moved, at(0).labels) > losses[-1] + 0.05


def loss_of(built, party, e, labels):
    with torch.no_grad():
        return float(nll_loss(built._predictors[party].read(e)[1], labels))


def test_drawn_labels_are_those_of_the_training_rows():
    training = torch.arange(50, 100)
    labels = torch.full((100,), -1)
    labels[training] = (torch.arange(50) % 5 == 0).long()
    built = protection("dimip", {"lam": 0.5}, labels=labels, training=training)
    draws = torch.stack([built._drawn(200, "telco", step) for step in range(100)])
    assert draws.double().mean() == pytest.approx(0.2, abs=0.012)  # four deviations of 20,000 draws
    assert torch.equal(draws[3], built._drawn(200, "telco", 3))
    assert not torch.equal(draws[3], draws[4])
    assert not torch.equal(draws[3], built._drawn(200, "shop", 3))


@pytest.mark.parametrize("lam", [0.0, 0.25, 1.0])
def test_the_weights_add_up_to_one(lam):
    built = protection("dimip", {"lam": lam, "hidden": 16}, classes=CLASSES, labels=LABELS)
    weight, terms = built.cut_gradient(at(0))
    full = protection("dimip", {"lam": 1.0, "hidden": 16}, classes=CLASSES, labels=LABELS).cut_gradient(at(0))[1]
    assert weight == 1 - lam
    torch.testing.assert_close(terms["telco"], lam * full["telco"])


def test_what_is_sent_is_the_weighted_sum_and_the_top_model_gets_the_task_alone():
    built = dimip()
    chain = Chain("bank", [built])
    now = at(0)
    task = {party: torch.full((N, WIDTH), 0.01) for party in now.embeddings}
    now = ActiveView(Mode.TRAIN, 0, 0, now.rows, now.labels, now.embeddings, task)
    sent = chain.cut_gradients(now)
    _, terms = dimip().cut_gradient(now)
    for party in task:
        torch.testing.assert_close(sent[party], 0.7 * task[party] + terms[party])
        assert now.embeddings[party].grad is None  # nothing flows back into what the top model's backward pass wrote
        assert torch.equal(task[party], torch.full((N, WIDTH), 0.01))


def test_every_party_has_a_predictor_of_its_own():
    one, other = dimip(), dimip()
    e = received()
    changed = {**e, "shop": torch.zeros_like(e["shop"])}
    for _ in range(3):
        _, terms = one.cut_gradient(at(0, e))
        _, others = other.cut_gradient(at(0, changed))
    assert torch.equal(terms["telco"], others["telco"])
    same = {"telco": e["telco"], "shop": e["telco"]}
    _, terms = dimip().cut_gradient(at(0, same))
    assert not torch.equal(terms["telco"], terms["shop"])


@pytest.mark.parametrize("single_pass", [False, True])
def test_a_resume_continues_to_the_last_bit(single_pass):
    whole, first = dimip(single_pass=single_pass), dimip(single_pass=single_pass)
    for number in range(3):
        whole.cut_gradient(at(number))
        first.cut_gradient(at(number))
    state = saved(first)
    first.cut_gradient(at(3))  # what was saved is a copy
    second = dimip(single_pass=single_pass)
    resume(second, state)
    expected = whole.cut_gradient(at(3))[1]
    for party, term in second.cut_gradient(at(3))[1].items():
        assert torch.equal(term, expected[party])
    assert second.metrics() == whole.metrics()


def test_predictors_do_not_disturb_the_party_s_random_state():
    before = torch.get_rng_state()
    built = dimip()
    built.cut_gradient(at(0))
    assert torch.equal(before, torch.get_rng_state())


def test_another_seed_gives_other_predictors():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        one = dimip().cut_gradient(at(0))[1]["telco"]
        torch.rand(3)  # weights depend on the seed, and not on what was drawn since
        again = dimip().cut_gradient(at(0))[1]["telco"]
        torch.manual_seed(2)
        other = dimip().cut_gradient(at(0))[1]["telco"]
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_metrics_are_of_the_last_epoch():
    chain = Chain("bank", [dimip()])
    built = chain.protections[0]
    for number in range(3):
        built.cut_gradient(at(number))
    first = chain.epoch_metrics()
    assert set(first) == {f"dimip.{name}.{p}" for name in ("vclub", "predictor_accuracy") for p in ("telco", "shop")}
    assert built.metrics() == {"steps": 3, **{key.removeprefix("dimip."): value for key, value in first.items()}}
    resumed = dimip()
    resume(resumed, saved(built))
    assert resumed.metrics() == built.metrics()
    built.cut_gradient(at(3))
    metrics = built.metrics()
    with torch.no_grad():
        _, log_probs = built._predictors["telco"].read(at(3).embeddings["telco"])
    pairs = [log_probs[i, at(3).labels[i]] - log_probs[i, label] for i in range(N) for label in LABELS]
    assert metrics["vclub.telco"] == pytest.approx(float(sum(pairs)) / len(pairs), abs=1e-5)
    right = (log_probs.argmax(1) == at(3).labels).double().mean()
    assert metrics["predictor_accuracy.telco"] == pytest.approx(float(right))


def test_a_protection_without_metrics_of_an_epoch_adds_none():
    assert build_chain("bank", "active", {"max_norm": {}}, "privacy").epoch_metrics() == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "lam"),
        ({"lam": -0.1}, "lam"),
        ({"lam": 1.1}, "lam"),
        ({"lam": "0.5"}, "lam"),
        ({"lam": 0.5, "predictor_steps": 0}, "predictor_steps"),
        ({"lam": 0.5, "predictor_steps": 10**29}, "predictor_steps"),
        ({"lam": 0.5, "lr": 0.0}, "lr"),
        ({"lam": 0.5, "hidden": 0}, "hidden"),
        ({"lam": 0.5, "single_pass": True, "predictor_steps": 2}, "single_pass"),
        ({"lambda": 0.5}, "lam"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        build("dimip", options, "privacy")


def trained(lam, seed=0, epochs=4):
    """Two parties, each with a noisy copy of the centre of one of four classes: completion, and utility."""
    draw = torch.Generator().manual_seed(seed)
    rows = 1600
    y = torch.randint(0, 4, (rows,), generator=draw)
    centres = 2.0 * torch.randn(4, 6, generator=draw)
    x = [centres[y] + 1.5 * torch.randn(rows, 6, generator=draw) for _ in range(2)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        own, bottom = (nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(2))
        top = nn.Linear(16, 4)
        built = build("dimip", {"lam": lam, "hidden": 32, "predictor_steps": 3, "lr": 0.01}, "privacy")
        options = {"peers": ("telco",), "widths": {"telco": 8}, "training": torch.arange(1200)}
        built.setup(context(4, labels=y, **options))
    chain = Chain("bank", [built] if lam else [])
    active, passive = (
        torch.optim.Adam(parameters, lr=3e-3)
        for parameters in ([*own.parameters(), *top.parameters()], bottom.parameters())
    )
    for step in range(epochs * 1200 // 40):
        i = torch.randperm(1200, generator=draw)[:40]
        e = bottom(x[1][i])
        h = e.detach().requires_grad_()
        active.zero_grad()
        cross_entropy(top(torch.cat([own(x[0][i]), h], 1)), y[i]).backward()
        now = ActiveView(Mode.TRAIN, 0, step, i, y[i], {"telco": h}, {"telco": h.grad})
        gradient = chain.cut_gradients(now)["telco"]
        active.step()
        passive.zero_grad()
        e.backward(gradient)
        passive.step()
    with torch.no_grad():
        kept = bottom(x[1])
        answers = top(torch.cat([own(x[0]), kept], 1)).argmax(1)
    return kept, y, float((answers == y)[1200:].double().mean())


def completed(kept, y, per_class=10):
    """Accuracy of a linear head fitted on few labels over the departed party's frozen, standardised embeddings."""
    z = (kept - kept[:1200].mean(0)) / kept[:1200].std(0).clamp_min(1e-6)
    known = torch.cat([(y[:1200] == code).nonzero()[:per_class, 0] for code in range(4)])
    weight = torch.zeros(9, 4, requires_grad=True)
    one = torch.cat([z, torch.ones(len(z), 1)], 1)
    adam = torch.optim.Adam([weight], lr=0.05)
    for _ in range(200):
        adam.zero_grad()
        (cross_entropy(one[known] @ weight, y[known]) + 1e-3 * weight.square().sum()).backward()
        adam.step()
    return float(((one @ weight).argmax(1) == y)[1200:].double().mean())


def test_a_departed_party_completes_less_of_its_model():
    before, y, utility_before = trained(0.0)
    after, _, utility = trained(0.5)
    leaked, left = completed(before, y), completed(after, y)
    assert leaked > 0.7
    assert left < leaked - 0.25
    assert utility > utility_before - 0.1
