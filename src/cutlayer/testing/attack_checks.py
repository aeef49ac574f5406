"""The checks of an attack on labels. Each takes the class, and how to try it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import LabelAttack, LabelView, Scores, Target
from cutlayer.audit.leak import leak_interval, leak_of
from cutlayer.channel.transcript import Step
from cutlayer.errors import NotApplicable
from cutlayer.problem.task import Task
from cutlayer.testing import toy
from cutlayer.testing.faults import expect, reads_more, refuses, states_its_paper

TASKS: tuple[Literal["binary", "multiclass", "regression"], ...] = ("binary", "multiclass", "regression")


@dataclass(frozen=True)
class AttackCase:
    """How to try an attack.

    Attributes:
        succeeds: AUC of its scores, all rows ranked together, that it must exceed on the undefended toy, by target.
            Higher scores mean the positive class: 0.0 is no success.
        summed: Whether it needs a top model that only adds up.
    """

    succeeds: Mapping[Target, float] = field(default_factory=dict)
    summed: bool = False


def states_its_terms(attack: type[LabelAttack], case: AttackCase) -> None:
    """Name, paper, targets, and a limit for every target."""
    states_its_paper(attack)
    expect(set(case.succeeds) == set(attack.reads), f"a limit for each of {attack.reads}", [*case.succeeds])
    expect(all(limit >= 0.9 for limit in case.succeeds.values()), "limits of 0.9 or more", [*case.succeeds.values()])


def succeeds_undefended(attack: type[LabelAttack], case: AttackCase) -> None:
    """It reads the labels off an undefended run, whichever class is the rare one."""
    for run in _runs(attack, case):
        for target, limit in case.succeeds.items():
            reads_more(attack, target, leak_of(scores_of(attack, run, target), run.truth).pooled_auc, limit)


def is_at_chance_on_random_labels(attack: type[LabelAttack], case: AttackCase) -> None:
    """Labels that have nothing to do with the messages are not found in them."""
    for run in _runs(attack, case):
        random = run.truth[torch.randperm(toy.ROWS, generator=torch.Generator().manual_seed(99))]
        for target in attack.reads:
            scores = scores_of(attack, run, target)
            for values in (scores.values, *scores.also.values()):
                low, high = leak_interval(replace(scores, values=values), random, level=0.99)
                wanted = f"chance, 0.5, within the interval of {attack.name} on {target} for random labels"
                expect(low <= 0.5 <= high, wanted, f"{low:.3f} to {high:.3f}")


def returns_well_formed_scores(attack: type[LabelAttack], case: AttackCase) -> None:
    """Finite float64 scores, one per row and class, known rows left out, the same when asked again."""
    once = _run_of_each_task(attack, case)
    for run in _runs(attack, case):
        for target in attack.reads:
            scores = scores_of(attack, run, target)
            _is_well_formed(scores, run, run.knowledge(attack.needs).known.keys())
            if run in once:
                same = torch.equal(scores.values, _scores(attack(), run, target).values)
                expect(same, "the same scores when the attack runs again", "others", "draw from torch's generator")
            if scores.hard is not None:
                kind = torch.bool if run.task.kind == "binary" else torch.int64
                expect(scores.hard.dtype == kind, f"`hard` of {kind}", scores.hard.dtype)
                found = leak_of(scores, run.truth).hard_auc or 0.0
                expect(found > 0.8, "`hard` labels with an AUC above 0.8 undefended", f"{found:.3f}")


def _is_well_formed(scores: Scores, run: toy.Toy, known: Collection[int]) -> None:
    several = () if run.task.kind == "binary" else (len(run.task.classes),)
    rows = scores.rows.tolist()
    expect(scores.values.dtype == torch.float64, "float64 scores", scores.values.dtype)
    expect(bool(scores.values.isfinite().all()), "finite scores", "NaN or infinity")
    expect(
        scores.values.shape == (len(rows), *several), f"scores of shape {(len(rows), *several)}", scores.values.shape
    )
    unknown = toy.ROWS - len(known)
    counts = (len(rows), len({*rows}), len(scores.batch))
    expect(counts == (unknown,) * 3, f"a score for each of {unknown} unknown rows, once", counts)
    expect(not {*known} & {*rows}, "no score for a row whose label is known", "some")


def refuses_what_it_lacks(attack: type[LabelAttack], case: AttackCase) -> None:  # noqa: ARG001 (one form for all)
    """Missing knowledge, another task and another target are `NotApplicable`, by name."""
    run, target = undefended(), attack.reads[0]
    knowledge = run.knowledge(attack.needs)
    if attack.needs:
        with refuses(NotApplicable, f"{attack.name} with knowledge of", "a call without what it needs"):
            attack()(run.view(target), Knowledge())
    for kind in TASKS:
        if kind in attack.tasks:
            continue
        view = LabelView(toy.PASSIVE, Task(kind, ("0", "1", "2")), run.steps, target)
        with refuses(NotApplicable, attack.name, f"a {kind} task"):
            attack()(view, knowledge)
    for other in set(Target) - set(attack.reads):
        with refuses(NotApplicable, attack.name, f"messages of kind {other}"):
            attack()(run.view(other), knowledge)


def bears_dead_messages(attack: type[LabelAttack], case: AttackCase) -> None:
    """Zeros and NaN in the messages give no score, or chance, but neither a crash nor a NaN."""
    for run in map(_begun, _run_of_each_task(attack, case)):
        for target, filler in product(attack.reads, (0.0, float("nan"))):
            dead = [_mapped(run.steps[0], partial(torch.full_like, fill_value=filler)), *run.steps[1:]]
            scores = _scores(attack(), replace(run, steps=dead), target, run.knowledge(attack.needs))
            what = f"where all numbers of the {target}s of a step are {filler}"
            expect(bool(scores.values.isfinite().all()), f"finite scores {what}", "NaN or infinity")
            several = len(torch.unique(scores.values[scores.batch == 0], dim=0))
            expect(several <= 1, f"no score or one for all {what}", f"{several} different ones")


def scores_every_scale(attack: type[LabelAttack], case: AttackCase) -> None:
    """Messages near 1e-10 and below carry the same ranking."""
    for run in map(_begun, _run_of_each_task(attack, case)):
        tiny = replace(run, steps=[_mapped(step, lambda tensor: tensor * 2.0**-70) for step in run.steps])
        for target in attack.reads:
            exact = leak_of(scores_of(attack, run, target), run.truth).pooled_auc
            found = leak_on(attack(), tiny, target)
            wanted = f"the AUC {exact:.3f} on {target} where all numbers are 2^-70 of it"
            expect(math.isclose(found, exact, abs_tol=1e-3), wanted, f"{found:.3f}", "compute in float64")


def ignores_the_last_bit(attack: type[LabelAttack], case: AttackCase) -> None:
    """Messages moved by one unit in the last place, in tensors of another alignment, give the same AUC.

    Beside the messages as they are: rows of one length, as clipping leaves them, equal rows, and collinear ones, where
    scores are equal in theory and only roundings would be ranked. Of these one step shows it.
    """
    for run in map(_begun, _runs(attack, case)[::2]):
        knowledge = run.knowledge(attack.needs)
        for target, shape in product(attack.reads, _SHAPES):
            as_sent = shape is _as_sent
            given = replace(run, steps=[_mapped(step, shape) for step in run.steps[: None if as_sent else 1]])
            moved = replace(run, steps=[_mapped(step, last_bit_moved) for step in given.steps])
            scores = scores_of(attack, run, target) if as_sent else _scores(attack(), given, target, knowledge)
            exact, rounded = (_readings(score, run) for score in (scores, _scores(attack(), moved, target, knowledge)))
            wanted = f"AUCs {exact} on {target} {shape.__name__.strip('_')} with the last bits of its numbers changed"
            close = (
                abs(a - b) <= 1e-3 or (math.isnan(a) and math.isnan(b)) for a, b in zip(exact, rounded, strict=True)
            )
            expect(all(close), wanted, rounded, "state the `scale` of a score")


ATTACK_CHECKS: tuple[Callable[[type[LabelAttack], AttackCase], None], ...] = (
    states_its_terms,
    succeeds_undefended,
    is_at_chance_on_random_labels,
    returns_well_formed_scores,
    refuses_what_it_lacks,
    bears_dead_messages,
    scores_every_scale,
    ignores_the_last_bit,
)


@cache
def undefended(share: float = 0.25, classes: int = 2, summed: bool = False) -> toy.Toy:
    """A run without protections."""
    return toy.train(toy.undefended, share, classes, summed)


@cache
def scores_of(attack: type[LabelAttack], run: toy.Toy, target: Target) -> Scores:
    """The attack's scores of a run, which several checks compare with; `returns_well_formed_scores` attacks again."""
    return _scores(attack(), run, target)


