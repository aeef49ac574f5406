"""The checks themselves. Each takes the class under test and its line of the table."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from cutlayer.accounting import NoFormalGuarantee, ReleasePlan
from cutlayer.accounting.events import Event
from cutlayer.attacks import REGISTRY as ATTACKS
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import LabelAttack, LabelView, Scores, Target
from cutlayer.audit.known_labels import strongest
from cutlayer.audit.leak import leak_interval, leak_of
from cutlayer.channel.transcript import Step
from cutlayer.config import FrozenModel, validated
from cutlayer.errors import ConfigError, NotApplicable
from cutlayer.problem.task import Task
from cutlayer.protections.contract.base import Asset, Protection, Side
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.hooks import HOOKS

from . import departure, toy
from .table import AttackCase, ProtectionCase

ProtectionClass = type[Protection[Any]]
SIDE_OF = {toy.ACTIVE: Side.ACTIVE, toy.PASSIVE: Side.PASSIVE}


def states_its_paper(kind: Any) -> None:
    """A name, and the paper with its year, which the docstring has as well."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*", kind.name), f"expected a `name` as in a_name_2, got {kind.name!r}"
    wanted = f"expected a `reference` with a paper's year, or 'this project', got {kind.reference!r}"
    assert re.search(r"\d{4}|this project", kind.reference), wanted
    assert "Reference:" in (kind.__doc__ or ""), "expected a paragraph `Reference:` in the docstring, got none"
    tasks = {"binary", "multiclass", "regression"}
    assert kind.tasks <= tasks, f"expected `tasks` of {sorted(tasks)}, got {sorted(kind.tasks)}"


def reads_more(kind: Any, what: object, found: float, limit: float) -> None:
    """A leak is above the limit of the table."""
    turned = "; higher scores must mean the positive class: turn the sign" if found < 0.5 else ""
    assert found > limit, f"expected {kind.name} on {what} above {limit} undefended, got {found:.3f}{turned}"


def declares_what_it_is(protection: ProtectionClass, case: ProtectionCase) -> None:
    """Name, side, asset, paper, rank, settings to begin with, and a docstring that says what is guaranteed."""
    states_its_paper(protection)
    assert issubclass(protection.config, FrozenModel), "expected a `config` that is a FrozenModel"
    assert protection.config.model_config["frozen"], "expected a frozen `config`"
    assert type(protection.start) is protection.config, "expected `start`, settings of the class in `config`"
    assert isinstance(protection.side, Side), "expected a `side`: derive from LabelProtection or FeatureProtection"
    assert isinstance(protection.protects, Asset), "expected an asset in `protects`"
    lowered = {(str(target), attack) for attack, target, _ in case.lowers}
    assert {*protection.published_against} <= lowered, "published_against: attacks that the table says it lowers"
    assert protection.rank in (10, 20, 30), f"expected a `rank` of 10, 20 or 30, got {protection.rank}"
    assert "Guarantee:" in (protection.__doc__ or ""), "expected a paragraph `Guarantee:` in the docstring, got none"
    assert any(getattr(protection, hook) is not getattr(Protection, hook) for hook in HOOKS), "it overrides no hook"


def refuses_bad_options(protection: ProtectionClass, case: ProtectionCase) -> None:
    """Unknown keys and options out of range are a `ConfigError` that names the key."""
    for options in ({**case.options, "no_such_option": 1}, *case.refused):
        with pytest.raises(ConfigError, match=rf"privacy\.{protection.name}"):
            _build(protection, options)


def refuses_other_tasks(protection: ProtectionClass, case: ProtectionCase) -> None:
    """A task it is not defined for is `NotApplicable` before anything runs."""
    for kind in {"binary", "multiclass", "regression"} - protection.tasks:
        with pytest.raises(NotApplicable, match=protection.name):
            _build(protection, case.options).setup(toy.context(Task(kind, ()), toy.ACTIVE))


