"""The contrastive loss against the double loop it stands for."""

import math

import pytest
import torch

from cutlayer.errors import DataError
from cutlayer_published.embedding import contrastive
from cutlayer_published.embedding.contrastive import contrastive_loss


def double_loop(rows, labels, temperature):
    """Equation 2 of Khosla et al. as it is written."""
    z = rows / rows.norm(dim=1, keepdim=True)
    terms = []
    for i in range(len(z)):
        positives = [p for p in range(len(z)) if p != i and labels[p] == labels[i]]
        if not positives:
            continue
        below = sum(torch.exp(z[i] @ z[a] / temperature) for a in range(len(z)) if a != i)
        terms.append(-sum(torch.log(torch.exp(z[i] @ z[p] / temperature) / below) for p in positives) / len(positives))
    return sum(terms) / len(terms)


def case(n, width=4, classes=3, seed=0):
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, width, generator=draw, dtype=torch.float64).requires_grad_()
    return rows, torch.randint(0, classes, (n,), generator=draw)


@pytest.mark.parametrize(("n", "classes"), [(2, 1), (17, 3), (40, 25)])
@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_value_and_gradient_are_those_of_the_double_loop(monkeypatch, n, classes, temperature):
    monkeypatch.setattr(contrastive, "_BLOCK", 7)
    rows, labels = case(n, classes=classes)
    expected, found = double_loop(rows, labels, temperature), contrastive_loss(rows, labels, temperature)
    assert found.item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-12)
    (theirs,) = torch.autograd.grad(3.0 * expected, rows)
    (ours,) = torch.autograd.grad(3.0 * found, rows)
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-9)


def test_blocks_do_not_change_it(monkeypatch):
    rows, labels = case(1100)
    whole = contrastive_loss(rows, labels, 0.5)
    monkeypatch.setattr(contrastive, "_BLOCK", 100)
    assert contrastive_loss(rows, labels, 0.5).item() == pytest.approx(whole.item(), rel=1e-12)


def test_it_falls_as_labels_come_together_and_a_step_down_lowers_it():
    rows, labels = case(60)
    apart = torch.nn.functional.one_hot(labels, 4).double()
    assert contrastive_loss(apart, labels, 0.1).item() < contrastive_loss(rows, labels, 0.1).item() / 1.5
    value = contrastive_loss(rows, labels, 0.5)
    (gradient,) = torch.autograd.grad(value, rows)
    assert contrastive_loss(rows - gradient, labels, 0.5).item() < value.item()


def test_two_alike_rows_among_others_have_a_known_value():
    rows = torch.eye(4)[[0, 0, 1, 2]]
    found = contrastive_loss(rows, torch.tensor([5, 5, 1, 2]), 1.0)
    assert float(found) == pytest.approx(math.log(math.e + 2) - 1, rel=1e-6)


def test_rows_laid_out_by_column_are_the_same_rows():
    rows, labels = case(20)
    columns = rows.detach().T.contiguous().T.requires_grad_()
    found, expected = contrastive_loss(columns, labels, 0.5), contrastive_loss(rows, labels, 0.5)
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(*pair)[0] for pair in ((found, columns), (expected, rows))))


def test_without_a_pair_of_one_label_it_is_zero_with_a_zero_gradient():
    rows, _ = case(5)
    value = contrastive_loss(rows, torch.arange(5), 0.5)
    value.backward()
    assert float(value.detach()) == 0.0
    assert not bool(rows.grad.any())


def test_rows_of_zeros_do_not_break_it():
    rows = torch.cat([torch.zeros(3, 4), torch.randn(5, 4, generator=torch.Generator().manual_seed(0))])
    rows.requires_grad_()
    contrastive_loss(rows, torch.tensor([0, 0, 1, 1, 0, 1, 2, 2]), 0.05).backward()
    assert bool(rows.grad.isfinite().all())


@pytest.mark.parametrize(
    ("rows", "labels", "temperature"),
    [(torch.ones(3), torch.zeros(3).long(), 0.5), (torch.ones(3, 2), torch.zeros(2).long(), 0.5)]
    + [(torch.ones(3, 2), torch.zeros(3).long(), t) for t in (0.0, -1.0, float("nan"))],
)
def test_bad_arguments_are_refused(rows, labels, temperature):
    with pytest.raises(DataError):
        contrastive_loss(rows, labels, temperature)