def leak_on(attack: LabelAttack, run: toy.Toy, target: Target) -> float:
    """AUC of the attack's scores of a run, all rows ranked together."""
    return leak_of(_scores(attack, run, target), run.truth).pooled_auc


def last_bit_moved(x: Tensor) -> Tensor:
    """Every number moved up or down by one unit in the last place, in a tensor that is not aligned to 16 bytes."""
    draw = torch.Generator().manual_seed(7)
    up = torch.rand(x.shape, generator=draw) < 0.5
    memory: Tensor = torch.empty(x.numel() + 1, dtype=x.dtype)[1:].view(x.shape)
    memory[:] = torch.nextafter(x, torch.where(up, torch.inf, -torch.inf).to(x.dtype))
    return memory


def _runs(attack: type[LabelAttack], case: AttackCase) -> list[toy.Toy]:
    """Undefended runs of every kind of task the attack is defined for, binary ones with either class rare."""
    binary = [undefended(share, summed=case.summed) for share in (0.25, 0.75) if "binary" in attack.tasks]
    return binary + [undefended(classes=3, summed=case.summed) for _ in attack.tasks & {"multiclass"}]


def _run_of_each_task(attack: type[LabelAttack], case: AttackCase) -> list[toy.Toy]:
    """One of `_runs` for each kind of task: for what does not depend on which class is rare."""
    return [*{run.task.kind: run for run in _runs(attack, case)}.values()]