def lowers_its_attacks(protection: ProtectionClass, case: ProtectionCase) -> None:
    """The attacks it is for succeed on the undefended toy and not on the defended one."""
    assert case.lowers or case.loses is not None, "name at least one attack that it lowers"
    defended = toy.train(_chains(protection, case))
    for name, target, limit in case.lowers:
        before = leak_of(_undefended_scores(ATTACKS[name], _undefended(), target), _undefended().truth).pooled_auc
        after = _leak(ATTACKS[name](), defended, target)
        assert before > 0.9
        assert max(after, 1 - after) < limit, f"{name} on {target} reads {after:.3f}, undefended {before:.3f}"


def withstands_adaptive_attacks(protection: ProtectionClass, case: ProtectionCase) -> None:
    """Attacks chosen after reading the defence, with what a party keeps of a run, stay below what is stated of them."""
    if not case.adaptive:
        return
    defended = toy.train(_chains(protection, case))
    for name, target, limit in case.adaptive:
        before, after = _undefended_adaptive_leak(name, target), _adaptive_leak(name, defended, target)
        assert before > 0.9
        assert after < limit, f"{name} on {target} reads {after:.3f}, undefended {before:.3f}"


def works_after_a_departure(protection: ProtectionClass, case: ProtectionCase) -> None:
    """A defence against departures: a party that leaves costs an undefended model much, and a defended one little."""
    if case.loses is None:
        return
    before, after = departure.accuracies(toy.undefended)
    assert before - after > 0.15, "the toy loses nothing without it"
    whole, left = departure.accuracies(_chains(protection, case))
    assert whole - left < case.loses, f"{whole:.3f} to {left:.3f}, undefended {before:.3f} to {after:.3f}"
    assert before - whole < 0.04, f"{whole:.3f} with all parties, undefended {before:.3f}"


def keeps_shapes_and_types(protection: ProtectionClass, case: ProtectionCase) -> None:
    """Messages look as without it, in a binary and in a multi-class task."""
    for classes in (2, 3):
        if ("binary" if classes == 2 else "multiclass") not in protection.tasks:
            continue
        plain = toy.train(toy.undefended, classes=classes)
        defended = toy.train(_chains(protection, case), classes=classes)
        for first, second in zip(plain.steps, defended.steps, strict=True):
            for kind in ("embeddings", "gradients"):
                a, b = getattr(first, kind)[toy.PASSIVE], getattr(second, kind)[toy.PASSIVE]
                assert (a.shape, a.dtype) == (b.shape, b.dtype)
                assert bool(b.isfinite().all())


def proves_what_it_did(protection: ProtectionClass, case: ProtectionCase) -> None:
    """It covered all that was sent, changed some of it, and gives finite metrics."""
    (evidence,) = toy.train(_chains(protection, case)).evidence
    assert evidence.protection == protection.name
    assert evidence.covered == evidence.sent > 0
    assert 0 < evidence.changed <= evidence.covered
    assert evidence.metrics
    assert all(math.isfinite(value) for value in evidence.metrics.values())


def repeats_itself(protection: ProtectionClass, case: ProtectionCase) -> None:
    """The same keys give the same messages to the last bit."""
    _same_messages(toy.train(_chains(protection, case)).steps, toy.train(_chains(protection, case)).steps)


def survives_a_resume(protection: ProtectionClass, case: ProtectionCase) -> None:
    """A run resumed from `state_dict` sends the same messages and ends with the same evidence and state."""
    whole = toy.train(_chains(protection, case))
    resumed = toy.train(_chains(protection, case), interrupt_at=2)
    _same_messages(whole.steps, resumed.steps)
    assert whole.evidence == resumed.evidence
    run = toy.Run(_chains(protection, case))
    run.step(0)
    before = [chain.state_dict()["protections"] for chain in (run.active, run.passive)]
    run.interrupt()
    after = [chain.state_dict()["protections"] for chain in (run.active, run.passive)]
    assert _plain(before) == _plain(after)


