"""CLUB over classes: against loops over all pairs, and against mutual informations that are known."""

from __future__ import annotations

import math

import pytest
import torch

from cutlayer.errors import DataError
from cutlayer.kernels.dependence.club import label_log_likelihood_gradient, vclub


def _sample(n=40, classes=5, seed=0):
    draw = torch.Generator().manual_seed(seed)
    log_probs = torch.log_softmax(torch.randn(n, classes, generator=draw, dtype=torch.float64), 1)
    labels = torch.randint(0, classes - 1, (n,), generator=draw)  # the last class has no row
    return log_probs, labels, torch.bincount(labels, minlength=classes) / n


def _likelihood(log_probs, labels):
    """L_A by its definition; L_R is its negative at drawn labels."""
    return log_probs.gather(1, labels[:, None]).mean()


def _over_pairs(log_probs, labels):
    """vCLUB by its definition: every row against every label."""
    n, total = len(labels), 0.0
    for i in range(n):
        for j in range(n):
            total += float(log_probs[i, labels[i]] - log_probs[i, labels[j]])
    return total / n**2


@pytest.mark.parametrize("seed", range(3))
def test_the_closed_form_is_the_mean_over_all_pairs(seed):
    log_probs, labels, shares = _sample(seed=seed)
    assert float(vclub(log_probs, labels, shares)) == pytest.approx(_over_pairs(log_probs, labels), abs=1e-7)


def test_the_expectation_is_that_of_drawn_labels():
    log_probs, labels, shares = _sample()
    draw = torch.Generator().manual_seed(1)
    likelihood = float(_likelihood(log_probs, labels))
    estimates = [
        likelihood - float(_likelihood(log_probs, labels[torch.randint(0, 40, (40,), generator=draw)]))
        for _ in range(1000)
    ]
    deviation = torch.tensor(estimates).std() / math.sqrt(len(estimates))
    assert abs(sum(estimates) / len(estimates) - float(vclub(log_probs, labels, shares))) < 4 * float(deviation)


def test_with_the_true_conditional_it_is_an_upper_bound():
    """A binary symmetric channel: h is the fair label, flipped with probability q; I = log 2 - H(q)."""
    n, q = 20_000, 0.2
    draw = torch.Generator().manual_seed(2)
    labels = (torch.rand(n, generator=draw) < 0.5).long()
    h = labels ^ (torch.rand(n, generator=draw) < q).long()
    rows = torch.tensor([[1 - q, q], [q, 1 - q]], dtype=torch.float64).log()[h]
    information = math.log(2) + q * math.log(q) + (1 - q) * math.log(1 - q)
    expected = (0.5 - q) * math.log((1 - q) / q)  # E log p(y|h) minus the mean of log p(1|h) and log p(0|h)
    estimate = float(vclub(rows, labels, torch.tensor([0.5, 0.5])))
    assert estimate == pytest.approx(expected, abs=0.02)
    assert estimate > information + 0.1


def test_with_the_true_conditional_of_gaussians_it_is_an_upper_bound():
    """Two Gaussian classes one deviation from the middle: the information by numerical integration."""
    n = 40_000
    draw = torch.Generator().manual_seed(3)
    labels = (torch.rand(n, generator=draw) < 0.5).long()
    h = (2.0 * labels - 1) + torch.randn(n, generator=draw, dtype=torch.float64)
    log_probs = torch.nn.functional.logsigmoid(torch.stack([-2 * h, 2 * h], 1))  # p(1 | h) = sigmoid(2 h)
    grid = torch.linspace(-9, 9, 20_001, dtype=torch.float64)
    density = torch.exp(-0.5 * (grid - 1) ** 2) / math.sqrt(2 * math.pi)  # of h where y = 1; y = 0 is its mirror image
    at = math.log(2) + torch.nn.functional.logsigmoid(2 * grid)
    information = float(torch.trapezoid(density * at, grid))
    estimate = float(vclub(log_probs, labels, torch.tensor([0.5, 0.5])))
    assert 0.3 < information < 0.4
    assert estimate == pytest.approx(1.0, abs=0.03)  # half the log-odds of the true class: E[(2 y - 1) 2 h] / 2
    assert estimate > information


def test_embeddings_that_tell_nothing_have_none():
    labels = torch.arange(30) % 3
    rows = torch.tensor([0.5, 0.3, 0.2]).log().expand(30, 3)
    assert float(vclub(rows, labels, torch.full((3,), 1 / 3))) == pytest.approx(0.0, abs=1e-6)


def test_a_class_without_labels_counts_nothing():
    log_probs = torch.tensor([[math.log(0.5), math.log(0.5), -math.inf]] * 4)
    value = vclub(log_probs, torch.tensor([0, 1, 0, 1]), torch.tensor([0.5, 0.5, 0.0]))
    assert float(value) == pytest.approx(0.0, abs=1e-6)


def test_the_gradient_raises_the_others_at_the_cost_of_the_label():
    logits = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0])
    drawn = torch.tensor([1, 1, 0, 2])
    log_probs = torch.log_softmax(logits, 1)
    (_likelihood(log_probs, labels) - _likelihood(log_probs, drawn)).backward()
    eye = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(logits.grad, (eye[labels] - eye[drawn]) / 4)


def test_the_written_gradients_are_those_of_autograd():
    draw = torch.Generator().manual_seed(4)
    logits = torch.randn(7, 4, generator=draw, dtype=torch.float64, requires_grad=True)
    labels, drawn = (torch.randint(0, 4, (7,), generator=draw) for _ in range(2))
    log_probs = torch.log_softmax(logits, 1)
    (of_labels,) = torch.autograd.grad(_likelihood(log_probs, labels), logits, retain_graph=True)
    (of_drawn,) = torch.autograd.grad(-_likelihood(log_probs, drawn), logits)
    torch.testing.assert_close(label_log_likelihood_gradient(log_probs, labels), of_labels)
    torch.testing.assert_close(-label_log_likelihood_gradient(log_probs, drawn), of_drawn)


@pytest.mark.parametrize(
    ("log_probs", "labels", "shares"),
    [
        (torch.zeros(3, 2), torch.zeros(4, dtype=torch.int64), torch.ones(2)),
        (torch.zeros(3), torch.zeros(3, dtype=torch.int64), torch.ones(2)),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), torch.ones(2)),
        (torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), torch.ones(3)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(log_probs, labels, shares):
    with pytest.raises(DataError):
        vclub(log_probs, labels, shares)