@cache
def _begun(run: toy.Toy) -> toy.Toy:
    """The first two of the four steps: for what holds of each step, or of two as of any number."""
    return replace(run, steps=run.steps[:2])


def _scores(attack: LabelAttack, run: toy.Toy, target: Target, knowledge: Knowledge | None = None) -> Scores:
    return attack(run.view(target), knowledge or run.knowledge(attack.needs))


def _as_sent(x: Tensor) -> Tensor:
    return x


def _of_one_length(x: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return 0.37 * x / lengths.clamp_min(1e-30)


def _equal_rows(x: Tensor) -> Tensor:
    return x[:1].expand_as(x).contiguous()


def _collinear(x: Tensor) -> Tensor:
    return x[:, :1] * x[:1]


_SHAPES: tuple[Callable[[Tensor], Tensor], ...] = (_as_sent, _of_one_length, _equal_rows, _collinear)


def _readings(scores: Scores, run: toy.Toy) -> list[float]:
    """All AUCs that the audit takes of one attack's scores."""
    leak = leak_of(scores, run.truth)
    return [leak.batch_auc, leak.pooled_auc, leak.hard_auc or 0.5, *leak.other_aucs.values()]


def _mapped(step: Step, change: Callable[[Tensor], Tensor]) -> Step:
    groups = (
        {name: change(t) for name, t in group.items()} for group in (step.embeddings, step.gradients, step.layers)
    )
    return Step(step.epoch, step.step, step.rows, *groups)