def has_an_event(protection: ProtectionClass, case: ProtectionCase) -> None:
    """What it will release is known after `setup`, before the first message."""
    built = _build(protection, case.options)
    party = toy.ACTIVE if protection.side is Side.ACTIVE else toy.PASSIVE
    built.setup(toy.context(Task("binary", ("0", "1")) if party == toy.ACTIVE else None, party))
    event = built.event(ReleasePlan(training=2))
    assert isinstance(event, Event)
    none = "Guarantee: none" in (protection.__doc__ or "")
    assert isinstance(event, NoFormalGuarantee) == none, "the docstring and the event disagree on a guarantee"
    neighbours = none or "Neighbours" in (protection.__doc__ or "")
    assert neighbours, "expected what neighbours differ in, after `Guarantee:` of the docstring, got nothing"


PROTECTION_CHECKS: tuple[Callable[[ProtectionClass, ProtectionCase], None], ...] = (
    declares_what_it_is,
    refuses_bad_options,
    refuses_other_tasks,
    lowers_its_attacks,
    withstands_adaptive_attacks,
    works_after_a_departure,
    keeps_shapes_and_types,
    proves_what_it_did,
    repeats_itself,
    survives_a_resume,
    has_an_event,
)


def check_protection(protection: ProtectionClass, case: ProtectionCase) -> None:
    """Hold one protection to all checks."""
    for check in PROTECTION_CHECKS:
        check(protection, case)


def states_its_terms(attack: type[LabelAttack], case: AttackCase) -> None:
    """Name, paper, targets, and a line of the table for every target."""
    states_its_paper(attack)
    assert set(case.succeeds) == set(attack.reads), "expected a limit in the table for each message that it `reads`"
    assert all(limit >= 0.9 for limit in case.succeeds.values()), "expected limits of 0.9 or more in the table"


def succeeds_undefended(attack: type[LabelAttack], case: AttackCase) -> None:
    """It reads the labels off an undefended run, whichever class is the rare one."""
    for run in _runs(attack, case):
        for target, limit in case.succeeds.items():
            reads_more(attack, target, leak_of(_undefended_scores(attack, run, target), run.truth).pooled_auc, limit)


def is_at_chance_on_random_labels(attack: type[LabelAttack], case: AttackCase) -> None:
    """Labels that have nothing to do with the messages are not found in them."""
    for run in _runs(attack, case):
        random = run.truth[torch.randperm(toy.ROWS, generator=torch.Generator().manual_seed(99))]
        for target in attack.reads:
            scores = _undefended_scores(attack, run, target)
            for values in (scores.values, *scores.also.values()):
                low, high = leak_interval(replace(scores, values=values), random, level=0.99)
                assert low <= 0.5 <= high, f"{attack.name} on {target} finds labels at random: {low:.3f} to {high:.3f}"


def returns_well_formed_scores(attack: type[LabelAttack], case: AttackCase) -> None:
    """Finite float64 scores, one per row and class, known rows left out, the same when asked again."""
    once = _run_of_each_task(attack, case)
    for run in _runs(attack, case):
        known = run.knowledge(attack.needs).known
        for target in attack.reads:
            scores = _undefended_scores(attack, run, target)
            several = () if run.task.kind == "binary" else (len(run.task.classes),)
            assert scores.values.dtype == torch.float64
            assert bool(scores.values.isfinite().all())
            assert scores.values.shape == (len(scores.rows), *several)
            assert len(scores.rows) == len(scores.rows.unique()) == len(scores.batch) == toy.ROWS - len(known)
            assert not known.keys() & set(scores.rows.tolist())
            if run in once:
                assert torch.equal(scores.values, _scores(attack(), run, target).values)
            if scores.hard is not None:
                assert scores.hard.dtype == (torch.int64 if several else torch.bool)
                assert leak_of(scores, run.truth).hard_auc > 0.8


