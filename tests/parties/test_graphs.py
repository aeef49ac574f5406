"""Replayed passes give the numbers of the plain ones, although a graph reuses its memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutlayer.config import PrivatePart, validated
from cutlayer.errors import ConfigError
from cutlayer.parties import graphs
from cutlayer.parties.graphs import Replayed
from cutlayer.training.together import Trained
from tests.parties.interruptions import Crash, Dying
from tests.parties.runs import ACTIVE, MLP, make_job, run, tables, unaudited_job


class Memory:
    """Captures as `torch.cuda.make_graphed_callables` does, as far as its callers may notice.

    Arguments, results and gradients have the same memory in every replay, and a replay changes no tensor's version.
    Passes before the capture change buffers, and draw random numbers.
    """

    def __init__(self) -> None:
        self.replays, self.captures = 0, 0

    def capture(self, module: nn.Module, samples: tuple[Tensor, ...], *, allow_unused_input: bool) -> nn.Module:
        assert allow_unused_input
        assert not any(part._forward_hooks for part in module.modules())
        self.captures += 1
        plain, memory, parameters = module.forward, self, tuple(module.parameters())
        for _ in range(3):
            shape = plain(*samples).detach()
        result, inputs = torch.empty_like(shape), [sample.detach() for sample in samples]
        kept: dict[int, Tensor] = {}

        class Graphed(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *given: Tensor) -> Tensor:
                memory.replays += 1
                for static, argument in zip(inputs, given, strict=False):
                    static.data.copy_(argument)
                leaves = [
                    static.detach().requires_grad_(s.requires_grad) for static, s in zip(inputs, samples, strict=True)
                ]
                with torch.enable_grad():
                    ctx.result = plain(*leaves)
                ctx.wanted = [leaf for leaf in (*leaves, *parameters) if leaf.requires_grad]
                ctx.needs = [leaf.requires_grad for leaf in (*leaves, *parameters)]
                result.data.copy_(ctx.result)
                return result.detach()

            @staticmethod
            def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
                found = iter(torch.autograd.grad(ctx.result, ctx.wanted, upstream, allow_unused=True))
                return tuple(
                    kept_in(kept, index, next(found)) if need else None for index, need in enumerate(ctx.needs)
                )

        module.forward = lambda *arguments: Graphed.apply(*arguments, *parameters)  # type: ignore[method-assign]
        return module


def kept_in(kept: dict[int, Tensor], index: int, gradient: Tensor | None) -> Tensor | None:
    """The gradient in the memory that the last one of this index had."""
    if gradient is None:
        return None
    kept.setdefault(index, torch.empty_like(gradient)).data.copy_(gradient)
    return kept[index].detach()


@contextmanager
def capturing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """Graphs on the CPU, by `Memory`; a warning that one was refused fails the test."""
    memory = Memory()
    monkeypatch.setattr(graphs, "GPU", "cpu")
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", memory.capture)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*without a CUDA graph.*")
        yield memory


def graphed_run(raw: Any, given: Any, folder: Path, **options: Any) -> Trained:
    """A run in which all parties ask for graphs."""
    parties = {name: part.model_copy(update={"cuda_graphs": True}) for name, part in raw.parties.items()}
    return run(raw.model_copy(update={"parties": parties}), given, folder, **options)


JOBS: dict[str, Callable[[], Any]] = {
    "plain": lambda: unaudited_job(passives=2),
    "recorded": lambda: make_job(passives=2, audit={"every": "epoch", "attacks": ["norm"], "layers": False}),
    "dropout": lambda: unaudited_job(bottom={**MLP, "dropout": 0.3}, optimizer={"kind": "sgd"}),
    "protected": lambda: unaudited_job(
        passives=2,
        privacy={"label_dp": {"eps": 1.0}, "dimip": {"lam": 0.1}, "party_dropout": {"rate": 0.3}, "max_norm": {}},
    ),
    "classes": lambda: unaudited_job("multiclass", class_weight="balanced"),
    "bf16": lambda: unaudited_job("regression", precision="bf16"),
}


@pytest.mark.parametrize("name", JOBS)
def test_replayed_passes_train_the_same_model(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JOBS[name]()
    given = tables(job.task, len(job.passives))
    plain = run(job, given, tmp_path / "plain")
    with capturing(monkeypatch) as memory:
        replayed = graphed_run(job, given, tmp_path / "replayed")
    assert memory.captures == len(job.parties) + 1  # the bottom models and the top model
    assert memory.replays > 2 * memory.captures  # the replay that is compared is not the only one
    assert replayed.active.step_losses == plain.active.step_losses
    assert torch.equal(replayed.active.logits, plain.active.logits)
    assert replayed.active.evidence == plain.active.evidence


@pytest.mark.parametrize("resumed", [graphed_run, run])
def test_a_resumed_run_trains_the_same_model(
    resumed: Callable[..., Trained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = unaudited_job(bottom={**MLP, "dropout": 0.3}, epochs=3)
    given = tables()
    with capturing(monkeypatch) as memory:
        whole = graphed_run(job, given, tmp_path / "whole").active
        with pytest.raises(Crash):
            graphed_run(job, given, tmp_path / "run", progress=Dying(len(whole.step_losses) // 3 + 2))
        captures = memory.captures
        after = resumed(job, given, tmp_path / "run", resume=True).active
    assert (memory.captures > captures) == (resumed is graphed_run)
    assert 0 < len(after.step_losses) < len(whole.step_losses)
    assert after.step_losses == whole.step_losses[-len(after.step_losses) :]
    assert torch.equal(after.logits, whole.logits)


@pytest.mark.parametrize(
    ("what", "options"),
    [
        ("parts of a batch", {"micro_batches": 2}),
        ("models that compute otherwise each time", {"top": {"kind": "laser"}}),
    ],
)
def test_jobs_that_cannot_be_replayed_are_computed_plainly(
    what: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = unaudited_job(passives=2, **options)
    with capturing(monkeypatch) as memory:
        graphed_run(job, tables(passives=2), tmp_path / "run")
    assert memory.captures == (0 if "micro_batches" in options else 3), what  # of `laser` the bottom models alone


class Counting(nn.Module):
    """A model with a buffer, and noise of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dropout = nn.BatchNorm1d(3), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.dropout(self.norm(x))
        return result


