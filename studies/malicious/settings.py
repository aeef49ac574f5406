"""Data sets, protections and attackers of the study of malicious parties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from cutlayer.config import Job, validated
from studies.datasets import ADULT_TABLE, example_job
from studies.image_halves import ACTIVE, ImageHalves

ADULT, MNIST, CIFAR = "Adult", "MNIST halves", "CIFAR-10 halves"
ROWS, EPOCHS, BATCH, WIDTH = 3_000, 5, 128, 16
HALVES: Mapping[str, ImageHalves] = {
    MNIST: ImageHalves(MNIST, "mnist/mnist.npz", {"kind": "mlp", "hidden": [64, 32]}, EPOCHS, BATCH, rows=2_000),
    CIFAR: ImageHalves(CIFAR, "cifar10/cifar10_subset.npz", {"kind": "lenet5"}, 4, BATCH, rows=1_500),
}
READERS = ("norm", "direction", "spectral", "joint_spectral", "off_norm", "mixture")
WHOLE_READERS = ("mean_gradient", "sign_changes")
"""Attacks on the messages of all epochs, which colluding partners make together."""
NOISY = frozenset({"marvell", "iso_noise"})
OF_LABELS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "max_norm": {"max_norm": {}},
    "marvell 0.16": {"marvell": {"sum_kl": 0.16}},
    "iso_noise 12": {"iso_noise": {"ratio": 12}},
    "label_dp 1": {"label_dp": {"eps": 1.0}},
}
OF_FEATURES: Mapping[str, Mapping[str, Any]] = {
    "dp_embedding 8": {"dp_embedding": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}},
    "nopeek 1": {"nopeek": {"alpha": 1.0}},
}
OF_RELEASES: Mapping[str, Mapping[str, Any]] = {
    "once": {},
    "once, dp_embedding 8": {"dp_embedding": {**OF_FEATURES["dp_embedding 8"]["dp_embedding"], "rescale": "sphere"}},
}
"""Protections of a single release, after which no gradient comes back: nothing is hijacked."""
COVERED, ADAPTED, BLURRED, FEW = "covered hijack", "hidden hijack", "blurred hijack", "hijack of 24 rows"
URVFL, LINEAR_URVFL = "URVFL", "linear URVFL"
COVERS: Mapping[str, Mapping[str, float]] = {
    COVERED: {ADULT: 0.4, MNIST: 0.65},
    ADAPTED: {ADULT: 0.7, MNIST: 0.85, CIFAR: 0.65},
    BLURRED: {ADULT: 0.4, MNIST: 0.52, CIFAR: 0.52},
}
"""Part of each false gradient's energy that has the direction of the row's honest one. Of `hidden hijack` it is so much
that hardly a row has more of its energy off the directions than the guard allows; one that also bends honest gradients
needs less."""
HIJACKS: Mapping[str, Mapping[str, Any]] = {
    "hijack": {"attack": "hijack"},
    "hijack 0.25": {"attack": "hijack", "options": {"strength": 0.25}},
    COVERED: {"attack": "hijack", "options": {"strength": 0.5}},
    ADAPTED: {"attack": "hijack", "options": {"strength": 0.5}},
    BLURRED: {"attack": "blurred_hijack", "options": {"strength": 0.5}},
    FEW: {"attack": "hijack", "rows": 24},
    "chosen labels": {"attack": "chosen_labels"},
    URVFL: {"attack": "urvfl"},
    LINEAR_URVFL: {"attack": "urvfl", "options": {"linear": True}},
}
PROBES: Mapping[str, Mapping[str, Any]] = {
    "probing": {"attack": "probing"},
    "probing 0.6": {"attack": "probing", "options": {"spread": 0.6}},
    "replay": {"attack": "replay"},
    "scaling": {"attack": "scaling"},
    "scaling 1.5": {"attack": "scaling", "options": {"spread": 1.5}},
    "swap": {"attack": "swap"},
}
BACKDOORS: Mapping[str, Mapping[str, Any]] = {
    "backdoor": {"attack": "backdoor"},
    "backdoor, noisy": {"attack": "backdoor", "options": {"jitter": 0.5}},
    "backdoor, early": {"attack": "early_backdoor"},
}
DEFENDED_SEEDS = 14
"""Most seeds of the settings with protected columns; where ten settled their claims, no more were run."""
PROBED_SEEDS: Mapping[str, int] = dict.fromkeys(OF_LABELS, 5) | {"iso_noise 12": 9}
"""Seeds of the probes by the label owner's protection, as many as settle what they gain."""
FRESH, FIRST_FRESH, TIMES_FRESH = "fresh", 181, 5
"""Honest trainings with other seeds, of which alarms alone are read: their first one, and their number over that of the
others. The guards' limits were set after a look at smaller ones."""
FEW_SEEDS = {FEW: DEFENDED_SEEDS, BLURRED: DEFENDED_SEEDS, "chosen labels": 5, URVFL: 5, LINEAR_URVFL: 5}


