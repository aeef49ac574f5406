"""The defences that are audited, and what other code read of the same jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlayer.attacks import resolve
from cutlayer.attacks.base import Attack
from cutlayer.config import Job, validated
from studies.datasets import adult_example, bank, criteo, default_credit, with_more_steps
from studies.results import UNDEFENDED

_AUTO: tuple[Attack[Any, Any], ...] = (*resolve("auto", "binary").labels, *resolve("auto", "binary").histories)
ADULT, CRITEO, CREDIT, BANK = "Adult", "Criteo", "Default of credit", "Bank"
MORE_STEPS = "Criteo, batch 1024"
"""Ten times the steps at the rate of Sun et al. 2022, where distance correlation hides from its own attack."""
MORE_ROWS = "Bank, 16,384 followed rows"
"""Twice the default: a ninth of the rows of Bank is positive, and the largest of many leaks of few is above chance."""
LABEL_FREE = "label_free"
_DCOR = {"dcor": {"alpha": 0.03, "floor": 0.05}}
_MARVELL, _MAX_NORM = {"marvell": {"sum_kl": 0.16, "form": "paper"}}, {"max_norm": {"form": "paper"}}

PAST: Mapping[str, Mapping[str, Any]] = {
    "marvell 0.16, past": {"marvell": {"sum_kl": 0.16, "form": "past"}},
    "max_norm, past": {"max_norm": {"form": "past"}},
    "iso_noise 5, past": {"iso_noise": {"ratio": 5.0, "form": "past"}},
}
"""Noise whose scale is that of past batches: the default forms."""
PAPER_DCOR = "dcor 0.005, paper"
DEFENCES: Mapping[str, Mapping[str, Any]] = {
    UNDEFENDED: {},
    "dcor 0.03, floor 0.05": _DCOR,
    "marvell 0.16, paper": _MARVELL,
    "marvell 0.16, shared": {"marvell": {"sum_kl": 0.16, "form": "shared"}},
    "max_norm, paper": _MAX_NORM,
    "max_norm, once": {"max_norm": {"form": "once"}},
    "label_dp 1": {"label_dp": {"eps": 1.0}},
    "dcor + marvell, paper": {**_DCOR, **_MARVELL},
    "dimip 0.3": {"dimip": {"lam": 0.3}},
    "label_dp 2 + max_norm, paper": {"label_dp": {"eps": 2.0}, **_MAX_NORM},
    LABEL_FREE: {},
    PAPER_DCOR: {"dcor": {"alpha": 0.005, "floor": 0.0, "estimate": "biased"}},
    **PAST,
}
_MAIN = (*tuple(DEFENCES)[:7], LABEL_FREE, *PAST)
SETTINGS: Mapping[str, tuple[str, ...]] = {
    ADULT: tuple(name for name in DEFENCES if name != PAPER_DCOR),
    CRITEO: _MAIN,
    CREDIT: _MAIN,
    BANK: _MAIN,
    MORE_STEPS: (UNDEFENDED, "dcor 0.03, floor 0.05", PAPER_DCOR),
    MORE_ROWS: (UNDEFENDED,),
}


@dataclass(frozen=True)
class Reading:
    """What code written outside the project read of a defence, from one training, by its strongest adaptive attack.

    Attributes:
        setting: Name of the defence.
        message: Kind of message.
        leak: AUC, 0.5 to 1.
        labels: Number of labels that it knew; 0 for none.
    """

    setting: str
    message: str
    leak: float
    labels: int = 0


READINGS: Mapping[str, tuple[Reading, ...]] = {
    ADULT: (
        Reading("dcor 0.03, floor 0.05", "embedding", 0.862),
        Reading("dcor 0.03, floor 0.05", "gradient", 1.0),
        Reading("marvell 0.16, paper", "gradient", 1.0),
        Reading("max_norm, paper", "gradient", 0.955),
        Reading("dcor + marvell, paper", "gradient", 1.0),
        Reading("dcor + marvell, paper", "embedding", 0.863),
        Reading("dimip 0.3", "embedding", 0.837, labels=20),
        Reading("label_dp 1", "gradient", 0.898),
        Reading("label_dp 2 + max_norm, paper", "gradient", 0.922),
    ),
    CRITEO: (
        Reading("dcor 0.03, floor 0.05", "embedding", 0.759),
        Reading("dcor 0.03, floor 0.05", "embedding", 0.724, labels=20),
        Reading("marvell 0.16, paper", "gradient", 1.0),
        Reading("max_norm, paper", "gradient", 1.0),
        Reading("label_dp 1", "gradient", 0.786),
    ),
}
ATTACKS = tuple(attack.name for attack in _AUTO)
"""The default catalogue, by names, so that a costly attack runs on every message."""
PARTY = {
    ADULT: "census_office",
    CRITEO: "publisher",
    CREDIT: "host",
    BANK: "call_centre",
    MORE_STEPS: "publisher",
    MORE_ROWS: "call_centre",
}
"""The party whose messages are judged: the one with the stronger columns."""


def job_of(group: str, setting: str, data: Path, seed: int) -> Job:
    """The job of one training, audited by the default catalogue.

    Args:
        group: Data set.
        setting: Name of a defence.
        data: Folder of data sets.
        seed: Seed of the job.
    """
    raw = _undefended(group, data, seed).model_dump()
    active = next(name for name, party in raw["parties"].items() if party["role"] == "active")
    raw["parties"][active] |= {"privacy": dict(DEFENCES[setting]), "audit": {"attacks": ATTACKS, "layers": False}}
    if group == MORE_ROWS:
        raw["parties"][active]["audit"]["followed"] = 16_384
    raw["compare"] = []
    if setting == LABEL_FREE:
        _release_once(raw, group)
    return validated(Job, raw, f"the study's job {group}, {setting}")


def _undefended(group: str, data: Path, seed: int) -> Job:
    if group == CRITEO:
        return criteo(data, seed, {}, ("norm",))
    if group == MORE_STEPS:
        return with_more_steps(criteo(data, seed, {}, ("norm",)))
    if group == CREDIT:
        return default_credit(data, seed)
    if group in (BANK, MORE_ROWS):
        return bank(data, seed)
    return adult_example(data, seed)


def _release_once(raw: dict[str, Any], group: str) -> None:
    """Let every passive party release a sketch of its columns once."""
    width = 128 if group == CRITEO else 32
    linear, bottom = {"kind": "linear", "width": width}, raw["model"]["bottom"]
    raw["train"]["release"] = "once"
    parties = raw["parties"].items()
    raw["model"]["bottom"] = {name: linear if party["role"] == "passive" else bottom for name, party in parties}
    for party in raw["parties"].values():
        if party["role"] == "passive":
            party["fit"] = {"kind": "sketch"}
            features = party["features"]
            if group != CRITEO:
                features["numbers"] = {"quantiles": 10}
            else:
                party["fit"]["min_count"] = 3
                features["numbers"] = {"transform": "log1p"}
    if group == CRITEO:
        raw["model"]["top"] = {"kind": "mlp", "hidden": [128, 128]}
        raw["train"] |= {"batch_size": 512, "epochs": 8}
