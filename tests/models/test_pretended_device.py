"""Every kind of model computes on another device what it computes on the CPU, forwards and backwards."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from cutlayer.consent import allowed
from tests.models import test_kinds as kinds
from tests.pretended import ELSEWHERE, pretending


def gradients(model: nn.Module, result: Tensor) -> list[Tensor]:
    result.square().sum().backward()  # type: ignore[no-untyped-call]
    return [parameter.grad.cpu() for parameter in model.parameters() if parameter.grad is not None]


def same(here: list[Tensor], there: list[Tensor]) -> bool:
    return len(here) == len(there) > 0 and all(map(torch.equal, here, there))


@pytest.mark.parametrize("kind", kinds.LEARNED)
def test_bottom_models(kind: str) -> None:
    with allowed(kinds.__name__):
        model = kinds.bottom_of(kind)
    columns = kinds.batch(kinds.inputs_of(kind))
    with pretending():
        moved = copy.deepcopy(model).to(ELSEWHERE)
        embedding = moved(*(column.to(ELSEWHERE) for column in columns))
        assert embedding.device == ELSEWHERE
        there = gradients(moved, embedding)
    assert same(gradients(model, model(*columns)), there)


@pytest.mark.parametrize("kind", kinds.STEPPED)
def test_top_models(kind: str) -> None:
    with allowed(kinds.__name__):
        model = kinds.top_of(kind)
    given = {name: e.detach() for name, e in kinds.embeddings(kind).items()}
    present = list(given)[:2]
    with pretending():
        moved = copy.deepcopy(model).to(ELSEWHERE)
        elsewhere = {name: e.to(ELSEWHERE) for name, e in given.items()}
        answer = moved(elsewhere) + moved.answer(elsewhere, present)
        assert answer.device == ELSEWHERE
        there = gradients(moved, answer)
    assert same(gradients(model, model(given) + model.answer(given, present)), there)
