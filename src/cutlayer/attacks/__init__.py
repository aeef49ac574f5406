"""The registry of attacks: one file each, one line in `catalogue`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from cutlayer.attacks import catalogue
from cutlayer.attacks.base import Attack
from cutlayer.attacks.completion.base import CompletionAttack
from cutlayer.attacks.feature.base import FeatureAttack
from cutlayer.attacks.label.base import LabelAttack
from cutlayer.attacks.label.history import HistoryAttack
from cutlayer.errors import ConfigError
from cutlayer.plugins import Registry

if TYPE_CHECKING:
    from cutlayer.config import Job
    from cutlayer.config.case import Case

REGISTRY: Registry[type[Attack[Any, Any]]] = Registry(
    {kind.name: kind for kind in vars(catalogue).values() if isinstance(kind, type) and issubclass(kind, Attack)},
    "cutlayer.attacks",
    Attack,
)
"""All attacks by their name in `audit.attacks`."""


Catalogue = Literal["quick", "auto", "full"]
"""Attacks by default: those that are cheap, without the slowest of them, or those that take longer as well."""
CATALOGUES: tuple[Catalogue, ...] = ("quick", "auto", "full")


@dataclass(frozen=True)
class Resolved:
    """The attacks that one party's audit runs, by family."""

    labels: tuple[LabelAttack, ...]
    histories: tuple[HistoryAttack, ...]
    completions: tuple[CompletionAttack, ...]
    features: tuple[FeatureAttack[Any], ...]


def resolve(
    names: Catalogue | Sequence[str], task_kind: str, role: Literal["active", "passive"] = "active"
) -> Resolved:
    """The attacks that a party's audit runs. The active party audits its labels, a passive party its features.

    Args:
        names: Registered names, each at most once. `auto` takes all live attacks that are defined for the task, `quick`
            the quick ones of them, and `full` the thorough ones as well.
        task_kind: `binary`, `multiclass` or `regression`.
        role: Role of the party whose audit names them.

    Raises:
        ConfigError: An unknown name, a name given twice, or an attack that looks for the other role's secret.
        NotApplicable: A named attack is not defined for the task.

    >>> resolve(["spectrl"], "binary")
    Traceback (most recent call last):
    ...
    cutlayer.errors.ConfigError: audit.attacks: unknown attack 'spectrl'; did you mean 'spectral'?
    >>> resolve(["norm"], "binary", "passive")
    Traceback (most recent call last):
    ...
    cutlayer.errors.ConfigError: audit.attacks: norm looks for labels; name it in the active party's audit
    """
    secret = "labels" if role == "active" else "features"
    if names in CATALOGUES:
        fit = [attack for attack in REGISTRY.values() if task_kind in attack.tasks and _secret_of(attack) == secret]
        live = [attack for attack in fit if attack.in_auto(task_kind) or (names == "full" and attack.thorough)]
        kinds = [attack for attack in live if attack.quick or names != "quick"]
    else:
        kinds = _attacks_named(names, task_kind, secret)
    made = [kind() for kind in kinds]
    return Resolved(
        tuple(attack for attack in made if isinstance(attack, LabelAttack)),
        tuple(attack for attack in made if isinstance(attack, HistoryAttack)),
        tuple(attack for attack in made if isinstance(attack, CompletionAttack)),
        tuple(attack for attack in made if isinstance(attack, FeatureAttack)),
    )


def attacks_of(job: Job, party: str) -> Resolved:
    """The attacks of a party's audit; an error names the party's key, so that its line is found."""
    own = job.parties[party]
    try:
        kind = job.attacked_kind if own.role == "active" else job.task
        return resolve(own.audit.catalogue, kind, own.role)
    except ConfigError as failure:
        raise ConfigError(str(failure).replace("audit.attacks", f"parties.{party}.audit.attacks", 1)) from None


def column_attacks(task_kind: str, *, once: bool, graded: bool = False) -> tuple[str, ...]:
    """Names of the attacks that measure what a protection of columns hides.

    Args:
        task_kind: `binary`, `multiclass` or `regression`.
        once: Whether each row is released once: then those of the default catalogue as well, which it attacks.
        graded: Whether grades are released, which the default catalogue attacks in its own way.
    """
    if graded:
        return tuple(name for name, attack in REGISTRY.items() if attack.graded and task_kind in attack.tasks)
    default = resolve("auto", task_kind, "passive").features if once else ()
    return tuple(dict.fromkeys(["inversion", *(attack.name for attack in default)]))


def gate_faults(case: Case) -> Iterator[str]:
    """The active party's gates are on what its attacks measure."""
    job, where = case.job, f"parties.{case.job.active}.audit.fail_above"
    attacks = attacks_of(job, job.active)
    if job.parties[job.active].audit.fail_above.limits and not (attacks.labels or attacks.histories):
        remedy = "name such an attack in audit.attacks, or leave the gate out"
        yield f"expected an attack that measures what {where} limits, got none for task {job.task}; {remedy}"


def skipped_attacks(names: Catalogue | Sequence[str], task_kind: str) -> tuple[str, ...]:
    """Attacks on labels of the default catalogue for a task that an audit does not run.

    >>> skipped_attacks("auto", "binary"), skipped_attacks("quick", "binary")
    ((), ('bilinear', 'aligned_match'))
    """
    if names in ("auto", "full"):
        return ()
    auto = [attack for attack in REGISTRY.values() if attack.in_auto(task_kind) and _secret_of(attack) == "labels"]
    run = [attack.name for attack in auto if attack.quick] if names == "quick" else names
    return tuple(attack.name for attack in auto if attack.name not in run)


@cache
def _secret_of(attack: type[Attack[Any, Any]]) -> Literal["labels", "features"]:
    """Target of a family of attacks: `labels` of the active party, or `features` of a passive party.

    Raises:
        ConfigError: The attack is of no family that an audit runs.
    """
    if issubclass(attack, LabelAttack | HistoryAttack | CompletionAttack):
        return "labels"
    if issubclass(attack, FeatureAttack):
        return "features"
    wanted = f"audit.attacks: {attack.name} of a family that an audit runs"
    raise ConfigError.expected(wanted, "none of LabelAttack, HistoryAttack, CompletionAttack, FeatureAttack")


def _attacks_named(names: Sequence[str], task_kind: str, secret: str) -> list[type[Attack[Any, Any]]]:
    from cutlayer.config import near_miss

    if isinstance(names, str):
        raise ConfigError.expected("audit.attacks: auto, full or a list of names", repr(names), f"write [{names}]")
    for index, name in enumerate(names):
        unknown = f"audit.attacks: unknown attack {name!r}{near_miss(name, list(REGISTRY))}"
        REGISTRY.look_up(name, "audit.attacks", unknown)
        if name in names[:index]:
            raise ConfigError(f"audit.attacks: {name} is named twice; keep one")
        REGISTRY[name].check_task(task_kind)
        if (looks_for := _secret_of(REGISTRY[name])) != secret:
            owner = "the active" if looks_for == "labels" else "a passive"
            raise ConfigError(f"audit.attacks: {name} looks for {looks_for}; name it in {owner} party's audit")
    return [REGISTRY[name] for name in names]
