"""The micro-batches of a step in threads of their own, at a party whose steps are not computed whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from cutlayer.config import TrainConfig
from cutlayer.models import BottomModel
from cutlayer.models.precision import PreciseModel
from cutlayer.parties.compute.device import CPU
from cutlayer.parties.compute.groups import BatchColumns


@dataclass(frozen=True)
class Learned:
    """Result of the backward pass of a micro-batch.

    Attributes:
        gradients: The gradient of each parameter, in the order of the parameters; `None` of one that was not used.
        loss: The micro-batch's loss, of no axis; 0 at a party that has no labels.
    """

    gradients: Sequence[Tensor | None]
    loss: Tensor = field(default_factory=lambda: torch.zeros(()))


class GroupThreads:
    """Computes several micro-batches of a step at a time, to the same numbers as one after another.

    A layer of a few hundred columns divided between two threads of the tensor library gains little: they meet after
    every operation. Two micro-batches that are computed side by side meet once a step.

    Sums do not depend on which thread is first: each micro-batch has its own gradients, and `collect` adds them in the
    order of the micro-batches, as backward passes one after another do.

    Args:
        modules: Models of the party. Their calls must not store anything in them, nor draw random numbers.
        at_once: Number of micro-batches that are computed at a time, at least 2.
    """

    def __init__(self, modules: Iterable[nn.Module], at_once: int) -> None:
        self.at_once = at_once
        self._parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="cutlayer-micro-batch")
        self._learning: list[Future[Learned]] = []

    @classmethod
    def of(cls, modules: Sequence[nn.Module], train: TrainConfig, device: torch.device) -> GroupThreads | None:
        """Divide the threads of this process among the micro-batches of a step, where that computes the same.

        The tensor library keeps what is left for each micro-batch, until `run_threads` ends.

        Returns:
            `None` with one thread, without micro-batches, on a GPU, or for models that draw random numbers or may not
            be called in two threads.
        """
        threads = torch.get_num_threads()
        at_once = min(threads, train.micro_batches)
        if at_once < 2 or device != CPU or not all(map(_may_share, modules)):
            return None
        torch.set_num_threads(threads // at_once)
        return cls(modules, at_once)

    def begin(self) -> None:
        """Begin a step: gradients of a step that was not finished are forgotten."""
        self._learning.clear()

    def embed(self, bottom: BottomModel, columns: Sequence[BatchColumns]) -> list[Future[Tensor]]:
        """Begin the forward passes of the micro-batches of a step; each gives float32 (n, width)."""
        return [self._pool.submit(bottom, *group) for group in columns]

    def learn(self, embedding: Tensor, gradient: Tensor) -> None:
        """Begin the backward pass of a micro-batch.

        Args:
            embedding: Result of its forward pass, (n, width).
            gradient: Gradient of the loss at it, (n, width).
        """
        self._learning.append(self._pool.submit(self._backward, embedding, gradient))

    def learn_from(self, objective: Callable[[], Tensor], share: float, leaves: Sequence[Tensor]) -> Future[Learned]:
        """Begin the computation of a loss and its backward pass.

        Args:
            objective: Returns the loss of the micro-batch.
            share: Factor of the loss, above 0 and at most 1.
            leaves: Tensors besides the parameters that get their gradient, as `grad`.
        """
        self._learning.append(self._pool.submit(self._passes, objective, share, leaves))
        return self._learning[-1]

    def collect(self) -> None:
        """Wait for the backward passes of the step, and add their gradients to those of the parameters."""
        for learned in self._learning:
            for parameter, gradient in zip(self._parameters, learned.result().gradients, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        self._learning.clear()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _backward(self, embedding: Tensor, gradient: Tensor) -> Learned:
        return Learned(torch.autograd.grad(embedding, self._parameters, gradient, allow_unused=True))

    def _passes(self, objective: Callable[[], Tensor], share: float, leaves: Sequence[Tensor]) -> Learned:
        loss = objective()
        wanted = [*leaves, *self._parameters]
        gradients = torch.autograd.grad(loss if share == 1 else loss * share, wanted, allow_unused=True)
        for leaf, gradient in zip(leaves, gradients, strict=False):
            leaf.grad = gradient
        return Learned(gradients[len(leaves) :], loss.detach())


def _may_share(model: nn.Module) -> bool:
    """Whether threads that call a model at the same time get what they would get one after another."""
    if not isinstance(model, PreciseModel) or not model.reentrant:
        return False
    dropout = nn.modules.dropout._DropoutNd
    return not any(isinstance(module, dropout) and module.p > 0 for module in model.modules())
