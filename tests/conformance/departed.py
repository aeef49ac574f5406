"""A party that leaves a toy run: its bottom model learned from the labels what its own few labels cannot teach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from cutlayer.attacks.completion.base import Completion, DepartedView, OptimizerHook
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.kernels.fits.optimizers import Adam
from cutlayer.models import BottomModel, Inputs, build_bottom
from cutlayer.problem.task import Task

ROWS, TRAINING, FEATURES, EACH = 1600, 1000, 16, 12
EPOCHS, BATCH = 15, 100


@dataclass(frozen=True, eq=False)
class Departed:
    """What the toy run leaves behind.

    Attributes:
        view: the departed party's.
        untrained: the same view with the initial bottom model.
        truth: class codes by row; the rows after the training rows are held out.
    """

    view: DepartedView
    untrained: DepartedView
    truth: Tensor

    def knowledge(self, seed: int = 0) -> Knowledge:
        """`EACH` training rows of every class, drawn at random."""
        draw = torch.Generator().manual_seed(seed)
        order = torch.randperm(TRAINING, generator=draw)
        groups = [order[self.truth[order] == code][:EACH] for code in range(len(self.view.task.classes))]
        return Knowledge(known={int(row): code for code, rows in enumerate(groups) for row in rows})

    def accuracy(self, completion: Completion) -> float:
        """Of a completed model on the held-out rows."""
        held_out = torch.arange(TRAINING, ROWS)
        predicted = self.view.task.predict(completion.logits(*self.view.encoded(held_out))).argmax(dim=1)
        return float((predicted == self.truth[held_out]).double().mean())


def depart_after_training(hook: OptimizerHook | None, classes: int = 2, *, labels: int | None = None) -> Departed:
    """Train a party's bottom model below a linear top model, and let it leave.

    The classes are exclusive ors of two features, far apart among others that say nothing: all labels teach a small
    network to see them, a few do not.

    Args:
        hook: what the party does to its optimiser.
        labels: seed of labels that have nothing to do with the rows, in place of the true ones.
    """
    draw = torch.Generator().manual_seed(3)
    signs = torch.randint(0, 2, (ROWS, 4), generator=draw)
    truth = signs[:, 0] ^ signs[:, 1]
    if classes == 3:
        truth = truth + (signs[:, 2] ^ signs[:, 3])
    numbers = torch.randn(ROWS, FEATURES, generator=draw)
    numbers[:, :4] = 2.0 * (2 * signs - 1) + 0.3 * numbers[:, :4]
    codes = torch.randint(0, 3, (ROWS, 1), generator=draw, dtype=torch.int32)
    if labels is not None:
        truth = truth[torch.randperm(ROWS, generator=torch.Generator().manual_seed(labels))]
    task = Task("binary" if classes == 2 else "multiclass", tuple(str(code) for code in range(classes)))
    with torch.random.fork_rng():
        torch.manual_seed(4)
        bottom: BottomModel = build_bottom({"kind": "mlp", "hidden": [48, 16]}, Inputs((3,), FEATURES))
        view = DepartedView("telco", task, bottom, lambda rows: (codes[rows], numbers[rows]), torch.arange(TRAINING))
        begun = {name: tensor.clone() for name, tensor in bottom.state_dict().items()}
        _train(view, truth, hook)
    untrained = build_bottom({"kind": "mlp", "hidden": [48, 16]}, Inputs((3,), FEATURES))
    untrained.load_state_dict(begun)
    return Departed(view, replace(view, bottom=untrained, trained=False), truth)


def _train(view: DepartedView, truth: Tensor, hook: OptimizerHook | None) -> None:
    top = nn.Linear(view.bottom.width, view.task.outputs)
    wrap: Callable[[torch.optim.Optimizer], torch.optim.Optimizer] = hook or (lambda optimizer: optimizer)
    optimizers = [
        wrap(Adam(view.bottom.parameters(), lr=1e-2, fused=True)),
        Adam(top.parameters(), lr=1e-2, fused=True),
    ]
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(TRAINING), BATCH):
            for optimizer in optimizers:
                optimizer.zero_grad()
            view.task.loss(top(view.bottom(*view.encoded(rows))), truth[rows]).backward()
            for optimizer in optimizers:
                optimizer.step()