def refuses_what_it_lacks(attack: type[LabelAttack], case: AttackCase) -> None:
    """Missing knowledge, another task and another target are `NotApplicable`, by name."""
    run, target = _undefended(), attack.reads[0]
    knowledge = run.knowledge(attack.needs)
    if attack.needs:
        with pytest.raises(NotApplicable, match=f"{attack.name} with knowledge of"):
            attack()(run.view(target), Knowledge())
    for kind in {"binary", "multiclass", "regression"} - attack.tasks:
        view = LabelView(toy.PASSIVE, Task(kind, ("0", "1", "2")), run.steps, target)
        with pytest.raises(NotApplicable, match=attack.name):
            attack()(view, knowledge)
    for other in set(Target) - set(attack.reads):
        with pytest.raises(NotApplicable, match=attack.name):
            attack()(run.view(other), knowledge)


def bears_dead_messages(attack: type[LabelAttack], case: AttackCase) -> None:
    """Zeros and NaN in the messages give no score, or chance, but neither a crash nor a NaN."""
    for run in map(_begun, _run_of_each_task(attack, case)):
        for target, filler in product(attack.reads, (0.0, float("nan"))):
            dead = [_filled(run.steps[0], filler), *run.steps[1:]]
            scores = _scores(attack(), replace(run, steps=dead), target, run.knowledge(attack.needs))
            assert bool(scores.values.isfinite().all())
            assert len(scores.values[scores.batch == 0].unique(dim=0)) <= 1


def scores_every_scale(attack: type[LabelAttack], case: AttackCase) -> None:
    """Messages near 1e-10 and below carry the same ranking."""
    for run in map(_begun, _run_of_each_task(attack, case)):
        tiny = replace(run, steps=[_scaled(step, 2.0**-70) for step in run.steps])
        for target in attack.reads:
            exact = leak_of(_undefended_scores(attack, run, target), run.truth).pooled_auc
            assert _leak(attack(), tiny, target) == pytest.approx(exact, abs=1e-3)


def ignores_the_last_bit(attack: type[LabelAttack], case: AttackCase) -> None:
    """Messages moved by one unit in the last place, in tensors of another alignment, give the same AUC.

    Beside the messages as they are: rows of one length, as clipping leaves them, equal rows, and collinear ones, where
    scores are equal in theory and only roundings would be ranked.
    """
    for run in map(_begun, _runs(attack, case)[::2]):
        knowledge = run.knowledge(attack.needs)
        for target, shape in product(attack.reads, (torch.clone, _of_one_length, _equal_rows, _collinear)):
            given = replace(run, steps=[_mapped(step, shape) for step in run.steps])
            moved = replace(run, steps=[_mapped(step, last_bit_moved) for step in given.steps])
            same = shape is torch.clone
            scores = _undefended_scores(attack, run, target) if same else _scores(attack(), given, target, knowledge)
            exact, rounded = (_readings(score, run) for score in (scores, _scores(attack(), moved, target, knowledge)))
            assert rounded == pytest.approx(exact, abs=1e-3, nan_ok=True), f"{target} {shape.__name__}"


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


def check_attack(attack: type[LabelAttack], case: AttackCase) -> None:
    """Hold one attack to all checks."""
    for check in ATTACK_CHECKS:
        check(attack, case)


@cache
def _undefended(share: float = 0.25, classes: int = 2, summed: bool = False) -> toy.Toy:
    return toy.train(toy.undefended, share, classes, summed)


@cache
def _undefended_scores(attack: type[LabelAttack], run: toy.Toy, target: Target) -> Scores:
    """The attack's scores of an undefended run, which several checks compare with; `returns_well_formed_scores`
    attacks again."""
    return _scores(attack(), run, target)


def _runs(attack: type[LabelAttack], case: AttackCase) -> list[toy.Toy]:
    """Undefended runs of every kind of task the attack is defined for, binary ones with either class rare."""
    binary = [_undefended(share, summed=case.summed) for share in (0.25, 0.75) if "binary" in attack.tasks]
    return binary + [_undefended(classes=3, summed=case.summed) for _ in attack.tasks & {"multiclass"}]


