"""Micro-batches in threads: the numbers of one after another, whichever thread is first."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cutlayer.config import validated
from cutlayer.config.train import TrainConfig
from cutlayer.models import Inputs, build_bottom, build_top
from cutlayer.parties.active_step import ActiveStep
from cutlayer.parties.compute.group_threads import GroupThreads, Learned
from tests.parties.runs import DROPOUT, MLP, TOP, UNAUDITED, Watched, make_job, run, tables

GIVEN = tables(passives=2)
LAYERS = {"layers": True, "depth": "quick", "rows": 64}
TRAIN = validated(TrainConfig, {"micro_batches": 4}, "train")
CPU = torch.device("cpu")
SHAPE = Inputs((4,), 3)


@pytest.fixture
def four_threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tensor library seems to have four threads, and what it is given is listed.

    Sums of matrix products are then of one thread, as in the run that they are compared with.
    """
    given: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", given.append)
    return given


def trained(folder: Path, audit: dict[str, Any] = UNAUDITED, **options: Any) -> Watched:
    options = {"passives": 2, "micro_batches": 4, **options}
    return run(make_job(audit=audit, **options), GIVEN, folder)


def weights(folder: Path) -> dict[str, dict[str, bytes]]:
    """The tensors of all checkpoints of each party, by file."""
    paths = sorted((folder / "checkpoint").rglob("*.safetensors"))
    assert paths
    return {
        str(path.relative_to(folder)): {name: tensor.numpy().tobytes() for name, tensor in load_file(path).items()}
        for path in paths
    }


def slow_first(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first backward pass of each step is the last to end."""
    ended: list[str] = []
    compute = GroupThreads._backward

    def delayed(self: GroupThreads, embedding: Tensor, gradient: Tensor) -> Learned:
        number = len(self._learning)
        result = compute(self, embedding, gradient)
        if number == 0:
            time.sleep(0.02)
        ended.append(str(number))
        return result

    monkeypatch.setattr(GroupThreads, "_backward", delayed)
    return ended


@pytest.mark.parametrize(
    ("audit", "active_features"),
    [(UNAUDITED, True), (LAYERS, True), (UNAUDITED, False)],
    ids=["plain", "with taps on the layers", "without features at the active party"],
)
def test_a_run_equals_that_of_one_thread(
    audit: dict[str, Any],
    active_features: bool,
    tmp_path: Path,
    four_threads: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = slow_first(monkeypatch)
    fast = trained(tmp_path / "fast", audit, active_features=active_features)
    assert ended
    assert four_threads == [1, 1, 1]  # of each party
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    ended.clear()
    slow = trained(tmp_path / "slow", audit, active_features=active_features)
    assert not ended
    assert fast.active.step_losses == slow.active.step_losses
    assert weights(tmp_path / "fast") == weights(tmp_path / "slow")


def test_several_groups_are_computed_before_the_first_gradient_leaves(
    tmp_path: Path, four_threads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    receive, answer = ActiveStep._receive, ActiveStep._return_gradients

    def receiving(self: ActiveStep, *arguments: Any) -> Any:
        batch = yield from receive(self, *arguments)
        order.append("received")
        return batch

    def answering(self: ActiveStep, batch: Any) -> Any:
        order.append("answered")
        return answer(self, batch)

    monkeypatch.setattr(ActiveStep, "_receive", receiving)
    monkeypatch.setattr(ActiveStep, "_return_gradients", answering)
    trained(tmp_path)
    assert order[:8] == ["received"] * 4 + ["answered"] * 4


@pytest.mark.parametrize(
    ("options", "parties"),
    [
        ({"micro_batches": 1}, 0),
        ({"bottom": DROPOUT}, 0),
        ({"bottom": {**MLP, "dropout": 0.2}}, 0),
        ({"privacy": {"max_norm": {}}}, 2),
    ],
    ids=["one micro-batch", "a user's module", "dropout", "a protection of the whole batch"],
)
def test_one_thread_where_threads_would_compute_something_else(
    options: dict[str, Any], parties: int, tmp_path: Path, four_threads: list[int]
) -> None:
    trained(tmp_path, **options)
    assert len(four_threads) == parties


def test_what_threads_need_of_a_model(four_threads: list[int]) -> None:
    bottom, top = build_bottom(MLP, SHAPE), build_top(TOP, {"telco": 6}, 1)
    assert GroupThreads.of([bottom, top], TRAIN, CPU) is not None
    laser = build_top({"kind": "laser"}, {"bank": 6, "telco": 6}, 1, may_leave=("telco",))
    assert GroupThreads.of([bottom, laser], TRAIN, CPU) is None
    assert GroupThreads.of([bottom], TRAIN, torch.device("meta")) is None
    assert four_threads == [1]


def test_gradients_of_an_unfinished_step_are_forgotten(four_threads: list[int]) -> None:
    bottom = build_bottom(MLP, SHAPE)
    threads = GroupThreads([bottom], 2)
    codes, numbers = torch.zeros(4, 1, dtype=torch.int32), torch.randn(4, 3)
    (embedded,) = threads.embed(bottom, [(codes, numbers)])
    threads.learn(embedded.result(), torch.ones(4, 6))
    threads.begin()
    threads.collect()
    threads.close()
    assert all(parameter.grad is None for parameter in bottom.parameters())
