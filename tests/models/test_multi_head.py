"""The multi-head top model: a head for every set of absent parties, all trained on the sum of their losses."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor

from cutlayer.errors import ConfigError
from cutlayer.models import build_top
from cutlayer.models.absence import absent_sets
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss

WIDTHS = {"telco": 3, "bank": 5, "shop": 4}
QUITTERS = ("telco", "shop")
RAW = {"kind": "multi_head", "hidden": [6]}


def embeddings(widths: dict[str, int] = WIDTHS, rows: int = 7) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return {name: torch.randn(rows, width, generator=draw) for name, width in widths.items()}


def test_every_set_of_absent_parties_has_a_head_of_its_own() -> None:
    top, given = build_top(RAW, WIDTHS, 1, may_leave=QUITTERS), embeddings()
    absences: list[set[str]] = [set(), {"telco"}, {"shop"}, {"telco", "shop"}]
    logits = [top.answer(given, given.keys() - absent) for absent in absences]
    assert torch.equal(logits[0], top(given))
    assert all(not torch.allclose(first, second) for first, second in combinations(logits, 2))
    assert len(top.extra_heads) == 3


@pytest.mark.parametrize("absent", [("telco",), ("shop",), ("telco", "shop")])
def test_a_head_reads_nothing_of_those_who_are_absent(absent: tuple[str, ...]) -> None:
    top, given = build_top(RAW, WIDTHS, 2, may_leave=QUITTERS), embeddings()
    present = given.keys() - set(absent)
    expected = top.answer(given, present)
    other = {name: e if name in present else torch.full_like(e, float("nan")) for name, e in given.items()}
    assert torch.equal(top.answer(other, present), expected)
    for name in present:
        assert not torch.equal(top.answer({**given, name: given[name] + 1}, present), expected)


def test_the_losses_of_all_heads_are_summed_and_train_the_extractors() -> None:
    top, task = build_top(RAW, WIDTHS, 1, may_leave=QUITTERS), Task("binary", ("n", "y"))
    labels = torch.arange(7) % 2
    given = {name: e.requires_grad_() for name, e in embeddings().items()}
    absences: list[set[str]] = [set(), {"telco"}, {"shop"}, {"telco", "shop"}]
    parts = [task.loss(top.answer(given, given.keys() - absent), labels) for absent in absences]
    loss = top.objective(given, labels, TrainingLoss(task))
    assert loss.item() == pytest.approx(sum(part.item() for part in parts))
    loss.backward()
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in top.parameters())
    for name, e in given.items():
        single = [torch.autograd.grad(part, e, retain_graph=True, allow_unused=True)[0] for part in parts]
        reached = [gradient for gradient in single if gradient is not None]
        assert len(reached) == sum(name not in absent for absent in absences)
        assert e.grad is not None
        torch.testing.assert_close(e.grad, torch.stack(reached).sum(0))


@pytest.mark.parametrize(("others", "heads"), [(1, 1), (2, 3), (6, 63), (7, 7)])
def test_heads_by_the_number_of_parties(others: int, heads: int) -> None:
    names = [f"p{number}" for number in range(others)]
    top = build_top(RAW, {"bank": 2, **dict.fromkeys(names, 2)}, 1, may_leave=names)
    assert len(top.extra_heads) == heads


def test_somebody_must_stay_where_the_active_party_has_no_embedding() -> None:
    top = build_top(RAW, {"telco": 3, "shop": 4}, 1, may_leave=QUITTERS)
    assert len(top.extra_heads) == 2
    assert len(build_top(RAW, {"bank": 3}, 1).extra_heads) == 0


def test_a_set_without_a_head_is_answered_with_zeros() -> None:
    names = [f"p{number}" for number in range(7)]
    widths = {"bank": 2, **dict.fromkeys(names, 2)}
    top, given = build_top(RAW, widths, 1, may_leave=names), embeddings(widths)
    zeros = {name: torch.zeros_like(e) if name in ("p0", "p1") else e for name, e in given.items()}
    assert torch.equal(top.answer(given, given.keys() - {"p0", "p1"}), top(zeros))


@pytest.mark.parametrize("kind", ["mlp", "wide_deep"])
def test_other_kinds_take_zeros_for_the_absent(kind: str) -> None:
    top, given = build_top({"kind": kind}, WIDTHS, 1, may_leave=QUITTERS), embeddings()
    assert torch.equal(top.answer(given, given), top(given))
    zeros = {**given, "shop": torch.zeros_like(given["shop"])}
    assert torch.equal(top.answer(given, ["telco", "bank"]), top(zeros))
    assert top.extra_heads == ()


def test_its_options_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"model\.top\.hiden: unknown key; did you mean 'hidden'"):
        build_top({"kind": "multi_head", "hiden": [3]}, WIDTHS, 1)


@pytest.mark.parametrize(
    ("parties", "keep_one", "count"),
    [(1, False, 1), (1, True, 0), (3, False, 7), (3, True, 6), (6, False, 63), (7, False, 7 + 21 + 1), (8, True, 36)],
)
def test_sets_of_absent_parties_for_a_report(parties: int, keep_one: bool, count: int) -> None:
    names = [f"p{number}" for number in range(parties)]
    found = absent_sets(names, keep_one=keep_one, sizes=(1, 2, parties))
    assert len(found) == len(set(found)) == count
    assert [len(item) for item in found] == sorted(len(one) for one in found)
    assert all(list(each) == [name for name in names if name in each] for each in found)
