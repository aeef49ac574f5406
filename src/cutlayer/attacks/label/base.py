"""The family of attacks on labels: a passive party scores rows by the gradients and embeddings of its link."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from cutlayer.attacks.base import Attack
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.errors import NotApplicable
from cutlayer.kernels.statistics.ties import merge_ties
from cutlayer.lazy import Tensor, torch

if TYPE_CHECKING:
    from cutlayer.channel.transcript import Step
    from cutlayer.problem.task import Task


_MAX_STACKED = 1 << 21
"""Numbers of the matrices that are stacked: larger ones cost more to copy than calls that are spared."""


class Target(StrEnum):
    """The matrix that an attack reads; or the part of the split, or the drawn label, of each row that is sent it."""

    GRADIENT = "gradient"
    EMBEDDING = "embedding"
    PART = "part"
    LABELS = "label"
    LAYER = "layer"


@dataclass(frozen=True)
class LabelView:
    """View of the passive party on its link, without labels.

    Attributes:
        party: Name of the passive party.
        task: Kind and classes; the names of the classes are no secret, the rows' labels are.
        steps: The sampled steps, whole, in order, exactly as they crossed.
        target: The matrix to read.
        layer: Name of the layer where `target` is `LAYER`.
    """

    party: str
    task: Task
    steps: Sequence[Step]
    target: Target
    layer: str = ""

    def finite_steps(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Number, matrix (n, d) and rows (n,) of each step whose matrix is finite (training has not diverged).

        Gradients that are all zero are left out: the party was dropped in that step, and nothing was sent to read.

        Feature maps are flattened to one vector per row.
        """
        for number, step in enumerate(self.steps):
            matrix = step.matrix(self.party, self.target, self.layer).flatten(1)
            if is_finite(matrix) and (self.target is not Target.GRADIENT or bool(matrix.any())):
                yield number, matrix, step.rows_of(self.target)


@dataclass(frozen=True)
class Scores:
    """Scores of an attack.

    Attributes:
        rows: Row numbers of the common order, int64 (n,).
        values: Scores, float64 (n,), higher means "positive"; in a multi-class task (n, classes), higher means "of this
            class".
        batch: Number of the sampled step of each row, int64 (n,).
        hard: The attack's own decision per row where the paper defines one: bool (n,), or class codes, int64 (n,), in a
            multi-class task.
        also: Other scores of the same rows that the paper names, by name, each of the shape of `values`.
        scale: As in `Guess`, float64 (n,); `None` where no terms cancel.
    """

    rows: Tensor
    values: Tensor
    batch: Tensor
    hard: Tensor | None = None
    also: Mapping[str, Tensor] = field(default_factory=dict)
    scale: Tensor | None = None

    @classmethod
    def of_rows(cls, rows: Tensor, values: Tensor, **more: Any) -> Scores:
        """Scores that can be compared over all rows, which are one batch then."""
        return cls(rows, values, torch.zeros(len(rows), dtype=torch.int64), **more)

    def with_ties(self) -> Scores:
        """These scores with equal values where they differ by rounding alone, so that no rank depends on it."""
        scale = 0.0 if self.scale is None else self.scale
        also = {name: merge_ties(values, scale) for name, values in self.also.items()}
        return replace(self, values=merge_ties(self.values, scale), also=also)


@dataclass(frozen=True)
class Guess:
    """Scores of the rows of one step.

    Attributes:
        values: Scores (n,) or (n, classes), NaN where a row is not scored (its label was known beforehand).
        hard: Decisions, bool (n,) or class codes (n,), or `None`.
        also: As in `Scores`.
        scale: Size of the terms whose sum or difference a score is, float (n,) or one number: 1 for cosines and
            log-odds, the length of the row for its projection, 0 where no terms cancel. Differences of
            `kernels.ties.RESOLUTION` times this are rounding errors and count as ties. `None` takes the root mean
            square of the values.
    """

    values: Tensor
    hard: Tensor | None = None
    also: Mapping[str, Tensor] = field(default_factory=dict)
    scale: Tensor | float | None = None

    def of_step(self, index: int) -> Guess:
        """The guess of one step, of guesses with a leading axis for several."""
        also = {name: values[index] for name, values in self.also.items()}
        hard = None if self.hard is None else self.hard[index]
        return Guess(
            self.values[index], hard, also, self.scale[index] if isinstance(self.scale, Tensor) else self.scale
        )

    def sizes(self) -> Tensor:
        """`scale` as float64 (n,)."""
        scale = self.scale
        if scale is None:
            finite = self.values[self.values.isfinite()].double()
            scale = float(finite.square().mean().sqrt()) if len(finite) else 0.0
        return torch.as_tensor(scale, dtype=torch.float64).expand(len(self.values))


