"""Passes of a model that a GPU replays from a CUDA graph, where it would wait for the launch of each operation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

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

    The first batch is computed plainly. A second one of the same shapes is captured; other shapes, such as those of the
    last batch of an epoch, stay plain. The captured kernels are those of the plain pass, so that the numbers are the
    same. This is tried once, on the captured batch: where results differ, or an operation cannot be captured, a warning
    says so, and all batches stay plain.

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
        if self._graph is None or shapes != self._shapes:
            self._shapes = self._shapes if self._graph is not None else shapes
            return self._compute(*arguments)
        for argument in arguments:
            if argument.requires_grad:
                argument.register_hook(torch.clone)  # type: ignore[no-untyped-call]
        return self._graph(*arguments).clone()

    def _capture(self, arguments: tuple[Tensor, ...]) -> None:
        """Capture the pass of a batch, and compare its result with the plain one."""
        samples = tuple(a.detach().clone().requires_grad_(a.requires_grad) for a in arguments)
        buffers = [(buffer, buffer.clone()) for buffer in self._model.buffers()]
        try:
            with self._apart():  # passes before the capture draw, too
                graph: Compute = torch.cuda.make_graphed_callables(  # type: ignore[assignment]
                    _Pass(self._model, self._compute), samples, allow_unused_input=True
                )
            results = []
            for compute in (self._compute, graph):
                with self._apart():
                    results.append(compute(*samples).detach().clone())
            self._refused, why = not torch.equal(*results), "its result is another one"
        except RuntimeError as error:
            self._refused, why = True, str(error).partition("\n")[0]
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        if self._refused:
            name = type(self._model).__name__
            warnings.warn(f"{name} is trained without a CUDA graph: {why}", stacklevel=2)
        else:
            self._graph = graph

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Leave the random state as it was, with the model's device as the current one."""
        gpus = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(gpus), torch.cuda.device(self._device) if gpus else nullcontext():
            yield


class _Pass(nn.Module):
    """A pass as a module of its own: what is captured has its `forward` replaced."""

    def __init__(self, model: nn.Module, compute: Compute) -> None:
        super().__init__()
        self.model = model
        self._compute = compute

    def forward(self, *arguments: Tensor) -> Tensor:
        """The result of the pass."""
        return self._compute(*arguments)
