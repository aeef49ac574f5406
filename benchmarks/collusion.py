"""What the passive parties of the demo's table read of the labels, each alone and together.

Each setting is the job of `examples/adult.yaml` with another protection of the labels, or the demo's own job, whose
partners are sent nothing that depends on a label; seeds 1, 2, ... for the job.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.adult import ACTIVE, adult_job, audited
from cutlayer.config import Job, validated
from cutlayer.demo import demo_job
from cutlayer.results.audit import RunAudit
from cutlayer.results.leaks import worst_of

LABEL_FREE = "label_free, sketches"
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "undefended": {},
    "marvell 0.16": {"marvell": {"sum_kl": 0.16, "form": "shared"}},
    "marvell 4": {"marvell": {"sum_kl": 4.0, "form": "shared"}},
    "iso_noise 1": {"iso_noise": {"ratio": 1.0, "form": "paper"}},
    "iso_noise 5": {"iso_noise": {"ratio": 5.0, "form": "paper"}},
    "label_dp 1": {"label_dp": {"eps": 1.0}},
    LABEL_FREE: {},
}
"""Protection of the labels by setting."""


@dataclass(frozen=True)
class MessageLeak:
    """What is read of one kind of message of one attacker; each value is the mean over the seeds.

    Attributes:
        setting: Name of the setting.
        attacker: The passive party, or all of them together.
        message: Kind of message.
        leak: Leak to the strongest attack on the whole run, which all attackers run.
        attack: Name of that attack, with the first seed.
        chance: Largest leak of the attacker's attacks where the labels are permuted.
        own_columns: Leak of the attacker's own columns.
        spread: Standard deviation of `leak` over the seeds; 0 for one seed.
    """

    setting: str
    attacker: str
    message: str
    leak: float
    attack: str
    chance: float
    own_columns: float
    spread: float


@dataclass(frozen=True)
class Collusion:
    """All settings, attackers and messages."""

    name: str
    seeds: int
    leaks: tuple[MessageLeak, ...]


def collusion(seeds: int) -> Collusion:
    """Train and audit every setting with the seeds 1, 2, ..."""
    leaks: list[MessageLeak] = []
    for setting in SETTINGS:
        runs = [_read(audited(job_of(setting, seed), f"{setting} {seed}")) for seed in range(1, seeds + 1)]
        for attacker, message in runs[0]:
            found = [run[attacker, message] for run in runs]
            leak, chance, own = (
                round(statistics.mean(values), 3) for values in zip(*(f[1:] for f in found), strict=True)
            )
            spread = round(statistics.stdev(each[1] for each in found), 4) if seeds > 1 else 0.0
            leaks.append(MessageLeak(setting, attacker, message, leak, found[0][0], chance, own, spread))
    return Collusion("collusion", seeds, tuple(leaks))


def _read(audit: RunAudit) -> dict[tuple[str, str], tuple[str, float, float, float]]:
    """By attacker and message: the strongest attack on the whole run, its leak, chance and own columns."""
    read: dict[tuple[str, str], tuple[str, float, float, float]] = {}
    for baseline in audit.baselines:
        own = [leak for leak in audit.leaks if leak.party == baseline.party and leak.whole_run]
        for message in dict.fromkeys(leak.message for leak in own):
            worst = worst_of(leak for leak in own if leak.message == message)
            if worst is not None:
                floors = baseline.chance or 0.5, baseline.own_columns or 0.5
                read[baseline.attacker, message] = (worst.attack, worst.leak, *floors)
    return read


def job_of(setting: str, seed: int) -> Job:
    """The job of a setting."""
    audit = {"layers": False}
    if setting != LABEL_FREE:
        return adult_job(SETTINGS[setting], audit, seed=seed)
    raw: dict[str, Any] = demo_job().model_dump()
    for name, party in raw["parties"].items():
        party["audit"] = audit if name == ACTIVE else {}
    raw["train"] |= {"seed": seed, "threads": 1}
    return validated(Job, raw | {"compare": [], "alternatives": {}}, "the demo's job")
