"""The first worker of a party: hands the state to the others, and gives protections the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cutlayer.kernels.gradients.received_gradient import backward_from
from cutlayer.kernels.noise.aes import derive
from cutlayer.parties.active_model import TrainingLabels
from cutlayer.parties.compute.step_order import StepOrder
from cutlayer.parties.compute.team import Team
from cutlayer.parties.session.local import Local
from cutlayer.parties.session.state import PartyState
from cutlayer.parties.team.needs import BatchTensors, Needs
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.protections.contract.views import ActiveView, Mode, PassiveView


def _needs_of(local: Local) -> Needs:
    """Needs of a party's protections of the whole batch."""
    acts = local.chain.acts_at
    if acts("embeddings_in", "cut_gradient", "gradient_out"):
        return Needs(out=True, shown=acts("embeddings_in"))
    return Needs(out=acts("embedding_out", "local_loss"))


def share_start(
    team: Team, local: Local, state: PartyState, tensors: Mapping[str, Tensor], **plain: Any
) -> dict[str, Any]:
    """Give the other workers what they start from, besides the weights, which data parallelism hands out.

    They get keys of their own for dropout and for rounding on the link, derived from this run's, so that no two workers
    draw alike and none can compute the protections' noise.

    Args:
        team: This worker and the others.
        local: The private side of the party.
        state: The party's part of the model.
        tensors: Further tensors.
        plain: Further plain values.

    Returns:
        The arguments of the first worker's `Lanes`.
    """
    needs = _needs_of(local)
    keys = {
        "dropout": derive(local.starting_key, b"workers").hex(),
        "rounding": derive(local.noise_key, b"rounding of workers").hex(),
    }
    common = {"rows": state.rows, "out": needs.out, "shown": needs.shown, **keys}
    team.share({**tensors, **state.optimizer_tensors()}, {**common, **plain})
    optimizer, limits = state.optimizer, local.config.limits
    return {"team": team, "name": local.name, "optimizer": optimizer, "limits": limits, "needs": needs}


class PassiveLead:
    """The protections of a passive party, for its workers.

    Args:
        state: The party's part of the model, with its protections.
        view_of: The view of the whole batch of a step, in a part for each worker.
    """

    def __init__(self, state: PartyState, view_of: Callable[[StepOrder], PassiveView]) -> None:
        self.state, self.leave, self._view_of = state, state.leave, view_of

    def protect(self, order: StepOrder, embedding: Tensor) -> Tensor:
        """Return what leaves in place of the embedding (n, width)."""
        self._leaf = embedding.requires_grad_()
        view = self._view_of(order)
        released = self.state.chain.embedding_out(self._leaf, view)
        self._view = replace(view, embedding=released)
        return released.detach()

    def learn(self, order: StepOrder, gradient: Tensor) -> Tensor:
        """The gradient at the embedding, from the one (n, width) that came back and the protections' own terms."""
        extra = self.state.chain.local_loss(replace(self._view, gradient=gradient))
        self.state.sent["local_loss"] += 1
        backward_from((self._view.embedding, gradient), (extra, None))
        upstream = self._leaf.grad
        return torch.zeros_like(gradient) if upstream is None else upstream


class ActiveLead:
    """The protections of the active party, for its workers.

    Args:
        state: The party's part of the model, with its protections.
        workers: Number of workers.
        labels: Protected labels by row.
        protected: The protected cut gradients of a view whose embeddings hold the task gradients.
    """

    def __init__(
        self, state: PartyState, workers: int, labels: Tensor, protected: Callable[[ActiveView], BatchTensors]
    ) -> None:
        self.state, self.leave = state, state.leave
        self._workers, self._labels, self._protected = workers, labels, protected
        self._shown: tuple[BatchTensors, BatchTensors] | None = None

    def show(self, order: StepOrder, embeddings: BatchTensors) -> BatchTensors:
        """Return what the top model sees in place of the embeddings."""
        leaves = {name: e.detach().requires_grad_() for name, e in embeddings.items()}
        shown = dict(self.state.chain.embeddings_in(leaves, self._view(order, leaves)))
        self.state.sent["embeddings_in"] += 1
        self._shown = leaves, shown
        return {name: e.detach() for name, e in shown.items()}

    def protect(self, order: StepOrder, embeddings: BatchTensors, gradients: BatchTensors) -> BatchTensors:
        """Return what leaves in place of the gradients at what the top model saw.

        Raises:
            Diverged: A gradient is not finite, or a row is too long; nothing is sent then.
        """
        if self._shown is None:
            leaves = {name: e.detach().requires_grad_() for name, e in embeddings.items()}
            for name, leaf in leaves.items():
                leaf.grad = gradients[name]
        else:
            leaves, shown = self._shown
            for name, e in shown.items():
                if e.requires_grad:
                    backward_from((e, gradients[name]))
        return self._protected(self._view(order, leaves))

    def _view(self, order: StepOrder, embeddings: BatchTensors) -> ActiveView:
        labels = self._labels[order.rows]
        return ActiveView(
            Mode.TRAIN, order.epoch, order.global_step, order.rows, labels, embeddings, parts=self._workers
        )


@dataclass(frozen=True)
class SharedLabels:
    """The protected labels and the task, as the leader shares them: tensors and plain values."""

    tensors: dict[str, Tensor]
    plain: dict[str, Any]

    @classmethod
    def of(cls, labels: TrainingLabels) -> SharedLabels:
        """Return the state that `labels` restores."""
        loss = labels.loss
        task = loss.task
        optional = {"weights": labels.weights, "transition": loss.transition, "class_weights": loss.class_weights}
        tensors = {name: tensor for name, tensor in optional.items() if tensor is not None}
        plain = {"kind": task.kind, "classes": list(task.classes), "center": task.center, "scale": task.scale}
        return cls({"labels": labels.values, **tensors}, {"task": plain})

    def labels(self) -> TrainingLabels:
        """The labels and their loss."""
        plain, tensors = self.plain["task"], self.tensors
        task = Task(plain["kind"], tuple(plain["classes"]), plain["center"], plain["scale"])
        loss = TrainingLoss(task, tensors.get("transition"), tensors.get("class_weights"))
        return TrainingLabels(tensors["labels"], loss, tensors.get("weights"))


def step_bytes(order: StepOrder, team: Team, row: int) -> tuple[int, int]:
    """Bytes of a step's messages of one kind: on all lanes, and on those of other workers.

    Args:
        order: The step.
        team: This worker, which leads, and the others.
        row: Bytes of a row as it crosses.
    """
    nbytes = len(order.rows) * row
    return nbytes, nbytes - len(team.part(order.rows)) * row
