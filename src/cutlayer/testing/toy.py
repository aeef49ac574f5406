"""A whole split training in a page: two parties, one linear cut, every step recorded, hooks called as in a real run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.attacks.knowledge import MAX_HINTS, Knowledge, Need
from cutlayer.attacks.label.base import LabelView, Target
from cutlayer.attacks.label.history import HistoryView
from cutlayer.channel import Kind
from cutlayer.channel.row_history import FollowedEpoch
from cutlayer.channel.transcript import Step
from cutlayer.problem.task import Task
from cutlayer.protections.contract.base import Context, Evidence
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.contract.views import ActiveView, Mode, PassiveView, Update

ROWS, FEATURES, WIDTH, BATCH, STEPS = 2048, 12, 6, 512, 4
KNOWN_ROWS = 50  # of each class, or a few more, spread over all steps
ACTIVE, PASSIVE = "bank", "telco"
SECRET = bytes(range(32))
NOISE_KEY = bytes(range(32, 64))


@dataclass(frozen=True, eq=False)
class Toy:
    """What a toy run leaves behind.

    Attributes:
        task: The task.
        truth: True labels by row: bool, or class codes where there are more than two.
        steps: All messages.
        evidence: Of all protections, checked against what was sent.
    """

    task: Task
    truth: Tensor
    steps: list[Step]
    evidence: list[Evidence]

    def view(self, target: Target) -> LabelView:
        """What the passive party holds; of the layers the first."""
        return LabelView(PASSIVE, self.task, self.steps, target, "bottom.0" if target is Target.LAYER else "")

    def history(self) -> HistoryView:
        """What the passive party holds of the whole run, which is one epoch."""
        rows = torch.cat([step.rows for step in self.steps])
        order, number = rows.argsort(), torch.cat([torch.full((len(step.rows),), step.step) for step in self.steps])
        embeddings, gradients = (
            torch.cat([getattr(step, kind)[PASSIVE] for step in self.steps])[order]
            for kind in ("embeddings", "gradients")
        )
        epoch = FollowedEpoch(0, rows[order], number[order], {PASSIVE: embeddings}, {PASSIVE: gradients})
        return HistoryView(PASSIVE, self.task, [epoch])

    def knowledge(self, needs: frozenset[Need]) -> Knowledge:
        """What an attack asks for and no more, as the audit hands it out, but from fixed places."""
        known: dict[int, int] = {}
        for count, need in ((1, Need.KNOWN_POSITIVE), (MAX_HINTS, Need.HINTS)):
            if need in needs:
                known |= {int(row): 1 for step in self.steps for row in step.rows[self.truth[step.rows]][:count]}
        if Need.KNOWN_LABELS in needs:
            rows = torch.cat([step.rows for step in self.steps])
            groups = [(code, rows[self.truth[rows] == code]) for code in range(len(self.task.classes))]
            known |= {int(row): code for code, members in groups for row in members[:: len(members) // KNOWN_ROWS]}
        shares = torch.bincount(self.truth.long()) / ROWS
        if self.task.kind == "binary":
            return Knowledge(float(self.truth.double().mean()), known)
        return Knowledge(None, known, tuple(shares.tolist()))


def context(task: Task | None, party: str, labels: Tensor | None = None) -> Context:
    """The context of one side of the toy."""
    return Context(
        party=party,
        peers=(ACTIVE if party == PASSIVE else PASSIVE,),
        widths={PASSIVE: WIDTH},
        task=task,
        labels=labels,
        training=torch.arange(ROWS),
        secret=SECRET,
        noise=Noise(NOISE_KEY),
        label_column="default" if party == ACTIVE else "",
        epochs=1,
        batch_size=BATCH,
    )


class Run:
    """One toy run, a step at a time.

    The bottom model's layers are near-isometries and the top model's weights small, so that the classes, three standard
    deviations apart in the features, are as far apart in the embedding, and predictions stay near the positive share:
    the case in which every published attack works.

    Args:
        chain: Builds a fresh chain of the protections under test, for a party's name; called again at `interrupt`.
        share: Share of positive rows; three classes and more have their own shares.
        classes: Number of classes.
        summed: The embedding is as wide as the logits and the top model hands it on, a "plain sum" of one party.
    """

    def __init__(
        self, chain: Callable[[str], Chain], share: float = 0.25, classes: int = 2, summed: bool = False
    ) -> None:
        draw = torch.Generator().manual_seed(5)
        with torch.random.fork_rng():
            torch.manual_seed(6)
            self.bottom, self.top = _models(share, classes, summed)
        self.task = Task("binary" if classes == 2 else "multiclass", tuple(str(code) for code in range(classes)))
        labels = _labels(torch.rand(ROWS, generator=draw), share, classes)
        self.truth = labels > 0 if classes == 2 else labels
        self.inputs = torch.randn(ROWS, FEATURES, generator=draw)
        for code in range(1, classes):
            self.inputs[:, code - 1] += (3 if classes == 2 else 5) * (labels == code)
        self.order = torch.randperm(ROWS, generator=draw)
        self.digests = torch.randint(0, 256, (ROWS, 16), generator=draw, dtype=torch.uint8)
        self.chain = chain
        self.sent: Counter[str] = Counter()
        self.steps: list[Step] = []
        modules = [*self.bottom.parameters(), *self.top.parameters()]
        self.optimizer = torch.optim.SGD(modules, lr=0.05)
        self._set_up(labels)

    def _set_up(self, labels: Tensor) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)  # a party begins a run, and a resume, from the job's seed
            self._set_up_chains(labels)
        self.sent["labels"] = ROWS
        self.given = labels

    def _set_up_chains(self, labels: Tensor) -> None:
        self.active, self.passive = self.chain(ACTIVE), self.chain(PASSIVE)
        self.passive.setup(context(None, PASSIVE))
        self.active.setup(context(self.task, ACTIVE))
        self.labels = self.active.labels(labels, self.digests)
        self.active.setup(context(self.task, ACTIVE, self.labels))

    def interrupt(self) -> None:
        """Stop, and continue with fresh protections from their saved states."""
        states = self.active.state_dict(), self.passive.state_dict()
        self._set_up(self.given)
        self.active.load_state_dict(states[0])
        self.passive.load_state_dict(states[1])

    def step(self, number: int) -> None:
        """One training step, with every hook."""
        rows = self.order[number * BATCH : (number + 1) * BATCH]
        outputs = self.bottom[0](self.inputs[rows])
        embedding = self.bottom[1](outputs)
        embed, inputs = (lambda other: self.bottom(self.inputs[other])), (lambda other: self.inputs[other])
        private = PassiveView(Mode.TRAIN, 0, number, rows, embed, inputs=inputs)
        released = self.passive.embedding_out(embedding, private)
        received = {PASSIVE: released.detach().requires_grad_()}
        view = ActiveView(Mode.TRAIN, 0, number, rows, self.labels[rows], received)
        seen = self.active.embeddings_in(received, view)
        torch.autograd.backward(self.task.loss(self.top(seen[PASSIVE]), view.labels))
        own = received[PASSIVE]
        view = replace(view, task_gradients={PASSIVE: torch.zeros_like(own) if own.grad is None else own.grad})
        gradient = self.active.gradient_out(self.active.cut_gradients(view)[PASSIVE], PASSIVE, view)
        self._learn(embedding, released, gradient, replace(private, embedding=released, gradient=gradient))
        self.passive.sending(Kind.EMBEDDING, ACTIVE, released)
        self.active.sending(Kind.GRADIENT, PASSIVE, gradient)
        self.sent.update(["embedding", "gradient", "embeddings_in", "cut_gradient", "local_loss", "update"])
        self.steps.append(
            Step(0, number, rows, {PASSIVE: released.detach()}, {PASSIVE: gradient}, {"bottom.0": outputs.detach()})
        )

    def _learn(self, embedding: Tensor, released: Tensor, gradient: Tensor, view: PassiveView) -> None:
        if self.passive.updates:
            (upstream,) = torch.autograd.grad(released, embedding, gradient)
            self.passive.update(Update(self.bottom, (self.inputs[view.rows],), upstream), view)
            self.optimizer.step()
            self.optimizer.zero_grad()
            return
        loss = (released * gradient).sum()
        own = self.passive.local_loss(view)
        torch.autograd.backward(loss if own is None else loss + own)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def finish(self) -> Toy:
        """What the run leaves behind; raises `NotApplied` if a protection missed something."""
        evidence = self.active.proof(self.sent) + self.passive.proof(self.sent)
        return Toy(self.task, self.truth, self.steps, evidence)


def train(
    chain: Callable[[str], Chain], share: float = 0.25, classes: int = 2, summed: bool = False, interrupt_at: int = -1
) -> Toy:
    """Run the toy to its end.

    Args:
        chain: As in `Run`, as the next three.
        share: Share of positive rows.
        classes: Number of classes.
        summed: Whether the top model hands the embedding on.
        interrupt_at: Number of the step before which the run is stopped and resumed.
    """
    run = Run(chain, share, classes, summed)
    for number in range(STEPS):
        if number == interrupt_at:
            run.interrupt()
        run.step(number)
    return run.finish()


def undefended(party: str) -> Chain:
    """A chain without protections."""
    return Chain(party, [])


def _labels(draws: Tensor, share: float, classes: int) -> Tensor:
    """Class codes int64 (n,) from uniform draws (n,); of three classes and more the first is the most frequent."""
    if classes == 2:
        return (draws < share).long()
    weights = torch.arange(classes, 0, -1).float()
    return torch.bucketize(draws, (weights / weights.sum()).cumsum(0)[:-1])


def _models(share: float, classes: int, summed: bool) -> tuple[nn.Sequential, nn.Module]:
    outputs = 1 if classes == 2 else classes
    width = outputs if summed else WIDTH
    first, last = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, width)
    for layer in (first, last):
        nn.init.orthogonal_(layer.weight)
    last.weight.data = first.weight.data.T[:width].clone()
    bottom = nn.Sequential(first, last)
    if summed:
        return bottom, nn.Identity()
    top = nn.Linear(WIDTH, outputs)
    nn.init.normal_(top.weight, std=0.03)
    bias: Any = torch.logit(torch.tensor(share)) if classes == 2 else 0.0
    nn.init.constant_(top.bias, float(bias))
    return bottom, top
