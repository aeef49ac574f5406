"""What the default audit reads under defences that have no benchmark of their own, by task, on Adult.

Each setting is a job on the demo's table, 6 epochs, seeds 1, 2, ... for the job. `before` is the strongest attack
without `co_training` and without the variant `axis` of `similarity`, and `now` the strongest of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.adult import adult_job, measured
from benchmarks.averaged_noise import BATCH
from benchmarks.party_leaks import Values, leaks_of, means, over_seeds
from cutlayer.config import Job, validated
from cutlayer.results.leaks import LeakResult

EPOCHS = 6
NEW_ATTACK, NEW_VARIANT = "co_training", "axis"
DRAWN, TAUGHT = "drawn_labels", "self_training"


@dataclass(frozen=True)
class Setting:
    """A job.

    Attributes:
        label: Label that the bank holds.
        task: Kind of task.
        privacy: Protections.
        changes: Keys of the job's sections that differ from the demo's, by section.
        passive: Protections of the passive parties.
    """

    label: str
    task: str
    privacy: Mapping[str, Any]
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    passive: Mapping[str, Any] = field(default_factory=dict)


def _income(
    privacy: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]] | None = None, **passive: Mapping[str, Any]
) -> Setting:
    return Setting("income", "binary", privacy, changes or {}, passive)


def _top(kind: str) -> Mapping[str, Mapping[str, Any]]:
    return {"model": {"top": {"kind": kind}}}


def _age(privacy: Mapping[str, Any]) -> Setting:
    return Setting("age", "regression", privacy)


def _education(privacy: Mapping[str, Any]) -> Setting:
    return Setting("education", "multiclass", privacy)


_MAX_NORM: Mapping[str, Any] = {"max_norm": {"form": "once"}}
_DRAWN: Mapping[str, Any] = {"label_dp": {"eps": 1.0}}
SETTINGS: Mapping[str, Setting] = {
    "income, max_norm": _income(_MAX_NORM),
    "education, max_norm": _education(_MAX_NORM),
    "income, max_norm, top model laser": _income(_MAX_NORM, _top("laser")),
    "income, max_norm, paper": _income({"max_norm": {"form": "paper"}}),
    "income, max_norm + discrete_sgd 1": _income({**_MAX_NORM, "discrete_sgd": {"levels": 1}}),
    "income, ppdl 0.75, scale 0.0001": _income({"ppdl": {"theta": 0.75, "scale": 0.0001}}),
    "income, dcor 0.03 whitened + label_dp 1": _income({"dcor": {"alpha": 0.03, "form": "whitened"}, **_DRAWN}),
    "income, dimip 0.3 + label_dp 1": _income({"dimip": {"lam": 0.3}, **_DRAWN}),
    "income, label_dp 1, top model multi_head": _income(_DRAWN, _top("multi_head")),
    "age, max_norm": _age(_MAX_NORM),
    "age, discrete_sgd 1": _age({"discrete_sgd": {"levels": 1}}),
    "education, discrete_sgd 1": _education({"discrete_sgd": {"levels": 1}}),
    "education, label_dp 3": _education({"label_dp": {"eps": 3.0}}),
    "education, label_dp 1": _education(_DRAWN),
    "income, max_norm, past": _income({"max_norm": {"form": "past"}}),
    "education, max_norm, past": _education({"max_norm": {"form": "past"}}),
    "income, undefended": _income({}),
    "income, compress bfloat16": _income({}, {"channel": {"compress": "bfloat16"}}),
    "income, compress int8": _income({}, {"channel": {"compress": "int8"}}),
    "income, cut a layer earlier": _income(
        {},
        {"model": {"bottom": {"kind": "mlp", "hidden": [64]}, "top": {"kind": "mlp", "hidden": [32], "towers": [32]}}},
    ),
    "income, nopeek 1": _income({}, nopeek={"alpha": 1.0}),
    "income, dp_bottom, eps 4": _income({}, dp_bottom={"clip": 1.0, "epsilon": 4.0, "delta": 1e-5}),
    "income, party_dropout 0.5": _income({"party_dropout": {"rate": 0.5}}),
    "income, label_dp 1": _income(_DRAWN),
}


@dataclass(frozen=True)
class ReadParty:
    """What is read of one party; each value is the mean over the seeds.

    Attributes:
        setting: Name of the setting.
        party: Name of the passive party.
        unlabelled: Leak of its gradients to the strongest other attack that knows no row's label, or one of each class.
        before: Leak of its gradients to the strongest other attack, with up to 200 known labels.
        now: Leak of its gradients to the strongest attack.
        added: Leak to `co_training`, or to `similarity` by the axis of a class; 0.5 where neither is defined.
        others: Leak to the strongest attack but `drawn_labels` and `self_training`.
        drawn: Leak to `drawn_labels`; 0.5 where it is not defined, or another attack reads nearly all.
        taught: Leak to `self_training`, likewise.
        embedding: Leak to the strongest attack on embeddings.
        own_columns: Leak of the party's own columns.
        chance: What the whole catalogue reads of permuted labels.
        utility: Headline metric of the model on test rows.
    """

    setting: str
    party: str
    unlabelled: float
    before: float
    now: float
    added: float
    others: float
    drawn: float
    taught: float
    embedding: float
    own_columns: float
    chance: float
    utility: float


@dataclass(frozen=True)
class OtherDefences:
    """All settings and parties."""

    name: str
    seeds: int
    parties: tuple[ReadParty, ...]


def other_defences(seeds: int) -> OtherDefences:
    """Train and audit every setting with the seeds 1, 2, ..."""
    parties = [ReadParty(name, party, *means(columns)) for name, party, columns in over_seeds(SETTINGS, _read, seeds)]
    return OtherDefences("other_defences", seeds, tuple(parties))


def _read(name: str, seed: int) -> Values:
    """By passive party: the values of `ReadParty` in their order."""
    job = job_of(SETTINGS[name], seed)
    audit, utility = measured(job, f"{name} {seed}")
    read = {}
    for party in job.passives:
        leaks = leaks_of(audit, party)
        unlabelled = [leak for leak in leaks.gradients if not any("up to" in need.words for need in leak.knowledge)]
        read[party] = (
            max((_before(leak) for leak in unlabelled), default=0.5),
            max(map(_before, leaks.gradients)),
            leaks.gradient(),
            max(map(_added, leaks.gradients)),
            leaks.gradient(without=(DRAWN, TAUGHT)),
            leaks.gradient(alone=(DRAWN,)),
            leaks.gradient(alone=(TAUGHT,)),
            leaks.embedding,
            leaks.own_columns,
            leaks.chance,
            utility,
        )
    return read


def job_of(setting: Setting, seed: int) -> Job:
    """The job of a setting: the demo's parties, with the label at the bank and at nobody else."""
    added = {"employer": ("income",)} if setting.label != "income" else {}
    train = {"seed": seed, "epochs": EPOCHS, "batch_size": BATCH, "keep": "last"}
    audit = {"layers": False}
    job = adult_job(setting.privacy, audit, label=setting.label, task=setting.task, added=added, **train)
    raw = job.model_dump()
    for section, keys in setting.changes.items():
        raw[section] |= keys
    for name in job.passives:
        raw["parties"][name]["privacy"] = dict(setting.passive)
    return validated(Job, raw, "examples/adult.yaml")


def _before(leak: LeakResult) -> float:
    """The leak without what is new."""
    if leak.attack == NEW_ATTACK:
        return 0.5
    if leak.variant != NEW_VARIANT:
        return leak.leak
    return max(value or 0.5 for variant, value in leak.other_aucs.items() if variant != NEW_VARIANT)


def _added(leak: LeakResult) -> float:
    """The leak by what is new; 0.5 of another attack."""
    return leak.leak if leak.attack == NEW_ATTACK else leak.other_aucs.get(NEW_VARIANT) or 0.5