class LabelAttack(Attack[LabelView, Scores], ABC):
    """Scores every row of the view's sampled steps; scores that differ by rounding alone come out equal.

    Class attributes:
        reads: The targets that the attack is defined for.
    """

    reads: ClassVar[tuple[Target, ...]] = (Target.GRADIENT,)
    tasks: ClassVar[frozenset[str]] = frozenset({"binary"})
    live: ClassVar[bool] = True

    def check(self, view: LabelView, knowledge: Knowledge) -> None:
        """Raise `NotApplicable` if the task, the target or the knowledge does not fit, or messages carry nothing."""
        self.check_task(view.task.kind)
        if view.target not in self.reads:
            raise NotApplicable.expected(f"{self.name} on {' or '.join(self.reads)}", view.target)
        super().check(view, knowledge)
        # All cut gradients are zero where no hidden unit of the top model is active for any row.
        if next(view.finite_steps(), None) is None:
            zero = " and not all zero" if view.target is Target.GRADIENT else ""
            raise NotApplicable.expected(f"{view.target} messages that are finite{zero} for {self.name}", "none")

    def finish(self, result: Scores) -> Scores:
        """Merge ties."""
        return result.with_ties()


def step_by_step(view: LabelView, guess: Callable[[Tensor, Tensor], Guess | None]) -> Scores:
    """Run `guess(matrix (n, d), rows (n,))` on each finite step and concatenate the guesses.

    A step for which `guess` returns `None` (it lacks what the attack needs) and rows scored NaN are left out.

    Raises:
        NotApplicable: No step is left.
    """
    guesses = ((number, rows, guess(matrix, rows)) for number, matrix, rows in view.finite_steps())
    return concatenate_guesses((number, rows, made) for number, rows, made in guesses if made is not None)


def all_at_once(view: LabelView, guess: Callable[[Tensor], Guess]) -> Scores:
    """Run `guess(matrices (b, n, d))` once for the finite steps of each shape, which are almost all of them.

    The guess has a leading axis for the steps; each step is guessed on its own. With small steps the calls, not what
    they compute, are what an attack costs.

    Raises:
        NotApplicable: No step is finite.
    """
    shapes: dict[torch.Size, list[tuple[int, Tensor, Tensor]]] = {}
    for number, matrix, rows in view.finite_steps():
        shapes.setdefault(matrix.shape, []).append((number, matrix, rows))
    guesses: list[tuple[int, Tensor, Guess]] = []
    for shape, steps in shapes.items():
        at_once = max(1, _MAX_STACKED // max(shape.numel(), 1))
        for part in (steps[start : start + at_once] for start in range(0, len(steps), at_once)):
            made = guess(torch.stack([matrix for _, matrix, _ in part]) if len(part) > 1 else part[0][1][None])
            guesses += [(number, rows, made.of_step(index)) for index, (number, _, rows) in enumerate(part)]
    return concatenate_guesses(sorted(guesses, key=lambda made: made[0]))


def concatenate_guesses(guesses: Iterable[tuple[int, Tensor, Guess]]) -> Scores:
    """Concatenate the guesses of several steps, without the rows scored NaN.

    Args:
        guesses: Number of the step, its rows (n,), and the guess.

    Raises:
        NotApplicable: There are none.
    """
    made = list(guesses)
    if not made:
        raise NotApplicable.expected("a sampled step with what the attack needs", "none", "sample more rows")
    values = torch.cat([guess.values for _, _, guess in made]).double()
    scored = ~values.isnan() if values.dim() == 1 else ~values.isnan().any(dim=1)
    numbers = [number for number, _, _ in made]
    counts = [len(guess.values) for _, _, guess in made]
    hard = [guess.hard for _, _, guess in made if guess.hard is not None]
    names = made[0][2].also
    return Scores(
        torch.cat([rows for _, rows, _ in made])[scored],
        values[scored],
        torch.tensor(numbers).repeat_interleave(torch.tensor(counts))[scored],
        torch.cat(hard)[scored] if hard else None,
        {name: torch.cat([guess.also[name] for _, _, guess in made])[scored].double() for name in names},
        torch.cat([guess.sizes() for _, _, guess in made])[scored],
    )


def is_finite(matrix: Tensor) -> bool:
    """Whether no number is NaN or infinite; one pass without a copy."""
    return not matrix.numel() or bool(torch.stack(matrix.aminmax()).isfinite().all())


def nonzero_rows(matrix: Tensor) -> Tensor:
    """Rows of a matrix (n, d) with a number that is not zero, bool (n,); twice as fast as `any`."""
    return (matrix.amax(dim=1) != 0) | (matrix.amin(dim=1) != 0)
