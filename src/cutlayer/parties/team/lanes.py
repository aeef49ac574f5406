"""A step of one worker of a party: its part of the batch, and the lane to the same worker of each other party.

Every worker runs this code. The leader's has `protections`, which see the whole batch; parts of what they returned
cross on the lanes. A worker whose part is empty computes a row of weight 0, as gradients are summed over all workers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.channel.receiving import receive
from cutlayer.config import LimitsConfig
from cutlayer.data.store import Store
from cutlayer.kernels.gradients.received_gradient import backward_from
from cutlayer.models import BottomModel
from cutlayer.parties.active_model import ActiveModel, TrainingLabels
from cutlayer.parties.compute.step_order import StepOrder
from cutlayer.parties.compute.team import Team, together
from cutlayer.parties.guards.numbers import check_gradients, check_loss, check_own
from cutlayer.parties.messages import checked_embedding, receive_gradient
from cutlayer.parties.team.needs import BatchTensors, Needs

if TYPE_CHECKING:
    from cutlayer.parties.team.leading import ActiveLead, PassiveLead


class Crossed(NamedTuple):
    """The messages of a step at the leader.

    Attributes:
        loss: Mean loss of the batch; 0 at a passive party.
        embeddings: By passive party, as they crossed; empty where they were not gathered.
        gradients: Gradients by passive party, as they crossed; empty where they were not gathered.
    """

    loss: float
    embeddings: BatchTensors
    gradients: BatchTensors


class Lanes:
    """Base of the workers of both kinds of party.

    Args:
        team: This worker and the others of its party.
        name: Name of the party.
        optimizer: Optimiser of this worker's copy of the model.
        limits: Bounds on what this party sends and accepts.
        needs: What its protections need of the whole batch.
    """

    def __init__(
        self, team: Team, name: str, optimizer: torch.optim.Optimizer | None, limits: LimitsConfig, needs: Needs
    ) -> None:
        self.team, self.name, self.optimizer, self.limits, self.needs = team, name, optimizer, limits, needs

    def send(
        self,
        port: Port,
        kind: Kind,
        order: StepOrder,
        part: Tensor,
        whole: Tensor | None,
        leave: Callable[[Kind, str, Tensor], None] | None,
    ) -> Tensor:
        """Send this worker's part on its lane.

        Args:
            port: Port to the same worker of another party.
            kind: Kind of the message.
            order: The step.
            part: This worker's part, sent as it is where no protection acts on it.
            whole: What the protections returned for the whole batch; at the leader alone.
            leave: Checks the parts of other workers; at the leader alone.

        Returns:
            The part as it crossed.
        """
        if whole is not None:
            part = self.team.part(whole)
        elif self.needs.out:
            part = self.team.scatter(None, part)
        rows = self.team.part(order.rows)
        if len(rows):
            name = "embedding" if kind is Kind.EMBEDDING else "gradient"
            digest = rows_digest(rows)
            message = port.send(kind, epoch=order.epoch, step=order.step, rows=digest, tensors={name: part})
            part = message.tensors[name]
        if whole is not None:
            # After the leader's own part: the chain compares them in the order of the batch. Before they are scattered:
            # what the chain did not return reaches no lane.
            for other in self.team.parts(whole)[1:]:
                if leave is not None and len(other):
                    leave(kind, port.peer, other)
            self.team.scatter(whole, part)
        return part

    def rows_to_compute(self, order: StepOrder) -> Tensor:
        """This worker's part of the rows, or one row to compute with weight 0."""
        rows = self.team.part(order.rows)
        return rows if len(rows) else order.rows[:1]


class PassiveLanes(Lanes):
    """The step of a worker of a passive party.

    Args:
        port: Port to the same worker of the active party.
        bottom: Bottom model.
        store: The party's encoded rows.
        more: Further arguments of `Lanes`.
    """

    def __init__(self, port: Port, bottom: BottomModel, store: Store, **more: Any) -> None:
        super().__init__(**more)
        self.port, self.store = port, store
        self.model = self.team.parallel(bottom)

    def step(self, order: StepOrder, protections: PassiveLead | None = None) -> Generator[Port, Message, Crossed]:
        """Embed this worker's part, send it, and train on the gradient that comes back.

        Args:
            order: The step.
            protections: Protections of the party; at the leader alone.
        """
        count = len(self.team.part(order.rows))
        output: Tensor = self.model(*self.store.gather(self.rows_to_compute(order)))
        embedding = output.detach()[:count]
        what = f"embedding of epoch {order.epoch}, step {order.step}"
        check_own(embedding, self.limits.embedding_norm, self.name, what)
        protected = None
        if self.needs.out:
            whole = self.team.gather(embedding, len(order.rows))
            if whole is not None and protections is not None:
                protected = protections.protect(order, whole)
        leave = None if protections is None else protections.leave
        crossed = self.send(self.port, Kind.EMBEDDING, order, embedding, protected, leave)
        gradient = embedding
        if count:
            digest, limit = rows_digest(self.team.part(order.rows)), self.limits.gradient_norm
            gradient = yield from receive_gradient(self.port, order, digest, tuple(embedding.shape), limit)
        embeddings, gradients = (self._recorded(order, part) for part in (crossed, gradient))
        if self.needs.out:
            whole = self.team.gather(gradient, len(order.rows))
            learnt = None if whole is None or protections is None else protections.learn(order, whole)
            gradient = self.team.scatter(learnt, embedding)
        self._update(output, gradient)
        return Crossed(0.0, embeddings, gradients)

    def _recorded(self, order: StepOrder, part: Tensor) -> BatchTensors:
        """The parts of all workers in one tensor at the leader, if the step is recorded."""
        whole = self.team.gather(part, len(order.rows)) if order.record else None
        return {} if whole is None else {self.name: whole}

    def _update(self, output: Tensor, gradient: Tensor) -> None:
        if self.optimizer is None:
            return
        self.optimizer.zero_grad()
        upstream = torch.zeros_like(output)
        upstream[: len(gradient)] = gradient
        with together():  # the backward pass sums the weights' gradients over all workers
            backward_from((output, upstream))
        self.optimizer.step()