def _run_of_each_task(attack: type[LabelAttack], case: AttackCase) -> list[toy.Toy]:
    """One of `_runs` for each kind of task: for what does not depend on which class is rare."""
    return [*{run.task.kind: run for run in _runs(attack, case)}.values()]


@cache
def _begun(run: toy.Toy) -> toy.Toy:
    """The first two of the four steps: for what holds of each step, or of two as of any number."""
    return replace(run, steps=run.steps[:2])


def _build(protection: ProtectionClass, options: Any) -> Protection[Any]:
    return protection(validated(protection.config, options, f"privacy.{protection.name}"))


def _chains(protection: ProtectionClass, case: ProtectionCase) -> Callable[[str], Chain]:
    """A fresh chain for each party; the protection is in that of its own side."""

    def chain(party: str) -> Chain:
        return Chain(party, [_build(protection, case.options)] if SIDE_OF[party] is protection.side else [])

    return chain


def _scores(attack: LabelAttack, run: toy.Toy, target: Target, knowledge: Knowledge | None = None) -> Scores:
    return attack(run.view(target), knowledge or run.knowledge(attack.needs))


def last_bit_moved(x: Tensor) -> Tensor:
    """Every number moved up or down by one unit in the last place, in a tensor that is not aligned to 16 bytes."""
    draw = torch.Generator().manual_seed(7)
    up = torch.rand(x.shape, generator=draw) < 0.5
    memory = x.new_empty(x.numel() + 1)[1:].view(x.shape)
    return memory.copy_(x.nextafter(torch.where(up, torch.inf, -torch.inf).to(x.dtype)))


def _of_one_length(x: Tensor) -> Tensor:
    return 0.37 * x / torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min(1e-30)


def _equal_rows(x: Tensor) -> Tensor:
    return x[:1].expand_as(x).contiguous()


def _collinear(x: Tensor) -> Tensor:
    return x[:, :1] * x[:1]


def _readings(scores: Scores, run: toy.Toy) -> list[float]:
    """All AUCs that the audit takes of one attack's scores."""
    leak = leak_of(scores, run.truth)
    return [leak.batch_auc, leak.pooled_auc, leak.hard_auc or 0.5, *leak.other_aucs.values()]


def _leak(attack: LabelAttack, run: toy.Toy, target: Target) -> float:
    return leak_of(_scores(attack, run, target), run.truth).pooled_auc


def _adaptive_leak(name: str, run: toy.Toy, target: Target) -> float:
    known = {int(row): int(run.truth[row]) for row in range(0, toy.ROWS, toy.ROWS // 40)}
    scores = ATTACKS[name]()(run.history().on(target), Knowledge(float(run.truth.double().mean()), known))
    return strongest(scores, run.truth)


@cache
def _undefended_adaptive_leak(name: str, target: Target) -> float:
    """What the attack reads of the undefended toy, which is the same for every defence."""
    return _adaptive_leak(name, _undefended(), target)


def _same_messages(first: list[Step], second: list[Step]) -> None:
    for left, right in zip(first, second, strict=True):
        for kind in ("embeddings", "gradients"):
            assert torch.equal(getattr(left, kind)[toy.PASSIVE], getattr(right, kind)[toy.PASSIVE])


def _plain(state: Any) -> str:
    """A state as text; tensors as lists, anything else that JSON cannot hold is an error."""
    return json.dumps(state, sort_keys=True, default=Tensor.tolist)


def _filled(step: Step, value: float) -> Step:
    return _mapped(step, lambda tensor: torch.full_like(tensor, value))


def _scaled(step: Step, factor: float) -> Step:
    return _mapped(step, lambda tensor: tensor * factor)


def _mapped(step: Step, change: Callable[[Tensor], Tensor]) -> Step:
    groups = (
        {name: change(t) for name, t in group.items()} for group in (step.embeddings, step.gradients, step.layers)
    )
    return Step(step.epoch, step.step, step.rows, *groups)
