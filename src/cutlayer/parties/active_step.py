"""A training step of the active party: from the embeddings that arrive to the cut gradients that leave."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from cutlayer.alignment.held_rows import PartOfBatch
from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.channel.transcript import LAYER_ROWS
from cutlayer.config import Job
from cutlayer.kernels.gradients.received_gradient import backward_from
from cutlayer.kernels.noise.aes import derive
from cutlayer.models import collect_layer_outputs
from cutlayer.parties.active_records import ActiveRecords
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.compute.step_order import StepOrder
from cutlayer.parties.guards.embedding_guard import EmbeddingGuard
from cutlayer.parties.guards.numbers import check_gradients, check_loss
from cutlayer.parties.session.local import LocalSide
from cutlayer.parties.session.passives import Passives
from cutlayer.protections.contract.views import ActiveView, Mode


@dataclass(frozen=True)
class Batch:
    """Tensors of the active party for a batch.

    Attributes:
        step: Number of the step within the epoch.
        view: Rows, labels and embeddings.
        top_inputs: All embeddings, as the top model sees them, in the job's order of parties.
        digest: Digest of the rows.
        parts: The part of the rows that each party has which lacks some, by name.
    """

    step: int
    view: ActiveView
    top_inputs: Mapping[str, Tensor]
    digest: bytes
    parts: Mapping[str, PartOfBatch]


class ActiveStep:
    """Takes the training steps of the active party.

    Args:
        job: The shared job.
        local: The party's private side.
        setup: Labels, models and protections.
        passives: The passive parties.
        records: Record of what crossed.

    Attributes:
        guard: Scrutiny of the embeddings, if any.
        has_gradient: Whether a gradient of this epoch was not zero; the caller resets it.
    """

    def __init__(
        self, job: Job, local: LocalSide, setup: ActiveSetup, passives: Passives, records: ActiveRecords
    ) -> None:
        self.job, self.local, self.setup, self.passives = job, local, setup, passives
        self.state, self.records = setup.state, records
        self.has_gradient, self._step = False, 0
        limit = local.config.limits.gradient_norm
        self._check = partial(check_gradients, limit=limit, party=local.name, readings=local.readings)
        self.guard: EmbeddingGuard | None = None
        if local.config.guard is not None:
            seed = int.from_bytes(derive(local.noise_key, b"guard", size=4))
            self.guard = setup.state.guard = EmbeddingGuard(local.name, local.config.guard, len(setup.labels), seed)

    def record_release(self, epoch: int, step: int, rows: Tensor) -> None:
        """Record what the passive parties released of a batch, on which no step is taken."""
        if self.records.records_step(epoch, step):
            seen = {name: released[rows] for name, released in self.passives.released.items()}
            self.records.add(StepOrder(epoch, step, 0, rows, record=True), seen, {}, {})

    def take(self, order: StepOrder) -> Generator[Port, Message, Sequence[float]]:
        """Train on a batch.

        Returns:
            The mean loss of the batch alone, once `local.readings` has read it; nothing of a batch without rows.
        """
        self.passives.presence.position, self._step = (order.epoch, order.step), order.step
        if not order.rows.shape[0]:
            yield from self._empty_step(order)
            return []
        self.setup.optimizer.zero_grad()
        taps = self.state.modules if self.records.records_layers(order.epoch, order.step) else None
        # Where parties lack rows, outputs of all: those of the rows that all parties have are taken of them.
        most = len(order.rows) if self.passives.held.by_party else LAYER_ROWS
        with collect_layer_outputs(taps, most) as layers:
            batch = yield from self._receive(order)
            loss = self._loss(batch)
            backward_from((loss, None))
        losses = self._read(loss, batch)
        gradients = self._return_gradients(batch)
        self.has_gradient = self.has_gradient or has_weight_gradient(self.setup.top)
        self.setup.optimizer.step()
        if order.record:
            seen = {name: embedding.detach() for name, embedding in batch.view.embeddings.items()}
            if self.passives.held.by_party and self.setup.top.reads_presence:
                # A model that reads who is present computes several groups of rows; the last one's outputs are left.
                layers = {name: output for name, output in layers.items() if not name.startswith("top.")}
            self.records.add(order, seen, gradients, layers)
        return losses

    def _empty_step(self, order: StepOrder) -> Generator[Port, Message, None]:
        """A batch that drew no row: messages of no rows keep all parties at the same step, and no model learns."""
        rows, digest = order.rows, rows_digest(order.rows)
        parts = self.passives.held.parts(rows)
        received = yield from self.passives.receive(Kind.EMBEDDING, order.epoch, order.step, rows, digest, parts)
        labels = self.local.resident.take("labels", self.setup.labels, rows)
        view = ActiveView(Mode.TRAIN, order.epoch, order.global_step, rows, labels, received)
        self._return_gradients(Batch(order.step, view, {}, digest, parts))

    def _receive(self, order: StepOrder) -> Generator[Port, Message, Batch]:
        """The embeddings and labels of a batch."""
        epoch, step, rows, digest = order.epoch, order.step, order.rows, rows_digest(order.rows)
        active_embedding = self.setup.own_embedding(rows)  # while the embeddings of the others are on their way
        held = self.passives.held.parts(rows)
        received = yield from self.passives.receive(Kind.EMBEDDING, epoch, step, rows, digest, held)
        # This party's graph begins at the cut: the gradients at these leaves go back to the senders.
        embeddings = {
            name: e.detach().requires_grad_(name in self.passives.gradient_ports) for name, e in received.items()
        }
        if self.guard is not None:
            for name in self.passives.gradient_ports:
                there = held[name].mask if name in held else slice(None)  # of other rows it sent nothing
                self.guard.add(epoch, step, name, rows[there], embeddings[name][there])
        labels = self.local.resident.take("labels", self.setup.labels, rows)
        view = ActiveView(Mode.TRAIN, epoch, order.global_step, rows, labels, embeddings)
        return Batch(step, view, self.setup.ordered_embeddings(active_embedding, view), digest, held)

    def _loss(self, batch: Batch) -> Tensor:
        """The loss of a batch, on which the models train."""
        loss = self.setup.training_loss
        if self.setup.weights is not None:
            loss = replace(loss, row_weights=self.local.resident.take("weights", self.setup.weights, batch.view.rows))
        if batch.parts:
            present = self.passives.presence_masks(batch.parts)
            return self.setup.top.objective_of_rows(batch.top_inputs, batch.view.labels, loss, present)
        return self.setup.top.objective(batch.top_inputs, batch.view.labels, loss)

    def _read(self, loss: Tensor, batch: Batch) -> Sequence[float]:
        """The loss of a batch, once it is read and found finite."""
        losses: list[float] = []

        def add(value: float) -> None:
            check_loss(value, self.local.name, batch.view.epoch, batch.step)
            losses.append(value)

        self.local.readings.read_later(loss, add)
        return losses

    def _return_gradients(self, batch: Batch) -> Mapping[str, Tensor]:
        """Protect and send the gradients of a batch; returns them as they crossed, by party."""
        view, step = batch.view, batch.step
        gradients = self._protected_parts(view, batch.parts) if batch.parts else self.protected_gradients(view)
        # All are checked before the first is sent: no peer trains on a step that another peer would refuse.
        self._check(gradients, epoch=view.epoch, step=step)
        rows = view.rows.shape[0]
        return self.passives.send_gradients(view.epoch, step, rows, gradients, batch.digest, batch.parts)

    def protected_gradients(self, view: ActiveView) -> dict[str, Tensor]:
        """The protected cut gradient of every passive party that receives one."""
        chain, view = self.state.chain, self._with_task_gradients(view)
        summed = chain.cut_gradients(view)
        self.state.sent["cut_gradient"] += 1
        return {name: chain.gradient_out(summed[name], name, view) for name in self.passives.gradient_ports}

    def _protected_parts(self, view: ActiveView, parts: Mapping[str, PartOfBatch]) -> dict[str, Tensor]:
        """The same, each by a view of the rows that the party has alone: what is sent to it is of no other."""
        chain, whole = self.state.chain, self._with_task_gradients(view)
        views = {name: view_of_party(whole, name, parts[name]) for name in whole.embeddings}
        summed = {name: own.task_gradients[name] for name, own in views.items()}
        if some := {name: own for name, own in views.items() if len(own.rows)}:
            embeddings = {name: own.embeddings[name] for name, own in some.items()}
            labels = {name: own.labels for name, own in some.items()}
            task = {name: summed[name] for name in some}
            summed |= chain.cut_gradients(replace(whole, embeddings=embeddings, task_gradients=task, own_labels=labels))
            self.state.sent["cut_gradient"] += 1
        return {name: chain.gradient_out(summed[name], name, own).detach() for name, own in views.items()}

    def _with_task_gradients(self, view: ActiveView) -> ActiveView:
        """The view with the gradients of the task loss, of the parties that receive one."""
        embeddings = {name: view.embeddings[name] for name in self.passives.gradient_ports}
        task: Mapping[str, Tensor]
        task = {name: e.grad if e.grad is not None else torch.zeros_like(e) for name, e in embeddings.items()}
        if self.state.chain.protections:  # which may hide a bad number: a clipped one, or one under noise
            self._check(task, epoch=view.epoch, step=self._step)
        # In warm-up epochs embeddings may be zeros, so that no weight of the top model has a gradient, but they have.
        self.has_gradient = self.has_gradient or any(bool(gradient.any()) for gradient in task.values())
        if self.local.tampering is not None:
            task = self.local.tampering.gradients(view.rows, embeddings, task)
        return replace(view, embeddings=embeddings, task_gradients=task)


def view_of_party(view: ActiveView, name: str, part: PartOfBatch) -> ActiveView:
    """View of a batch for one party: its rows, embedding and gradient.

    Of a row of the party that belongs to several, the label is that of the first, and the gradient the sum.
    """
    first = part.first
    return replace(
        view,
        rows=view.rows[first],
        labels=view.labels[first],
        embeddings={name: view.embeddings[name][first]},
        task_gradients={name: part.summed(view.task_gradients[name])},
    )


def has_weight_gradient(top: nn.Module) -> bool:
    """Whether a gradient of the last backward pass reached a weight of a model; biases alone do not count.

    With hidden units that are inactive for all rows, as those of a rectifier can be, the last bias is all that learns.
    """
    weights = [parameter for parameter in top.parameters() if parameter.dim() > 1] or [*top.parameters()]
    return any(weight.grad is not None and bool(weight.grad.any()) for weight in weights)
