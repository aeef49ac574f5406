"""What an attack is: it reads one side's view, uses stated knowledge, and returns scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, final

import torch
from torch import Tensor

from cutlayer.attacks.for_tasks import ForTasks
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.channel.transcript import Step
from cutlayer.errors import NotApplicable
from cutlayer.kernels.ties import merge_ties
from cutlayer.tasks import Task


class Target(StrEnum):
    """The matrix an attack reads."""

    GRADIENT = "gradient"
    EMBEDDING = "embedding"
    LAYER = "layer"


@dataclass(frozen=True)
class PassiveView:
    """What the passive end of a link holds. There is no labels field.

    Attributes:
        party: name of the passive party.
        task: kind and classes; the names of the classes are no secret, the rows' labels are.
        steps: the sampled steps, whole, in order, exactly as they crossed.
    """

    party: str
    task: Task
    steps: Sequence[Step]


@dataclass(frozen=True)
class Scores:
    """An attack's claim about each row it scored.

    Attributes:
        rows: row numbers of the common order, int64 (n,).
        values: higher means "positive", float64 (n,); in a multi-class task (n, classes), higher means "of this class".
        batch: number of the sampled step each row came in, int64 (n,).
        hard: the attack's own decision per row, bool (n,), where the paper defines one; class codes, int64 (n,), in a
            multi-class task.
        also: other scores of the same rows that the paper names, by name, each of the shape of `values`.
        scale: as in `Guess`, float64 (n,); `None` where no terms cancel.
    """

    rows: Tensor
    values: Tensor
    batch: Tensor
    hard: Tensor | None = None
    also: Mapping[str, Tensor] = field(default_factory=dict)
    scale: Tensor | None = None

    def with_ties(self) -> Scores:
        """These scores with equal values where they differ by rounding alone, so that no rank depends on it."""
        scale = 0.0 if self.scale is None else self.scale
        also = {name: merge_ties(values, scale) for name, values in self.also.items()}
        return replace(self, values=merge_ties(self.values, scale), also=also)


@dataclass(frozen=True)
class Guess:
    """Scores of the rows of one step.

    Attributes:
        values: (n,) or (n, classes), NaN where a row is not scored (one known beforehand).
        hard: bool (n,), class codes (n,), or `None`.
        also: as in `Scores`.
        scale: size of the terms whose sum or difference a score is, float (n,) or one number: 1 for cosines and
            log-odds, the length of the row for its projection, 0 where no terms cancel. Differences of
            `kernels.ties.RESOLUTION` times this are rounding errors and count as ties. `None` takes the root mean
            square of the values.
    """

    values: Tensor
    hard: Tensor | None = None
    also: Mapping[str, Tensor] = field(default_factory=dict)
    scale: Tensor | float | None = None

    def sizes(self) -> Tensor:
        """`scale` as float64 (n,)."""
        scale = self.scale
        if scale is None:
            finite = self.values[self.values.isfinite()].double()
            scale = float(finite.square().mean().sqrt()) if len(finite) else 0.0
        return torch.as_tensor(scale, dtype=torch.float64).expand(len(self.values))


class Attack(ForTasks, ABC):
    """A curious party's computation. The call is final and validates; an author writes `run`.

    Class attributes:
        name: as in `audit.attacks`. reference: paper and section.
        reads: the targets it is defined for.
        needs: knowledge it must be given.
        tasks: the kinds of task it is defined for.
        live: whether `auto` takes it: it is cheap enough for every epoch, and defined at any cut.
    """

    name: ClassVar[str]
    reference: ClassVar[str]
    reads: ClassVar[tuple[Target, ...]]
    needs: ClassVar[frozenset[Need]]
    tasks: ClassVar[frozenset[str]] = frozenset({"binary"})
    live: ClassVar[bool] = True

    @final
    def __call__(self, view: PassiveView, target: Target, knowledge: Knowledge, layer: str = "") -> Scores:
        """Score every row of the view's sampled steps; scores that differ by rounding alone come out equal.

        Args:
            view: what the attacker holds.
            target: which matrix to read; `layer` names it where `target` is `LAYER`.
            knowledge: must hold all that the attack needs.

        Raises:
            NotApplicable: the task, the target or the knowledge does not fit; says which and why.
        """
        self.check_task(view.task.kind)
        if target not in self.reads:
            raise NotApplicable.expected(f"{self.name} on {' or '.join(self.reads)}", target)
        missing = sorted(self.needs - knowledge.held())
        if missing:
            raise NotApplicable.expected(f"{self.name} with knowledge of {', '.join(missing)}", "none of it")
        return self.run(view, target, knowledge, layer).with_ties()

    @abstractmethod
    def run(self, view: PassiveView, target: Target, knowledge: Knowledge, layer: str) -> Scores:
        """The attack itself."""


def finite_steps(view: PassiveView, target: Target, layer: str) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Number, matrix (n, d) and rows (n,) of each sampled step whose matrix is finite (training has not diverged).

    Feature maps are flattened to one row per row.
    """
    for number, step in enumerate(view.steps):
        matrix = step.matrix(view.party, target, layer).flatten(1)
        if is_finite(matrix):
            yield number, matrix, step.rows_of(target)


def step_by_step(
    view: PassiveView, target: Target, layer: str, guess: Callable[[Tensor, Tensor], Guess | None]
) -> Scores:
    """Run `guess(matrix (n, d), rows (n,))` on each finite step and put the guesses together.

    A step for which `guess` returns `None` (it lacks what the attack needs) and rows scored NaN are left out.

    Raises:
        NotApplicable: no step is left.
    """
    guessed = ((number, rows, guess(matrix, rows)) for number, matrix, rows in finite_steps(view, target, layer))
    return gathered((number, rows, made) for number, rows, made in guessed if made is not None)


def gathered(guesses: Iterable[tuple[int, Tensor, Guess]]) -> Scores:
    """Put the guesses of several steps together; rows scored NaN are left out.

    Args:
        guesses: number of the step, its rows (n,), and the guess.

    Raises:
        NotApplicable: there are none.
    """
    rows, values, batch, hard, scale = [], [], [], [], []
    also: dict[str, list[Tensor]] = {}
    for number, places, made in guesses:
        kept = ~made.values.isnan() if made.values.dim() == 1 else ~made.values.isnan().any(dim=1)
        rows.append(places[kept])
        values.append(made.values[kept].double())
        batch.append(torch.full((int(kept.sum()),), number))
        scale.append(made.sizes()[kept])
        if made.hard is not None:
            hard.append(made.hard[kept])
        for name, other in made.also.items():
            also.setdefault(name, []).append(other[kept].double())
    if not rows:
        raise NotApplicable.expected("a sampled step with what the attack needs", "none", "sample more rows")
    return Scores(
        torch.cat(rows),
        torch.cat(values),
        torch.cat(batch),
        torch.cat(hard) if hard else None,
        {name: torch.cat(parts) for name, parts in also.items()},
        torch.cat(scale),
    )


def is_finite(matrix: Tensor) -> bool:
    """Whether no number is NaN or infinite; one pass without a copy."""
    return not matrix.numel() or bool(torch.stack(matrix.aminmax()).isfinite().all())
