"""What a run is compared with: the same network in one place, without a cut and without protections.

`centralised` trains the bottom models of all parties and the top model with one optimiser; `alone` does so with the
active party's own bottom model only.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cutlayer.config import Job
from cutlayer.data.batches import Schedule, evaluation_batches
from cutlayer.data.split import Split
from cutlayer.data.store import Store
from cutlayer.models import BottomModel, build_bottom, build_top
from cutlayer.parties.local import EVALUATION_ROWS
from cutlayer.parties.random_state import drawn_under
from cutlayer.parties.state import build_optimizer
from cutlayer.parties.stopping import EarlyStopping
from cutlayer.tasks import Task


@dataclass(frozen=True)
class Reference:
    """A trained reference: its held-out metrics and logits."""

    metrics: Mapping[str, float]
    logits: Tensor
    kept_epoch: int


class Joint(nn.Module):
    """The bottom models of the given parties and a top model, in one module.

    Every party's modules start from the weights that they have in the run whose starting keys are given.

    Args:
        job: as run.
        stores: encoded columns of the parties that take part, by name, in the job's order.
        task: with its classes.
        keys: starting keys, 32 bytes each, of those parties and the active one.
    """

    def __init__(self, job: Job, stores: Mapping[str, Store], task: Task, keys: Mapping[str, bytes]) -> None:
        super().__init__()
        self.stores = stores
        bottoms: dict[str, BottomModel] = {}
        for name, store in stores.items():
            if name != job.active:
                with drawn_under(keys[name]):
                    bottoms[name] = _bottom(job, name, store)
        with drawn_under(keys[job.active]):
            if job.active in stores:
                bottoms[job.active] = _bottom(job, job.active, stores[job.active])
            widths = {name: bottoms[name].width for name in stores}
            quitters = [name for name in stores if name != job.active]
            self.top = build_top(job.model.top, widths, task.outputs, quitters=quitters)
        self.bottoms = nn.ModuleList(bottoms[name] for name in stores)  # a module has no room for every party's name
        self.widths = widths

    def embed(self, rows: Tensor) -> dict[str, Tensor]:
        """Embeddings of a batch of rows, by party."""
        return {
            name: bottom(*store.gather(rows))
            for bottom, (name, store) in zip(self.bottoms, self.stores.items(), strict=True)
        }


def train_reference(
    job: Job,
    stores: Mapping[str, Store],
    task: Task,
    keys: Mapping[str, bytes],
    labels: Tensor,
    split: Split,
    part: str,
) -> Reference:
    """Train on one machine, by the job's schedule, early stopping and choice of epoch.

    Args:
        job: as run.
        stores: encoded columns of the parties that take part.
        task: with its classes.
        keys: starting keys of the run that this is compared with, by party.
        labels: true labels by row.
        split: which rows train and which are held out.
        part: which held-out rows to report.
    """
    model = Joint(job, stores, task, keys)
    optimizer = build_optimizer(job.train.optimizer, list(model.parameters()))
    assert optimizer is not None  # noqa: S101 - a top model always has parameters
    with torch.random.fork_rng(devices=[]):
        kept = _fit(model, optimizer, job, task, labels, split)
    logits = evaluate(model, split.part(part))
    return Reference(task.evaluate(logits, labels[split.part(part)]), logits, kept)


def _fit(model: Joint, optimizer: torch.optim.Optimizer, job: Job, task: Task, labels: Tensor, split: Split) -> int:
    """Train to the end of the schedule; returns the epoch whose weights were kept."""
    schedule = Schedule(split.train, job.train.batch_size, job.train.seed, job.train.shuffle)
    stopping, kept = EarlyStopping(), None
    held_out = split.part("validation")
    for epoch in range(job.train.epochs):
        model.train()
        for rows in schedule.epoch(epoch):
            loss = model.top.objective(model.embed(rows), labels[rows], task)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if not (job.keeps_best or job.train.early_stop):
            continue
        metric = task.evaluate(evaluate(model, held_out), labels[held_out])[task.metric]
        if stopping.update(metric, epoch, job) and job.keeps_best:
            kept = copy.deepcopy(model.state_dict())
        if stopping.stop:
            break
    if kept is None:
        return epoch
    model.load_state_dict(kept)
    return stopping.best_epoch


def _bottom(job: Job, name: str, store: Store) -> BottomModel:
    return build_bottom(job.model.bottom_of(name), store.columns.inputs)


def evaluate(model: Joint, rows: Tensor) -> Tensor:
    """Logits of held-out rows."""
    model.eval()
    with torch.no_grad():
        parts: Sequence[Tensor] = [model.top(model.embed(batch)) for batch in evaluation_batches(rows, EVALUATION_ROWS)]
    return torch.cat(list(parts))