def test_a_capture_leaves_buffers_and_random_numbers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", Memory().capture)
    plain, model = Counting(), Counting()
    batches = [torch.randn(5, 3) for _ in range(4)]
    replayed = Replayed(model, model, torch.device("cpu"))
    for compute in (plain, replayed):
        torch.manual_seed(0)
        results = [compute(batch) for batch in batches]
        if compute is plain:
            expected = [result.clone() for result in results]
    assert all(map(torch.equal, results, expected))
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), plain.buffers(), strict=True))


def test_other_shapes_evaluation_and_hooks_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", memory.capture)
    model = nn.Linear(3, 2)
    replayed = Replayed(model, model, torch.device("cpu"))
    for rows in (5, 4, 4, 4, 5, 3):
        assert torch.equal(replayed(torch.ones(rows, 3)), model(torch.ones(rows, 3)))
    assert (memory.captures, memory.replays) == (1, 3)  # one of them to compare
    seen: list[int] = []
    with model.register_forward_hook(lambda *_: seen.append(1)):
        replayed(torch.ones(4, 3))
    model.eval()
    replayed(torch.ones(4, 3))
    assert (memory.replays, seen) == (3, [1])


FAULTS: dict[str, tuple[Callable[..., Callable[..., Tensor]], str]] = {
    "another result": (lambda plain, _: lambda x: plain(x) + 1, "its result or gradients are other ones"),
    "the result of the captured batch": (
        lambda plain, captured: lambda x: plain(x) + (captured - plain(x)).detach(),
        "its result or gradients are other ones",
    ),
    "another gradient": (lambda plain, _: lambda x: 2 * plain(x) - plain(x).detach(), "its result or gradients"),
    "an error": (
        lambda *_: raised(RuntimeError("operation not permitted when stream is capturing\nmore")),
        "operation",
    ),
    "a refusal": (lambda *_: raised(AssertionError("All buffers must have requires_grad=False")), "All buffers"),
}
"""What a capture returns, from the plain pass and its result for the captured batch, and why it is refused."""


def raised(error: Exception) -> Callable[..., Tensor]:
    raise error


