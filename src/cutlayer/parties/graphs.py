"""Passes of a model that a GPU replays from a CUDA graph, where it would wait for the launch of each operation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.config import Job
from cutlayer.models import TopModel
from cutlayer.models.precision import PreciseModel
from cutlayer.parties.local import Local

GPU = "cuda"
"""Type of the devices that have graphs."""

Compute = Callable[..., Tensor]
"""Computes one tensor from tensors alone, by a model in training."""


class Replayed:
    """Forward and backward pass of a model in training, captured once and then replayed.

    The first batch is computed plainly. With a second one of the same shapes the pass of the first is captured, and
    both are computed plainly as well. Other shapes, such as those of the last batch of an epoch, stay plain. The
    captured kernels are those of the plain pass, so that the numbers are the same. This is tried once, on the second
    batch: where result or gradients differ, or an operation cannot be captured, a warning says so, and all batches stay
    plain.

    A graph writes each result to the memory of the one before. Results and gradients of arguments are therefore copied:
    losses are read steps later, and messages are recorded.

    Args:
        model: The model, whose buffers and random numbers a capture leaves as they are.
        compute: The captured pass.
        device: Device of the model.
    """

    def __init__(self, model: nn.Module, compute: Compute, device: torch.device) -> None:
        self._model, self._compute, self._device = model, compute, device
        self._shapes: object = None
        self._samples: tuple[Tensor, ...] = ()
        self._graph: Compute | None = None
        self._refused = False

    @classmethod
    def of(cls, model: nn.Module, compute: Compute, job: Job, local: Local) -> Compute:
        """The replayed pass where the party asks for it and the job allows it; else the plain one.

        A pass is captured with one group of rows a step, since a second one would overwrite the first, and of models
        that compute the same operations for every batch: `TopModel.reads_presence` is of those that do not.
        """
        steady = isinstance(model, PreciseModel) and model.reentrant
        steady = steady and not (isinstance(model, TopModel) and model.reads_presence)
        alone = local.team is None and job.train.micro_batches == 1
        if not (local.config.cuda_graphs and local.device.type == GPU and alone and steady):
            return compute
        return cls(model, compute, local.device)

    def __call__(self, *arguments: Tensor) -> Tensor:
        """The result for a batch."""
        # Hooks read the outputs of layers, which a replay does not return.
        hooked = any(module._forward_hooks for module in self._model.modules())
        if self._refused or hooked or not self._model.training:
            return self._compute(*arguments)
        shapes = [(argument.shape, argument.dtype, argument.requires_grad) for argument in arguments]
        if self._graph is None and shapes == self._shapes:
            self._capture(arguments)
        if self._graph is None and not self._refused:
            self._shapes, self._samples = shapes, _copied(arguments)
        if self._graph is None or shapes != self._shapes:
            return self._compute(*arguments)
        for argument in arguments:
            if argument.requires_grad:
                argument.register_hook(torch.clone)  # type: ignore[no-untyped-call]
        return self._graph(*arguments).clone()

    def _capture(self, arguments: tuple[Tensor, ...]) -> None:
        """Capture the pass of the batch before, and compare its numbers for this one with the plain ones."""
        samples, self._samples = self._samples, ()
        buffers = [(buffer, buffer.clone()) for buffer in self._model.buffers()]
        try:
            with self._apart(waits=False):
                self._numbers(self._compute, samples)
            with self._apart():  # passes before the capture draw, too
                graph: Compute = torch.cuda.make_graphed_callables(  # type: ignore[assignment]
                    _Pass(self._model, self._compute), samples, allow_unused_input=True
                )
            found = []
            for compute in (self._compute, graph):
                with self._apart():
                    found.append(self._numbers(compute, arguments))
            same = len(found[0]) == len(found[1]) and all(map(torch.equal, *found))
            self._refused, why = not same, "its result or gradients are other ones"
        except (RuntimeError, AssertionError) as error:
            self._refused, why = True, str(error).partition("\n")[0]
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        if self._refused:
            name = type(self._model).__name__
            warnings.warn(f"{name} is trained without a CUDA graph: {why}", stacklevel=2)
        else:
            self._graph = graph

    def _numbers(self, compute: Compute, arguments: tuple[Tensor, ...]) -> list[Tensor]:
        """The result of a pass, and its gradients at arguments and parameters."""
        leaves = _copied(arguments)
        result = compute(*leaves)
        wanted = [tensor for tensor in (*leaves, *self._model.parameters()) if tensor.requires_grad]
        upstream = torch.ones_like(result)
        gradients = torch.autograd.grad(result, wanted, upstream, allow_unused=True) if wanted else ()
        # Copied, since the next replay overwrites them.
        return [tensor.detach().clone() for tensor in (result, *gradients) if tensor is not None]

    @contextmanager
    def _apart(self, *, waits: bool = True) -> Iterator[None]:
        """Leave random state, stream and settings as they were, with the model's GPU as the current one.

        PyTorch captures on one stream for the process, of the GPU that is first captured on. Of a model on another one
        the graph would be empty, and a replay would leave the result of the captured batch. A capture that fails leaves
        its stream as the current one, and in some versions of PyTorch a generator that draws no more. So what waits for
        the GPU, which no graph can, is refused before.

        Args:
            waits: Whether an operation may wait for the GPU; else it raises `RuntimeError`.
        """
        gpu = self._device
        if gpu.type != "cuda":
            with torch.random.fork_rng([]):
                yield
            return
        graph: Any = torch.cuda.graph
        stream, mode = graph.default_capture_stream, torch.cuda.get_sync_debug_mode()
        with torch.cuda.device(gpu), torch.cuda.stream(torch.cuda.current_stream(gpu)), torch.random.fork_rng([gpu]):
            graph.default_capture_stream = torch.cuda.Stream(gpu)  # type: ignore[no-untyped-call]
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
                    torch.cuda.set_sync_debug_mode(mode if waits else "error")
                yield
            finally:
                graph.default_capture_stream = stream
                torch.cuda.set_sync_debug_mode(mode)


def _copied(arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The arguments as leaves of their own, which want a gradient where those do."""
    return tuple(argument.detach().clone().requires_grad_(argument.requires_grad) for argument in arguments)


class _Pass(nn.Module):
    """A pass as a module of its own: what is captured has its `forward` replaced."""

    def __init__(self, model: nn.Module, compute: Compute) -> None:
        super().__init__()
        self.model = model
        self._compute = compute

    def forward(self, *arguments: Tensor) -> Tensor:
        """The result of the pass."""
        return self._compute(*arguments)