class ActiveLanes(Lanes):
    """The step of a worker of the active party.

    Args:
        ports: Ports to the same worker of each passive party, by name.
        model: The party's models.
        store: The party's encoded rows, if it has columns.
        widths: Width of each passive party's embedding.
        labels: Protected labels.
        more: Further arguments of `Lanes`.
    """

    def __init__(
        self,
        ports: Mapping[str, Port],
        model: ActiveModel,
        store: Store | None,
        widths: Mapping[str, int],
        labels: TrainingLabels,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.ports, self.store, self.widths, self.labels = ports, store, widths, labels
        self.model = self.team.parallel(model)

    def step(self, order: StepOrder, protections: ActiveLead | None = None) -> Generator[Port, Message, Crossed]:
        """Compute the loss of this worker's part from the embeddings that arrive, and send the gradients back.

        Args:
            order: The step.
            protections: Protections of the party; at the leader alone.
        """
        received = yield from self._receive(order)
        embeddings = self._gathered(order, received) if self.needs.out or order.record else {}
        seen, shown = received, None
        if self.needs.shown:
            shown = protections.show(order, embeddings) if protections is not None else None
            seen = {name: self.team.scatter(None if shown is None else shown[name], e) for name, e in received.items()}
        loss, gradients = self._backward(order, seen)
        protected: BatchTensors = {}
        if self.needs.out:
            whole_gradients = self._gathered(order, gradients)
            if protections is not None:
                protected = protections.protect(order, embeddings, whole_gradients)
        checked = protected if self.needs.out else gradients
        check_gradients(checked, self.limits.gradient_norm, self.name, order.epoch, order.step)
        leave = None if protections is None else protections.leave
        sent = {
            name: self.send(port, Kind.GRADIENT, order, gradients[name], protected.get(name), leave)
            for name, port in self.ports.items()
        }
        if self.optimizer is not None:
            self.optimizer.step()
        crossed = self._gathered(order, sent) if order.record else {}
        return Crossed(loss, embeddings, crossed)

    def _receive(self, order: StepOrder) -> Generator[Port, Message, BatchTensors]:
        """The embeddings of this worker's part, by passive party."""
        rows = self.team.part(order.rows)
        received = {name: torch.zeros(0, self.widths[name]) for name in self.ports}
        if len(rows):
            digest = rows_digest(rows)
            for name, port in self.ports.items():
                message = yield from receive(port, Kind.EMBEDDING, order.epoch, order.step, digest)
                received[name] = checked_embedding(message, len(rows), self.widths[name], self.limits.embedding_norm)
        return received

    def _gathered(self, order: StepOrder, parts: BatchTensors) -> BatchTensors:
        """The parts of all workers in one tensor, by passive party, at the leader."""
        gathered = {name: self.team.gather(part, len(order.rows)) for name, part in parts.items()}
        return {name: whole for name, whole in gathered.items() if whole is not None}

    def _backward(self, order: StepOrder, seen: BatchTensors) -> tuple[float, BatchTensors]:
        """The batch's loss, and the gradients at this worker's embeddings."""
        rows = self.rows_to_compute(order)
        count = len(self.team.part(order.rows))
        columns = None if self.store is None else self.store.gather(rows)
        padded = {name: e if count else e.new_zeros(1, e.shape[1]) for name, e in seen.items()}
        leaves = {name: e.detach().requires_grad_() for name, e in padded.items()}
        if self.optimizer is not None:
            self.optimizer.zero_grad()
        loss = self.model(columns, leaves, *self.labels.of(rows)) * (count / len(order.rows))
        value = self.team.total(loss.item())
        check_loss(value, self.name, order.epoch, order.step)
        with together():  # the backward pass sums the weights' gradients over all workers
            loss.backward()
        return value, {
            name: (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)[:count] for name, leaf in leaves.items()
        }
