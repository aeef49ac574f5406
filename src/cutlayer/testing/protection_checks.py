"""The checks of a protection. Each takes the class, and how to try it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from cutlayer.accounting import NoFormalGuarantee, ReleasePlan
from cutlayer.accounting.events import Event
from cutlayer.attacks import REGISTRY as ATTACKS
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import Target
from cutlayer.audit.known_labels import strongest_leak
from cutlayer.audit.leak import leak_of
from cutlayer.channel.transcript import Step
from cutlayer.config import FrozenModel, validated
from cutlayer.errors import ConfigError, NotApplicable
from cutlayer.problem.task import Task
from cutlayer.protections.contract.base import Asset, Protection, Side
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.hooks import HOOKS
from cutlayer.testing import toy
from cutlayer.testing.attack_checks import TASKS, leak_on, scores_of, undefended
from cutlayer.testing.faults import expect, refuses, states_its_paper

ProtectionClass = type[Protection[Any]]
Goal = tuple[str, Target, float]
"""An attack of Cutlayer, the kind of message that it reads, and the leak that it must stay below."""


@dataclass(frozen=True, eq=False)
class ProtectionCase:
    """How to try a protection.

    Attributes:
        options: Settings with which it acts on the toy.
        lowers: Attacks that it defends against.
        adaptive: Attacks on the whole run, chosen after reading the defence: the strongest that is known on the toy.
            Limits near 1 say that the defence hides the label from the attacks above alone.
        refused: Settings that must be an error; an unknown key always is one.
        loses: Maximum loss of accuracy when a party leaves, of a defence against departures, which lowers no attack.
    """

    options: Mapping[str, Any]
    lowers: tuple[Goal, ...] = ()
    adaptive: tuple[Goal, ...] = ()
    refused: tuple[Mapping[str, Any], ...] = ()
    loses: float | None = None


def declares_what_it_is(protection: ProtectionClass, case: ProtectionCase) -> None:
    """Name, side, asset, paper, rank, settings to begin with, and a docstring that says what is guaranteed."""
    states_its_paper(protection)
    config = getattr(protection, "config", None)
    frozen = isinstance(config, type) and issubclass(config, FrozenModel) and bool(config.model_config["frozen"])
    expect(frozen, "a `config` that is a frozen FrozenModel", config)
    start = getattr(protection, "start", None)
    expect(type(start) is config, "`start`, settings of the class in `config`", start)
    side = getattr(protection, "side", None)
    expect(isinstance(side, Side), "a `side`: derive from LabelProtection or FeatureProtection", side)
    protects = getattr(protection, "protects", None)
    expect(isinstance(protects, Asset), "an asset in `protects`", protects)
    lowered = {(str(target), attack) for attack, target, _ in case.lowers}
    untried = {*protection.published_against} - lowered
    expect(not untried, "every attack of `published_against` among those that it lowers", sorted(untried))
    rank = getattr(protection, "rank", None)
    expect(rank in (10, 20, 30), "a `rank` of 10, 20 or 30", rank)
    expect("Guarantee:" in (protection.__doc__ or ""), "a paragraph `Guarantee:` in the docstring", "none")
    expect(protection.acts_at(*HOOKS), f"one of {', '.join(HOOKS)} overridden", "none")


def refuses_bad_options(protection: ProtectionClass, case: ProtectionCase) -> None:
    """Unknown keys and options out of range are a `ConfigError` that names the key."""
    for options in ({**case.options, "no_such_option": 1}, *case.refused):
        with refuses(ConfigError, f"privacy.{protection.name}", f"the settings {dict(options)}"):
            build(protection, options)


def refuses_other_tasks(protection: ProtectionClass, case: ProtectionCase) -> None:
    """A task it is not defined for is `NotApplicable` before anything runs."""
    for kind in TASKS:
        if kind in protection.tasks:
            continue
        with refuses(NotApplicable, protection.name, f"a {kind} task, which is not among its `tasks`"):
            build(protection, case.options).setup(toy.context(Task(kind, ()), toy.ACTIVE))


def lowers_its_attacks(protection: ProtectionClass, case: ProtectionCase) -> None:
    """The attacks it is for succeed on the undefended toy and not on the defended one."""
    expect(bool(case.lowers) or case.loses is not None, "at least one attack that it lowers", "none")
    run = defended(protection, case)
    for name, target, limit in case.lowers:
        expect(name in ATTACKS, f"an attack of Cutlayer on the {target}", name, "see `cutlayer list attacks`")
        attack: Any = ATTACKS[name]
        before = leak_of(scores_of(attack, undefended(), target), undefended().truth).pooled_auc
        after = leak_on(attack(), run, target)
        _is_lowered(protection, name, target, limit, before, max(after, 1 - after))


def withstands_adaptive_attacks(protection: ProtectionClass, case: ProtectionCase) -> None:
    """Attacks chosen after reading the defence, with what a party keeps of a run, stay below what is stated of them."""
    for name, target, limit in case.adaptive:
        before = _undefended_adaptive_leak(name, target)
        after = _adaptive_leak(name, defended(protection, case), target)
        _is_lowered(protection, name, target, limit, before, after)


def _is_lowered(
    protection: ProtectionClass, name: str, target: Target, limit: float, before: float, after: float
) -> None:
    expect(before > 0.9, f"an attack that reads the undefended {target}", f"{name}, which reads {before:.3f}")
    got = f"{name} on {target} reads {after:.3f}, undefended {before:.3f}"
    expect(after < limit, f"a leak below {limit} under {protection.name}", got)


def keeps_shapes_and_types(protection: ProtectionClass, case: ProtectionCase) -> None:
    """Messages look as without it, in a binary and in a multi-class task."""
    for kind, classes in (("binary", 2), ("multiclass", 3)):
        if kind not in protection.tasks:
            continue
        runs = undefended(classes=classes), defended(protection, case, classes)
        for first, second in zip(*(run.steps for run in runs), strict=True):
            for message in ("embeddings", "gradients"):
                a, b = getattr(first, message)[toy.PASSIVE], getattr(second, message)[toy.PASSIVE]
                same = (a.shape, a.dtype) == (b.shape, b.dtype)
                expect(same, f"{message} of {tuple(a.shape)} {a.dtype}", f"{tuple(b.shape)} {b.dtype}")
                expect(bool(b.isfinite().all()), f"finite {message} in a {kind} task", "NaN or infinity")


def proves_what_it_did(protection: ProtectionClass, case: ProtectionCase) -> None:
    """It covered all that was sent, changed some of it, and gives finite metrics."""
    (evidence,) = defended(protection, case).evidence
    expect(evidence.protection == protection.name, f"evidence of {protection.name}", evidence.protection)
    counts = f"{evidence.covered} of {evidence.sent}"
    expect(evidence.covered == evidence.sent > 0, "all that was sent covered", counts)
    expect(0 < evidence.changed <= evidence.covered, "some of what was sent changed", evidence.changed)
    finite = bool(evidence.metrics) and all(math.isfinite(value) for value in evidence.metrics.values())
    expect(finite, "finite metrics: name `counters`, and `count` in the hook", dict(evidence.metrics))


def repeats_itself(protection: ProtectionClass, case: ProtectionCase) -> None:
    """The same keys give the same messages to the last bit."""
    again = toy.train(chains(protection, case))
    _same_messages(defended(protection, case).steps, again.steps, "a repetition with the same keys")


def survives_a_resume(protection: ProtectionClass, case: ProtectionCase) -> None:
    """A run resumed from `state_dict` sends the same messages and ends with the same evidence and state."""
    whole = defended(protection, case)
    resumed = toy.train(chains(protection, case), interrupt_at=2)
    _same_messages(whole.steps, resumed.steps, "a resume")
    expect(whole.evidence == resumed.evidence, f"after a resume {whole.evidence}", resumed.evidence)
    run = toy.Run(chains(protection, case))
    run.step(0)
    before = [chain.state_dict()["protections"] for chain in (run.active, run.passive)]
    run.interrupt()
    after = [chain.state_dict()["protections"] for chain in (run.active, run.passive)]
    expect(_plain(before) == _plain(after), "the state of `state_dict` after `load_state_dict`", "another")


def has_an_event(protection: ProtectionClass, case: ProtectionCase) -> None:
    """What it will release is known after `setup`, before the first message."""
    built = build(protection, case.options)
    party = toy.ACTIVE if protection.side is Side.ACTIVE else toy.PASSIVE
    built.setup(toy.context(Task("binary", ("0", "1")) if party == toy.ACTIVE else None, party))
    event = built.event(ReleasePlan(training=2))
    expect(isinstance(event, Event), "an event of cutlayer.accounting", event)
    none = "Guarantee: none" in (protection.__doc__ or "")
    agree = isinstance(event, NoFormalGuarantee) == none
    expect(agree, "docstring and event to agree", f"{type(event).__name__}: they disagree on a guarantee")
    neighbours = none or "Neighbours" in (protection.__doc__ or "")
    expect(neighbours, "what neighbours differ in, after `Guarantee:` of the docstring", "nothing")


PROTECTION_CHECKS: tuple[Callable[[ProtectionClass, ProtectionCase], None], ...] = (
    declares_what_it_is,
    refuses_bad_options,
    refuses_other_tasks,
    lowers_its_attacks,
    withstands_adaptive_attacks,
    keeps_shapes_and_types,
    proves_what_it_did,
    repeats_itself,
    survives_a_resume,
    has_an_event,
)


def build(protection: ProtectionClass, options: Any) -> Protection[Any]:
    """A protection from its settings in a job."""
    return protection(validated(protection.config, options, f"privacy.{protection.name}"))


def chains(protection: ProtectionClass, case: ProtectionCase) -> Callable[[str], Chain]:
    """A fresh chain for each party; the protection is in that of its own side."""
    side_of = {toy.ACTIVE: Side.ACTIVE, toy.PASSIVE: Side.PASSIVE}

    def chain(party: str) -> Chain:
        return Chain(party, [build(protection, case.options)] if side_of[party] is protection.side else [])

    return chain


def defended(protection: ProtectionClass, case: ProtectionCase, classes: int = 2) -> toy.Toy:
    """A run under the protection, trained once: most checks read it."""
    key = protection, case, classes
    if key not in _DEFENDED:
        _DEFENDED[key] = toy.train(chains(protection, case), classes=classes)
    return _DEFENDED[key]


_DEFENDED: dict[tuple[ProtectionClass, ProtectionCase, int], toy.Toy] = {}


def _adaptive_leak(name: str, run: toy.Toy, target: Target) -> float:
    known = {int(row): int(run.truth[row]) for row in range(0, toy.ROWS, toy.ROWS // 40)}
    attack: Any = ATTACKS[name]()
    return strongest_leak(
        attack(run.history().on(target), Knowledge(float(run.truth.double().mean()), known)), run.truth
    )


@cache
def _undefended_adaptive_leak(name: str, target: Target) -> float:
    """What the attack reads of the undefended toy, which is the same for every defence."""
    return _adaptive_leak(name, undefended(), target)


def _same_messages(first: list[Step], second: list[Step], when: str) -> None:
    for left, right in zip(first, second, strict=True):
        for kind in ("embeddings", "gradients"):
            same = torch.equal(getattr(left, kind)[toy.PASSIVE], getattr(right, kind)[toy.PASSIVE])
            remedy = "draw by self.context.noise, and keep what changes in `state_dict`"
            expect(same, f"the same {kind} in {when}", f"others in step {left.step}", remedy)


def _plain(state: Any) -> str:
    """A state as text; tensors as lists, anything else that JSON cannot hold is an error."""
    return json.dumps(state, sort_keys=True, default=Tensor.tolist)
