"""A top model whose hidden units are all inactive: every gradient is zero, and the run says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cutlayer.models import top_of
from cutlayer.parties import active_setup
from cutlayer.parties.active_step import has_weight_gradient
from cutlayer.parties.session.observer import EpochRecord, Observer
from tests.parties.runs import run, tables, unaudited_job

BIAS = -1e4
"""Below anything that embeddings of standardised columns can lift above zero."""


class Records(Observer):
    """Collects the epochs."""

    def __init__(self) -> None:
        self.epochs: list[EpochRecord] = []

    def ended(self, record: EpochRecord) -> None:
        self.epochs.append(record)


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*args: Any, **options: Any) -> Any:
        top: Any = top_of(*args, **options)
        linear = next(module for module in top.modules() if isinstance(module, nn.Linear))
        with torch.no_grad():
            linear.bias.fill_(BIAS)
        return top

    monkeypatch.setattr(active_setup, "top_of", build)


@contextmanager
def one_warning() -> Iterator[None]:
    with pytest.warns(UserWarning, match="all gradients of epoch 1 are exactly zero") as caught:
        yield
    assert len(caught) == 1
    assert "model.top" in str(caught[0].message)


@pytest.mark.usefixtures("dead")
@pytest.mark.parametrize("train", [{}, {"release": "once"}], ids=["steps", "once"])
def test_a_training_without_a_gradient_is_reported_once(tmp_path: Path, train: dict[str, Any]) -> None:
    progress = Records()
    with one_warning():
        run(unaudited_job(**train), tables(), tmp_path, progress=progress)
    assert [record.learned for record in progress.epochs] == [False, False]


@pytest.mark.usefixtures("dead")
def test_a_loss_that_needs_no_gradient_is_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.parties.phases.active_epochs.SATURATED_LOSS", 10.0)
    progress = Records()
    run(unaudited_job(), tables(), tmp_path, progress=progress)
    assert [record.learned for record in progress.epochs] == [True, True]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"release": "once"},
        {"release": "once", "warmup_epochs": 1, "active_features": False},
        {"top": {"kind": "laser"}},
    ],
    ids=["steps", "once", "warm-up on zeros", "laser"],
)
def test_a_training_with_gradients_is_not_reported(tmp_path: Path, options: dict[str, Any]) -> None:
    progress = Records()
    run(unaudited_job(**options), tables(), tmp_path, progress=progress)
    assert [record.learned for record in progress.epochs] == [True, True]


def test_biases_alone_do_not_count() -> None:
    top = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        top[0].bias.fill_(BIAS)
    top(torch.ones(2, 3)).sum().backward()
    assert bool(top[2].bias.grad.any())
    assert not has_weight_gradient(top)
    bias_alone = nn.ParameterList([nn.Parameter(torch.zeros(2))])
    assert not has_weight_gradient(bias_alone)
    bias_alone[0].sum().backward()
    assert has_weight_gradient(bias_alone)