@dataclass(frozen=True)
class Setting:
    """One training of a data set.

    Attributes:
        name: Name of the setting.
        reads: What is read afterwards: `features`, `labels`, `predictions`, or `alarms` alone.
        labels: Protection of the label owner.
        features: Protection of the partners, of `OF_FEATURES` or `OF_RELEASES`; empty for none.
        attack: What the attacker does; empty in an honest training.
        options: Its options.
        rows: Number of rows of each partner whose gradients a hijacker falsifies; all that it knows if 0.
    """

    name: str
    reads: str
    labels: str = "none"
    features: str = ""
    attack: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0


def settings_of(group: str, seed: int) -> list[Setting]:
    """The trainings of a data set with one seed; honest ones first."""
    made = [Setting("honest", "features")]
    for name, rest in HIJACKS.items():
        options = rest.get("options", {}) | ({"cover": COVERS[name].get(group)} if name in COVERS else {})
        if seed <= FEW_SEEDS.get(name, seed) and options.get("cover", 0) is not None:
            made.append(Setting(name, "features", **{**rest, "options": options}))
    if seed <= DEFENDED_SEEDS:
        made += [Setting(f"honest; {name}", "features", features=name) for name in (*OF_FEATURES, *OF_RELEASES)]
        made += [Setting(f"hijack; {name}", "features", features=name, attack="hijack") for name in OF_FEATURES]
    if group != CIFAR:
        made.append(Setting("honest, backdoor", "predictions"))
        made += [Setting(name, "predictions", **rest) for name, rest in BACKDOORS.items()]
    if group == ADULT:
        for defence in OF_LABELS:
            made.append(Setting(f"honest, probed; {defence}", "labels", defence))
            if seed <= PROBED_SEEDS[defence]:
                made += [Setting(f"{name}; {defence}", "labels", defence, **rest) for name, rest in PROBES.items()]
    return made


def fresh_settings(group: str) -> list[Setting]:
    """Honest trainings of a data set, without a protection and with each that leaves a guard something to judge."""
    features = {FRESH: "", **{f"{FRESH}; {name}": name for name in OF_FEATURES}}
    made = [Setting(name, "alarms", features=own) for name, own in features.items()]
    if group == ADULT:
        made += [Setting(f"{FRESH}; {name}", "alarms", name) for name in OF_LABELS if OF_LABELS[name]]
    return made


def job_of(group: str, setting: Setting, seed: int) -> Job:
    """The job of a training: guards at all parties that can have one, which go on after an alarm."""
    labels, features = OF_LABELS[setting.labels], {**OF_FEATURES, **OF_RELEASES, "": {}}[setting.features]
    once = setting.features in OF_RELEASES
    if group == ADULT:
        raw: dict[str, Any] = example_job().model_dump()
        raw["train"] |= {"threads": 1, "epochs": EPOCHS, "batch_size": BATCH, "seed": seed}
        raw["model"]["bottom"]["hidden"] = [64, WIDTH]
    else:
        raw = HALVES[group].job(seed, {}).model_dump()
    raw["train"] |= {"keep": "last", "early_stop": None, "split": {"test": 0.2, "validation": 0.0}}
    classes = 2 if group == ADULT else 10
    for party in raw["parties"].values():
        reads = setting.reads == ("labels" if party["role"] == "active" else "features")
        attacks = READERS if reads and party["role"] == "active" else ()
        party["audit"] = {"attacks": attacks, "layers": False, "rows": 10**6, "every": "epoch" if reads else "never"}
        party["privacy"] = dict(labels if party["role"] == "active" else features)
        noisy = bool(features) if party["role"] == "active" else bool(labels.keys() & NOISY)
        if once:
            party["fit"] = {"kind": "sketch"} if party["role"] == "passive" else None
        elif party["role"] == "active" or "dp_embedding" not in features:
            party["guard"] = {"on_alarm": "warn", "classes": classes, "protected": noisy}
    active = _active(group)
    if setting.reads != "alarms":
        raw["parties"][active]["audit"]["every"] = "epoch"
    if once:
        raw["train"]["release"] = "once"
        passives = {name: {"kind": "linear", "width": WIDTH} for name in raw["parties"] if name != active}
        raw["model"]["bottom"] = {active: raw["model"]["bottom"], **passives}
    return validated(Job, raw | {"compare": []}, "study")


def _active(group: str) -> str:
    return "bank" if group == ADULT else ACTIVE


@cache
def tables_of(group: str, data: Path) -> Mapping[str, pa.Table]:
    """Each party's table; of Adult rows drawn once."""
    if group in HALVES:
        return HALVES[group].tables(data)
    whole = parquet.read_table(ADULT_TABLE)
    chosen = np.sort(np.random.default_rng(0).permutation(len(whole))[:ROWS])
    return dict.fromkeys(example_job().parties, whole.take(chosen))
