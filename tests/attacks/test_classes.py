"""Clusters and their names: the spectral attack on several classes, and gradient matching."""

import pytest
import torch
from torch import nn

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label import gradient_match, spectral
from cutlayer.attacks.label.base import LabelView, Target
from cutlayer.attacks.label.spectral import name_by_size
from cutlayer.channel.transcript import Step
from cutlayer.problem.metrics.roc import macro_auc, roc_auc
from cutlayer.problem.task import Task

SHARES = (0.2, 0.5, 0.3)
TASK = Task("multiclass", ("a", "b", "c"))


def planted(n=2000, gap=8.0, d=10, shares=SHARES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.multinomial(torch.tensor(shares), n, replacement=True, generator=generator)
    x = torch.randn(n, d, generator=generator)
    x[torch.arange(n), codes + 3] += gap
    return x, codes


def trained(task, codes, steps, d=8, hidden=16, seed=0):
    """Embeddings and cut gradients of a top model with a hidden layer, after some training steps."""
    generator = torch.Generator().manual_seed(seed)
    e = torch.randn(len(codes), d, generator=generator)
    e[torch.arange(len(codes)), codes] += 1.5
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        top = nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, task.outputs))
    optimizer = torch.optim.Adam(top.parameters(), lr=0.01)
    for _ in range(steps + 1):
        received = e.clone().requires_grad_()
        optimizer.zero_grad()
        task.loss(top(received), codes).backward()
        optimizer.step()
    return e, received.grad


@pytest.mark.parametrize(
    ("shares", "expected"),
    [((0.2, 0.5, 0.3), [1, 2, 0]), ((0.5, 0.3, 0.2), [2, 0, 1]), ((1 / 3, 1 / 3, 1 / 3), [2, 0, 1])],
)
def test_the_largest_cluster_is_the_most_frequent_class(shares, expected):
    assert name_by_size(torch.tensor([2, 2, 2, 0, 0, 1]), shares).tolist() == expected


def test_spectral_names_well_parted_classes():
    x, codes = planted()
    step = Step(0, 0, torch.arange(2000), gradients={"telco": x})
    scores = spectral.Spectral()(LabelView("telco", TASK, [step], Target.GRADIENT), Knowledge(class_shares=SHARES))
    assert scores.values.shape == (2000, 3)
    assert macro_auc(scores.values, codes) > 0.999
    assert float((scores.hard == codes).double().mean()) > 0.99


def test_spectral_misnames_classes_whose_sizes_mislead():
    """The attacker is told wrong shares: the clusters stay, their names change."""
    x, codes = planted()
    guess = spectral.guess_classes(x[None], (0.5, 0.2, 0.3)).of_step(0)
    renamed = torch.tensor([1, 0, 2])[guess.hard]
    assert float((renamed == codes).double().mean()) > 0.99


def test_the_class_score_is_the_margin_to_the_nearest_other_centre():
    points = torch.tensor([[-4.0, 0.0]] * 6 + [[4.0, 0.0]] * 3 + [[0.0, 3.0]] * 2)
    guess = spectral.guess_classes(points[None], (0.6, 0.3, 0.1)).of_step(0)
    assert guess.hard.tolist() == [0] * 6 + [1] * 3 + [2] * 2
    assert guess.values[0].tolist() == pytest.approx([25.0, -64.0, -25.0], rel=1e-5)
    assert guess.values[-1].tolist() == pytest.approx([-25.0, -25.0, 25.0], rel=1e-5)


def test_of_two_classes_it_is_the_oriented_projection():
    x, _ = planted(shares=(0.7, 0.3))
    two = spectral.guess_classes(x[None], (0.7, 0.3)).of_step(0)
    one = spectral.guess(x[None], 0.3).of_step(0)
    assert torch.equal(two.values[:, 1].argsort(), one.values.argsort())
    assert torch.equal(two.hard == 1, one.hard)
    torch.testing.assert_close(two.values[:, 0], -two.values[:, 1])


def test_equal_rows_say_nothing():
    guess = spectral.guess_classes(torch.full((1, 40, 4), 0.3), SHARES).of_step(0)
    assert not guess.values.any()
    assert guess.hard.unique().tolist() == [1]


@pytest.mark.parametrize("steps", [10, 60])
def test_gradient_match_recovers_binary_labels(steps):
    task = Task("binary", ("no", "yes"))
    codes = (torch.rand(600, generator=torch.Generator().manual_seed(1)) < 0.3).long()
    embeddings, gradients = trained(task, codes, steps)
    logs = gradient_match.match(embeddings, gradients, 2)
    guess = gradient_match.named_guess(logs, (0.7, 0.3), binary=True)
    assert roc_auc(guess.values, codes) > 0.98
    assert float((guess.hard == codes.bool()).double().mean()) > 0.95


@pytest.mark.parametrize("steps", [10, 60])
def test_gradient_match_recovers_several_classes(steps):
    codes = torch.multinomial(torch.tensor(SHARES), 900, replacement=True, generator=torch.Generator().manual_seed(1))
    embeddings, gradients = trained(TASK, codes, steps)
    step = Step(0, 0, torch.arange(900), {"telco": embeddings}, {"telco": gradients})
    view = LabelView("telco", TASK, [step], Target.GRADIENT)
    scores = gradient_match.GradientMatch()(view, Knowledge(class_shares=SHARES))
    assert macro_auc(scores.values, codes) > 0.97
    assert float((scores.hard == codes).double().mean()) > 0.9


def test_gradient_match_needs_the_embeddings_that_belong_to_the_gradients():
    """With the embeddings of other rows the dummy top model fits worse and helps less than the right ones."""
    codes = torch.multinomial(torch.tensor(SHARES), 900, replacement=True, generator=torch.Generator().manual_seed(1))
    embeddings, gradients = trained(TASK, codes, 60)
    right = gradient_match.named_guess(gradient_match.match(embeddings, gradients, 3), SHARES, binary=False)
    wrong = gradient_match.named_guess(gradient_match.match(embeddings.roll(1, 0), gradients, 3), SHARES, binary=False)
    assert macro_auc(right.values, codes) > macro_auc(wrong.values, codes)


def test_gradient_match_leaves_the_random_state_alone():
    codes = (torch.rand(100, generator=torch.Generator().manual_seed(1)) < 0.3).long()
    pair = trained(Task("binary", ("no", "yes")), codes, 3)
    before = torch.get_rng_state()
    gradient_match.match(*pair, 2)
    assert torch.equal(before, torch.get_rng_state())


def test_gradient_match_has_nothing_to_match_in_zeros():
    assert not gradient_match.match(torch.randn(20, 3), torch.zeros(20, 3), 3).any()
