"""What a completion attack is: from the model a quitter keeps and some labels it makes one that predicts alone."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from cutlayer.attacks.for_tasks import ForTasks
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.errors import NotApplicable
from cutlayer.models import BottomModel
from cutlayer.tasks import Task

OptimizerHook = Callable[[torch.optim.Optimizer], torch.optim.Optimizer]
CHUNK = 4096
"""Rows that are embedded at a time."""


@dataclass(frozen=True, eq=False)
class QuitterView:
    """What a passive party keeps when it leaves after training. There is no labels field.

    Attributes:
        party: its name.
        task: kind and classes; the names of the classes are no secret, the rows' labels are.
        bottom: its trained bottom model. It is only read; whoever trains on takes a copy.
        encoded: its own encoded rows, by row number of the common order: codes int32 (n, c), numbers float32 (n, m).
        rows: row numbers of the training rows, ascending, int64 (n,); it took part in every batch of them.
        trained: whether `bottom` was trained with the others; false in the from-scratch controls.
    """

    party: str
    task: Task
    bottom: BottomModel
    encoded: Callable[[Tensor], tuple[Tensor, Tensor]]
    rows: Tensor
    trained: bool = True

    @cached_property
    def embeddings(self) -> Tensor:
        """What `bottom` makes of the training rows, float32 (n, width): computed once, for all that do not train it."""
        extractor = copy.deepcopy(self.bottom).eval()
        with torch.no_grad():
            parts = [extractor(*self.encoded(rows)) for rows in torch.split(self.rows, CHUNK)]
        return torch.cat(parts)


@dataclass(frozen=True, eq=False)
class Completion:
    """A model that predicts from one party's encoded rows alone.

    Attributes:
        task: whose classes it predicts.
        model: from codes and numbers to one score per class, float32 (n, classes).
    """

    task: Task
    model: nn.Module

    def logits(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Logits as the task's own model gives them, float32 (n, outputs): log odds of class 1 where there are two."""
        with torch.no_grad():
            scores: Tensor = self.model.eval()(codes, numbers)
        return scores if self.task.kind == "multiclass" else scores[:, 1:] - scores[:, :1]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long and how hard a completion trains; fixed beforehand, never by a held-out label.

    Attributes:
        batch: rows per step. epochs: over the labelled rows, within `least` and `most` steps.
        semi: steps with rows without a label.
        rate: of a head on a trained extractor. tuning: of that extractor, up to a batch of labels. fresh: of both from
            scratch, and of a trained extractor with more labels.
        noise: of the augmentation, in standard deviations of each column.
        swap: share of the codes that augmentation takes from another row.
        guessed: final weight of the rows with guessed labels.
        decay: of the moving average of the weights.
    """

    batch: int = 256
    epochs: int = 15
    least: int = 300
    most: int = 4000
    semi: int = 400
    rate: float = 2e-3
    tuning: float = 2e-4
    fresh: float = 1e-3
    noise: float = 0.3
    swap: float = 0.1
    guessed: float = 50.0
    decay: float = 0.99


class CompletionAttack(ForTasks, ABC):
    """A quitter's computation. The call is final and validates; an author writes `run`.

    Class attributes:
        name: as in `audit.attacks`. reference: paper and section.
        variants: ways to complete the model, by name; all are reported, none is picked on held-out labels.
        few_only: those of them that are for few labels: they gain from rows without one.
        reads, needs, tasks, live: as in `Attack`.

    Args:
        effort: how long and how hard to train.
    """

    name: ClassVar[str]
    reference: ClassVar[str]
    variants: ClassVar[tuple[str, ...]]
    few_only: ClassVar[frozenset[str]] = frozenset()
    reads: ClassVar[tuple[str, ...]] = ("bottom model",)
    needs: ClassVar[frozenset[Need]] = frozenset({Need.AUXILIARY_LABELS})
    tasks: ClassVar[frozenset[str]] = frozenset({"binary", "multiclass"})
    live: ClassVar[bool] = False

    def __init__(self, effort: Effort = Effort()) -> None:
        self.effort = effort

    @final
    def __call__(self, view: QuitterView, knowledge: Knowledge, variant: str, seed: int) -> Completion:
        """Complete the quitter's model.

        Args:
            view: what the quitter kept.
            knowledge: auxiliary labels in `known`, of at least one training row of every class.
            variant: one of `variants`.
            seed: of every draw; the process's random state is left as it was.

        Raises:
            NotApplicable: the task, the labels or the variant do not fit; says which and why.
        """
        self.check_task(view.task.kind)
        if variant not in self.variants:
            raise NotApplicable.expected(f"a variant of {self.name} ({', '.join(self.variants)})", repr(variant))
        self._check_labels(view, knowledge)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.run(view, knowledge, variant)

    def optimizer_hook(self) -> OptimizerHook | None:
        """What the attacker does to its own optimiser while all parties train; `None` trains honestly."""
        return None

    def _check_labels(self, view: QuitterView, knowledge: Knowledge) -> None:
        classes, found = len(view.task.classes), set(knowledge.known.values())
        if found != set(range(classes)):
            wanted = f"auxiliary labels of all {classes} classes for {self.name}"
            remedy = "fewer labels than classes complete no model; give at least one row of each"
            raise NotApplicable.expected(wanted, f"{len(knowledge.known)} labels of {len(found)} classes", remedy)
        if not bool(torch.isin(torch.tensor(list(knowledge.known)), view.rows).all()):
            raise NotApplicable.expected(f"auxiliary labels of training rows for {self.name}", "other rows among them")

    @abstractmethod
    def run(self, view: QuitterView, knowledge: Knowledge, variant: str) -> Completion:
        """The attack itself; it draws from the global random state, which `__call__` has seeded."""
