"""The family of completion attacks: a departed party turns its bottom model and some labels into a classifier."""

from __future__ import annotations

import copy
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from cutlayer.attacks.base import Attack
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.errors import NotApplicable
from cutlayer.lazy import Tensor, nn, torch

if TYPE_CHECKING:
    from cutlayer.models import BottomModel
    from cutlayer.problem.task import Task


OptimizerHook: TypeAlias = "Callable[[torch.optim.Optimizer], torch.optim.Optimizer]"
HEADS = {"MLP": (512, 256), "MLP_sim": ()}
"""Hidden widths of the heads, by their name in the literature."""
EMBEDDED_ROWS = 4096
"""Number of rows of an embedding batch."""


@dataclass(frozen=True, eq=False)
class DepartedView:
    """View of a passive party after it left a finished training, without labels.

    Attributes:
        party: Name of the party.
        task: Kind and classes; the names of the classes are no secret, the rows' labels are.
        bottom: Its trained bottom model; attacks train a copy.
        encoded: Its own encoded rows by row number of the common order: codes int32 (n, c), numbers float32 (n, m).
        rows: Row numbers of the training rows, ascending, int64 (n,); it took part in every batch of them.
        trained: Whether `bottom` was trained with the other parties; false in the from-scratch baselines.
    """

    party: str
    task: Task
    bottom: BottomModel
    encoded: Callable[[Tensor], tuple[Tensor, Tensor]]
    rows: Tensor
    trained: bool = True

    @cached_property
    def embeddings(self) -> Tensor:
        """Embeddings of the training rows, float32 (n, width), computed once for all attacks that do not train it."""
        extractor = copy.deepcopy(self.bottom).eval()
        with torch.no_grad():
            parts = [extractor(*self.encoded(rows)) for rows in torch.split(self.rows, EMBEDDED_ROWS)]
        return torch.cat(parts)


@dataclass(frozen=True, eq=False)
class Completion:
    """A model that predicts from one party's encoded rows alone.

    Attributes:
        task: Task whose classes it predicts.
        model: From codes and numbers to one score per class, float32 (n, classes).
    """

    task: Task
    model: nn.Module

    def logits(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Logits as the task's own model gives them, float32 (n, outputs): log odds of class 1 where there are two."""
        with torch.no_grad():
            scores: Tensor = self.model.eval()(codes, numbers)
        return scores if self.task.kind == "multiclass" else scores[:, 1:] - scores[:, :1]


@dataclass(frozen=True)
class Variant:
    """A way to complete a model.

    Attributes:
        name: Name in the results.
        trains_extractor: Whether the bottom model is trained too, so that it can also be trained from scratch.
        uses_unlabelled: Whether it learns from rows without labels; it is skipped where all labels are known.
        head: Kind of network that is trained on the extractor, where the attack has several.
    """

    name: str
    trains_extractor: bool = False
    uses_unlabelled: bool = False
    head: str = ""


@dataclass(frozen=True, kw_only=True)
class CompletionTraining:
    """Training of a completed model, fixed in advance without held-out labels.

    Attributes:
        batch_size: Rows per step.
        epochs: Passes over the labelled rows, within `min_steps` and `max_steps`.
        min_steps: Minimum number of steps.
        max_steps: Maximum number of steps.
        unlabelled_steps: Number of steps of a training that uses rows without labels.
        head_lr: Learning rate of a head on a trained extractor.
        extractor_lr: Learning rate of a trained extractor, with up to a batch of labels.
        scratch_lr: Learning rate of extractor and head from scratch, and of a trained extractor with more labels.
        noise: Noise of the augmentation, in standard deviations of each column.
        swap_share: Share of the codes that the augmentation takes from another row.
        unlabelled_weight: Final weight of the rows with guessed labels.
        ema_decay: Decay of the moving average of the weights.
    """

    batch_size: int = 256
    epochs: int = 15
    min_steps: int = 300
    max_steps: int = 4000
    unlabelled_steps: int = 400
    head_lr: float = 2e-3
    extractor_lr: float = 2e-4
    scratch_lr: float = 1e-3
    noise: float = 0.3
    swap_share: float = 0.1
    unlabelled_weight: float = 50.0
    ema_decay: float = 0.99


class CompletionAttack(Attack[DepartedView, Completion], ABC):
    """Completes the bottom model of a departed party, with auxiliary labels of at least one row of every class.

    Class attributes:
        variants: Ways to complete the model; all are reported, none is chosen by held-out labels.

    Args:
        variant: One of `variants`; the first by default.
        training: How the completed model is trained.
    """

    reads: ClassVar[tuple[str, ...]] = ("bottom model",)
    needs: ClassVar[frozenset[Need]] = frozenset({Need.AUXILIARY_LABELS})
    tasks: ClassVar[frozenset[str]] = frozenset({"binary", "multiclass"})
    variants: ClassVar[tuple[Variant, ...]] = (Variant("single"),)

    def __init__(self, variant: Variant | None = None, training: CompletionTraining = CompletionTraining()) -> None:
        self.variant = variant or self.variants[0]
        self.training = training

    def with_variant(self, variant: Variant) -> Self:
        """The same attack by another variant."""
        return type(self)(variant, self.training)

    def optimizer_hook(self) -> OptimizerHook | None:
        """Hook on the attacker's own optimiser during the training; `None` trains honestly."""
        return None

    def check(self, view: DepartedView, knowledge: Knowledge) -> None:
        """Raise `NotApplicable` if the task, the variant or the labels do not fit."""
        self.check_task(view.task.kind)
        if self.variant not in self.variants:
            names = ", ".join(variant.name for variant in self.variants)
            raise NotApplicable.expected(f"a variant of {self.name} ({names})", repr(self.variant.name))
        classes, known = len(view.task.classes), set(knowledge.known.values())
        if known != set(range(classes)):
            wanted = f"auxiliary labels of all {classes} classes for {self.name}"
            remedy = "fewer labels than classes complete no model; give at least one row of each"
            raise NotApplicable.expected(wanted, f"{len(knowledge.known)} labels of {len(known)} classes", remedy)
        if not bool(torch.isin(torch.tensor(list(knowledge.known)), view.rows).all()):
            raise NotApplicable.expected(f"auxiliary labels of training rows for {self.name}", "labels of other rows")
        super().check(view, knowledge)