@pytest.mark.parametrize("fault", FAULTS)
def test_a_graph_that_fails_is_refused_with_a_warning(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, why = FAULTS[fault]

    def capture(module: nn.Module, samples: tuple[Tensor, ...], **_: Any) -> Callable[..., Tensor]:
        return made(module, module(*samples).detach())

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    model = nn.Linear(3, 3)
    replayed = Replayed(model, model, torch.device("cpu"))
    batch = torch.ones(4, 3)
    replayed(-batch)
    with pytest.warns(UserWarning, match=f"without a CUDA graph: {why}"):
        assert torch.equal(replayed(batch), model(batch))
    assert torch.equal(replayed(batch), model(batch))  # without a second attempt, or warning


class Cards:
    """What of `torch.cuda` a capture uses, for a process of two GPUs whose tensors are on the CPU.

    Attributes:
        device: Number of the current GPU.
        streams: Current stream of each GPU.
        waiting: Mode of what waits for a GPU, 0 or `error`.
        captured: GPU of the capture, the stream's, and the mode at the time.
        rehearsed: Modes in which the model computed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device, self.streams = 0, [("default", 0), ("default", 1)]
        self.waiting: object = 0
        self.captured: list[object] = []
        self.rehearsed: list[object] = []
        stand_ins: dict[str, Any] = {
            "device": self._on,
            "stream": self._within,
            "current_stream": lambda device: self.streams[device.index],
            "Stream": lambda device: ("own", device.index),
            "get_sync_debug_mode": lambda: self.waiting,
            "set_sync_debug_mode": lambda mode: setattr(self, "waiting", mode),
            "get_rng_state": lambda device: torch.tensor([device.index]),
            "set_rng_state": lambda *_: None,
            "make_graphed_callables": self._capture,
        }
        for name, stand_in in stand_ins.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        monkeypatch.setattr(torch.cuda.graph, "default_capture_stream", ("own", 0))  # of a capture before

    @contextmanager
    def _on(self, device: torch.device) -> Iterator[None]:
        before, self.device = self.device, device.index
        yield
        self.device = before

    @contextmanager
    def _within(self, stream: tuple[str, int]) -> Iterator[None]:
        before = self.streams[stream[1]]
        yield
        self.streams[stream[1]] = before

    def _capture(self, module: nn.Module, samples: tuple[Tensor, ...], **_: Any) -> nn.Module:
        stream: Any = torch.cuda.graph.default_capture_stream
        self.captured.append((self.device, stream[1], self.waiting))
        self.streams[stream[1]] = stream  # as a capture leaves it that fails
        return module


def test_a_capture_is_on_the_gpu_of_the_model_and_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = Cards(monkeypatch)
    model = nn.Linear(3, 3)

    def compute(x: Tensor) -> Tensor:
        cards.rehearsed.append(cards.waiting)
        result: Tensor = model(x)
        return result

    replayed = Replayed(model, compute, torch.device("cuda", 1))
    for _ in range(3):
        replayed(torch.ones(4, 3))
    assert cards.captured == [(1, 1, 0)]
    assert "error" in cards.rehearsed
    assert (cards.device, cards.streams, cards.waiting) == (0, [("default", 0), ("default", 1)], 0)
    assert torch.cuda.graph.default_capture_stream == ("own", 0)


def test_what_waits_for_a_gpu_is_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = Cards(monkeypatch)
    model = nn.Linear(3, 3)

    def compute(x: Tensor) -> Tensor:
        if cards.waiting == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        result: Tensor = model(x)
        return result

    replayed = Replayed(model, compute, torch.device("cuda", 1))
    replayed(torch.ones(4, 3))
    with pytest.warns(UserWarning, match="without a CUDA graph: called a synchronizing"):
        replayed(torch.ones(4, 3))
    assert (cards.captured, cards.waiting) == ([], 0)


def test_the_setting_needs_a_gpu() -> None:
    assert validated(PrivatePart, {"device": "cuda", "cuda_graphs": True}, ACTIVE).cuda_graphs
    with pytest.raises(ConfigError, match="device: cuda"):
        validated(PrivatePart, {"cuda_graphs": True}, ACTIVE)


def test_results_and_gradients_outlive_the_next_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", Memory().capture)
    model = nn.Linear(3, 2)
    replayed = Replayed(model, lambda x: model(x).square(), torch.device("cpu"))
    found = []
    for factor in range(1, 5):
        x = torch.full((4, 3), float(factor), requires_grad=True)
        result = replayed(x)
        result.sum().backward()
        found.append((x, result))
    for x, result in found:
        again = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(model(again).square().sum(), again)
        assert torch.equal(result, model(x).square())
        assert x.grad is not None
        assert torch.equal(x.grad, gradient)
