"""A training step of the active party: from the embeddings that arrive to the cut gradients that leave."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.channel.followed import Follower
from cutlayer.channel.transcript import LAYER_ROWS, Sampling, Step, Transcript
from cutlayer.config import Job
from cutlayer.models import tapped
from cutlayer.parties.active_model import ActiveModel, Labels
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.groups import groups_of, joined, joined_by_name, parts_of
from cutlayer.parties.lanes import ActiveLanes
from cutlayer.parties.leading import ActiveLead, SharedLabels, counted, needs_of, share_start
from cutlayer.parties.local import Local
from cutlayer.parties.numbers import check_loss, check_own
from cutlayer.parties.passives import Passives
from cutlayer.parties.team import Order
from cutlayer.protections.views import ActiveView, Mode


class ActiveStep:
    """Takes the training steps of the active party, alone or with the other workers of the party.

    Args:
        job: The shared job.
        local: The party's private side.
        setup: Labels, models and protections.
        passives: The passive parties.
        transcript: Record of the sampled steps.
        sampling: Chooses them.
        follower: Record of the followed rows, if anything is recorded.
    """

    def __init__(
        self,
        job: Job,
        local: Local,
        setup: ActiveSetup,
        passives: Passives,
        transcript: Transcript,
        sampling: Sampling,
        follower: Follower | None,
    ) -> None:
        self.job, self.local, self.setup, self.passives = job, local, setup, passives
        self.state = setup.state
        self.transcript, self.sampling, self.follower = transcript, sampling, follower
        self.lanes: ActiveLanes | None = None

    def meet_workers(self) -> None:
        """Give the other workers of this party, if there are any, what they start from."""
        team, local, state = self.local.team, self.local, self.state
        if team is None:
            return
        needs, labels = needs_of(local), Labels(self.setup.labels, self.setup.training_task, self.setup.weights)
        shared = SharedLabels.of(labels)
        plain = {**shared.plain, "widths": self.setup.widths, "features": self.setup.store is not None}
        share_start(team, local, state, needs, shared.tensors, **plain)
        self.lead = ActiveLead(
            state, team.size, self.setup.labels, self.protected_gradients, local.name, local.limits.gradient_norm
        )
        self.lanes = ActiveLanes(
            self.passives.ports,
            ActiveModel(state.modules, local.name, tuple(self.setup.widths)),
            self.setup.store,
            self.setup.widths,
            labels,
            team=team,
            name=local.name,
            optimizer=self.setup.optimizer,
            limits=local.limits,
            needs=needs,
        )

    def dismiss_workers(self) -> None:
        """Tell the other workers of this party, if there are any, that no step follows."""
        if self.lanes is not None:
            self.lanes.team.lead(None)

    def take(self, epoch: int, step: int, count: int, rows: Tensor) -> Generator[Port, Message, float]:
        """Train on a batch.

        Args:
            epoch: Number of the epoch.
            step: Number of the step within the epoch.
            count: Number of the step in the whole run.
            rows: Row numbers of the batch, int64 (n,).

        Returns:
            The mean loss of the batch.
        """
        self.passives.presence.now = (epoch, step)
        if self.lanes is not None:
            return (yield from self._team_step(self.lanes, epoch, step, count, rows))
        self.setup.optimizer.zero_grad()
        whole, parts = self.setup.whole, self.job.train.micro_batches
        losses, pieces = [], []
        for group in groups_of(rows, parts, whole=whole):
            own = parts_of(group, parts, whole=whole)
            loss, piece = yield from self._train_group(epoch, step, count, own, len(group) / len(rows))
            losses.append(loss)
            pieces.append(piece)
        self.setup.optimizer.step()
        seen, gradients, layers = (joined_by_name(pieces_of) for pieces_of in zip(*pieces, strict=True))
        self._record(epoch, step, rows, seen, gradients, layers)
        return sum(losses)

    def _team_step(
        self, lanes: ActiveLanes, epoch: int, step: int, count: int, rows: Tensor
    ) -> Generator[Port, Message, float]:
        """A step that all workers of this party take together; returns its loss."""
        record = self.follower is not None or self.local.records(self.sampling, step)
        order = Order(epoch, step, count, rows, record)
        self.state.charge()
        lanes.team.lead(order)
        crossed = yield from lanes.step(order, self.lead)
        for name in self.passives.ports:
            whole, others = counted(order, lanes.team, self.passives.row_bytes(self.setup.widths[name]))
            self.passives.usage.count(Kind.EMBEDDING, whole)
            self.passives.usage.count(Kind.GRADIENT, whole)
            self.passives.usage.count_elsewhere(name, Kind.EMBEDDING, received=others)
            self.passives.usage.count_elsewhere(name, Kind.GRADIENT, sent=others)
        self._record(epoch, step, rows, crossed.embeddings, crossed.gradients, {})
        return crossed.loss

    def _train_group(
        self, epoch: int, step: int, count: int, parts: Sequence[Tensor], share: float
    ) -> Generator[Port, Message, tuple[float, Sequence[Mapping[str, Tensor]]]]:
        """Forward and backward pass of some rows of a step, whose gradients are sent.

        Args:
            epoch: Number of the epoch.
            step: Number of the step within the epoch.
            count: Number of the step in the whole run.
            parts: Rows of each message that arrives and leaves.
            share: Share of the batch's rows that these are.

        Returns:
            Their part of the batch's loss; and their embeddings, cut gradients and layer outputs, by name.
        """
        rows, digests = joined(parts), [rows_digest(part) for part in parts]
        taps = self.state.modules if self.local.records_layers(self.sampling, step) else None
        with tapped(taps, LAYER_ROWS) as layers:
            own = self.setup.own_embedding(rows)  # while the embeddings of the others are on their way
            received = []
            for part, digest in zip(parts, digests, strict=True):
                received.append((yield from self.passives.receive(Kind.EMBEDDING, epoch, step, part, digest)))
            # This party's graph begins at the cut: the gradients at these leaves go back to the senders.
            embeddings = {
                name: e.detach().requires_grad_(name in self.passives.gradient_ports)
                for name, e in joined_by_name(received).items()
            }
            labels = self.local.placed(self.setup.labels[rows])
            view = ActiveView(Mode.TRAIN, epoch, count, rows, labels, embeddings, parts=len(parts))
            task, staged, shown = self.setup.training_task, self.setup.staged, self.setup.ordered(own, view)
            if self.setup.weights is not None:
                task = replace(task, row_weights=self.setup.weights[rows])
            if staged is not None:
                staged.predict(epoch, rows, self.setup.top, shown)
                task = staged.task_of(rows)
            loss = self.setup.top.objective(shown, view.labels, task.on(self.local.device))
        value = loss.item()
        check_loss(value, self.local.name, epoch, step)
        (loss if share == 1 else loss * share).backward()  # type: ignore[no-untyped-call]
        gradients = self.protected_gradients(view)
        # All are checked before the first is sent: no peer trains on a step that another peer would refuse.
        for name, gradient in gradients.items():
            what = f"cut gradient for {name} in epoch {epoch}, step {step}"
            check_own(gradient, self.local.limits.gradient_norm, self.local.name, what)
        sent = self.passives.send_gradients(epoch, step, len(rows), gradients, digests)
        seen = {name: embedding.detach() for name, embedding in embeddings.items()}
        return value * share, (seen, sent, layers)

    def protected_gradients(self, view: ActiveView) -> dict[str, Tensor]:
        """The protected cut gradient of every passive party that receives one."""
        chain = self.state.chain
        embeddings = {name: view.embeddings[name] for name in self.passives.gradient_ports}
        task = {name: e.grad if e.grad is not None else torch.zeros_like(e) for name, e in embeddings.items()}
        view = replace(view, embeddings=embeddings, task_gradients=task)
        summed = chain.cut_gradients(view)
        self.state.sent["cut_gradient"] += 1
        return {name: chain.gradient_out(summed[name], name, view).detach() for name in self.passives.gradient_ports}

    def _record(
        self,
        epoch: int,
        step: int,
        rows: Tensor,
        seen: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        layers: Mapping[str, Tensor],
    ) -> None:
        """Add the messages of a step to the transcript, as far as it has them."""
        if self.follower is not None:
            self.follower.add(epoch, step, rows, seen, gradients)
        if self.local.records(self.sampling, step):
            first = {name: output[:LAYER_ROWS] for name, output in layers.items()}
            self.transcript.add(Step(epoch, step, rows, seen, gradients, first))
