"""Views whose tensors are on the CPU, for protections that compute there."""

from dataclasses import replace

import pytest
import torch

from cutlayer.protections.contract.placement import CPU, moved, on_cpu
from cutlayer.protections.contract.views import ActiveView, Mode, PassiveView
from tests.pretended import pretending

ROWS = torch.arange(4)


@pytest.fixture
def elsewhere():
    with pretending() as device:
        yield torch.ones(4, 3).to(device)


def test_every_tensor_of_a_view_is_on_the_cpu(elsewhere):
    active = on_cpu(ActiveView(Mode.TRAIN, 0, 0, ROWS, elsewhere, {"telco": elsewhere}, {"telco": elsewhere}))
    assert (
        active.labels.device
        == active.embeddings["telco"].device
        == active.task_gradients["telco"].device
        == torch.device(CPU)
    )
    seen = PassiveView(Mode.TRAIN, 0, 0, ROWS, lambda rows: elsewhere, elsewhere, elsewhere, lambda rows: elsewhere)
    passive = on_cpu(seen)
    assert passive.embedding.device == passive.gradient.device == torch.device(CPU)
    assert passive.embed(ROWS).device == passive.inputs(ROWS).device == torch.device(CPU)
    assert on_cpu(replace(seen, gradient=None, inputs=None)).inputs is None
    assert moved(elsewhere, CPU).tolist() == [[1.0] * 3] * 4
