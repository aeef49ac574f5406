"""The joint model, all bottom models and the top model without a cut, and the training loop outside a run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from cutlayer.config import Job, OptimizerConfig
from cutlayer.data.batches import evaluation_batches
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError
from cutlayer.models import BottomModel, bottom_of, build_top
from cutlayer.parties.drive.random_state import random_state_under
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.parties.session.state import build_optimizer
from cutlayer.problem.task import Task


class JointModel(nn.Module):
    """The bottom models of some parties and a top model, in one module.

    Every party's modules start from the weights that they have in the run whose starting keys are given.

    Args:
        job: Job of the run.
        stores: Encoded columns of the parties that take part, by name, in the job's order.
        task: Task, with its classes.
        keys: Starting keys, 32 bytes each, of those parties and the active one.
    """

    def __init__(self, job: Job, stores: Mapping[str, Store], task: Task, keys: Mapping[str, bytes]) -> None:
        super().__init__()
        self.stores = stores
        inputs = {name: store.columns.inputs for name, store in stores.items()}
        bottoms: dict[str, BottomModel] = {}
        for name in stores:
            if name != job.active:
                with random_state_under(keys[name]):
                    bottoms[name] = bottom_of(job, name, inputs[name])
        with random_state_under(keys[job.active]):
            if job.active in stores:
                bottoms[job.active] = bottom_of(job, job.active, inputs[job.active])
            self.widths = {name: bottoms[name].width for name in stores}
            may_leave = [name for name in stores if name != job.active]
            self.top = build_top(job.top, self.widths, task.outputs, may_leave=may_leave, precision=job.train.precision)
        # A list, because the names of a ModuleDict may hold no dot, and those of parties may.
        self.bottoms = nn.ModuleList(bottoms[name] for name in stores)

    def embed(self, rows: Tensor) -> dict[str, Tensor]:
        """Embeddings of a batch of rows, by party."""
        return {
            name: bottom(*store.gather(rows))
            for bottom, (name, store) in zip(self.bottoms, self.stores.items(), strict=True)
        }

    def logits(self, rows: Tensor) -> Tensor:
        """Logits (n, outputs) of held-out rows, in evaluation mode and without gradients."""
        self.eval()
        with torch.no_grad():
            return torch.cat([self.top(self.embed(batch)) for batch in evaluation_batches(rows, EVALUATION_ROWS)])


def train_module(
    model: nn.Module,
    optimizer: OptimizerConfig,
    batches: Callable[[int], Iterable[Tensor]],
    epochs: int,
    loss: Callable[[Tensor, int, int], Tensor],
    *,
    end_epoch: Callable[[int], tuple[bool, bool]] | None = None,
    seed: int | None = None,
) -> int:
    """Train a model in place; the global random state is restored afterwards.

    Args:
        model: Module whose parameters are trained.
        optimizer: Settings of the optimiser.
        batches: Maps an epoch, counted from 0, to the rows of its batches, int64 (n,) each.
        epochs: Number of epochs, at most.
        loss: Maps the rows of a batch, the epoch and the step within it to the loss, a scalar.
        end_epoch: Called after every epoch. Returns whether the weights are the best so far, and whether to stop; the
            model then ends with the best weights, which are those that it came with if no epoch was better. Without it
            the model ends with the last weights.
        seed: Seed of the global random state for the training; `None` goes on from the present state.

    Returns:
        Number of epochs that the final weights were trained for.

    Raises:
        ConfigError: The model has no parameters.
    """
    built = build_optimizer(optimizer, list(model.parameters()))
    if built is None:
        raise ConfigError("model.top has no parameters to train; use a kind that has some")
    trained = 0
    best = copy.deepcopy(model.state_dict()) if end_epoch else None
    with torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        for epoch in range(epochs):
            model.train()
            for step, rows in enumerate(batches(epoch)):
                value = loss(rows, epoch, step)
                built.zero_grad()
                value.backward()  # type: ignore[no-untyped-call]
                built.step()
            is_best, stop = end_epoch(epoch) if end_epoch else (True, False)
            if is_best:
                trained = epoch + 1
                best = copy.deepcopy(model.state_dict()) if end_epoch else None
            if stop:
                break
    if best is not None:
        model.load_state_dict(best)
    return trained
