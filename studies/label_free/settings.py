"""Data sets and settings of the label-free study, as jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlayer.config import Job, validated
from studies.datasets import adult_example, bank, criteo, default_credit
from studies.results import UNDEFENDED

EPSILONS = (64.0, 8.0)
"""Total epsilons of `dp_embedding` for the single release of a row."""
DELTA = 1e-5
SMALL_BATCH = f"{UNDEFENDED}, batch 512"
FIT_EPOCHS = 5
LABEL_ATTACKS = ("spectral", "probe")
FEATURE_ATTACKS = ("inversion", "attribute")
LEARNING_CURVE = {"Criteo, a quarter of the rows": 0.7375}
"""Share of test rows, by group; the other rows are for training, but for the 5 % that choose the epoch."""


@dataclass(frozen=True)
class Data:
    """A data set at its parties.

    Attributes:
        headline: Width of the cut that the claims are about.
        widths: Widths of the sketch.
        party: Passive party whose features are attacked, on the first seed; none if empty.
        job: The undefended job of a seed, from the folder of data sets.
        sketch: Sections of the passive parties' features under a sketch.
        train: Schedule of all settings but the undefended one.
        top: Top model of all settings but the undefended one.
    """

    headline: int
    widths: tuple[int, ...]
    party: str
    job: Callable[[Path, int], Job]
    sketch: Mapping[str, Any]
    train: Mapping[str, Any]
    top: Mapping[str, Any]


def setting_of(width: int, epsilon: float | None = None) -> str:
    """Name of a sketch of a width, under `dp_embedding` where an epsilon is given."""
    return f"sketch {width}" + ("" if epsilon is None else f", eps {epsilon:g}")


def settings_of(data: Data, seed: int = 1) -> list[str]:
    """The settings of a data set and a seed, in the order in which they are run; trained fits on the first alone."""
    sketches = [setting_of(width) for width in data.widths]
    private = [setting_of(data.headline, epsilon) for epsilon in EPSILONS]
    fits = [f"{kind} {data.headline}" for kind in ("autoencoder", "contrastive") if seed == 1]
    return [UNDEFENDED, *([SMALL_BATCH] if data is CRITEO else []), *sketches, *private, *fits]


def job_of(data: Data, setting: str, folder: Path, seed: int, test: float | None = None) -> Job:
    """The job of a setting.

    Args:
        data: Data set.
        setting: Name of the setting.
        folder: Folder of data sets.
        seed: Seed of the job.
        test: Share of the test rows; that of the undefended job if `None`.
    """
    job = data.job(folder, seed)
    raw = job.model_dump()
    raw["compare"] = ()
    raw["parties"][job.active] |= {"privacy": {}, "audit": _audit(LABEL_ATTACKS, run=seed == 1 and test is None)}
    for party in job.passives:
        attacked = party == data.party and seed == 1 and test is None
        raw["parties"][party]["audit"] = _audit(FEATURE_ATTACKS, run=attacked)
    if setting != UNDEFENDED:
        raw["train"] |= data.train
    if setting not in (UNDEFENDED, SMALL_BATCH):
        _release_once(raw, job, data, setting)
    if test is not None:
        raw["train"]["split"] = {**raw["train"]["split"], "test": test}
    return validated(Job, raw, "study")


def _audit(attacks: tuple[str, ...], *, run: bool) -> dict[str, Any]:
    """The audit of a party: attacks of minutes on the first seed, none afterwards."""
    return {"attacks": attacks, "layers": False, "max_megabytes": 64} if run else {"every": "never"}


def _release_once(raw: dict[str, Any], job: Job, data: Data, setting: str) -> None:
    name, _, epsilon = setting.partition(", eps ")
    kind, width = name.split()
    fit: dict[str, Any] = {"kind": kind, **({} if kind == "sketch" else {"epochs": FIT_EPOCHS})}
    bottom: dict[str, Any] = {"kind": "linear", "width": int(width)}
    if kind != "sketch":
        bottom = {"kind": "mlp", "hidden": [128, int(width)], "cut": "linear"}
    raw["train"]["release"] = "once"
    raw["parties"][job.active]["privacy"] = {"label_free": {}}
    raw["model"] = {
        "bottom": {job.active: job.model.bottom_of(job.active), **dict.fromkeys(job.passives, bottom)},
        "top": data.top,
    }
    for party in job.passives:
        own = raw["parties"][party]
        own |= {"fit": fit, "features": {**own["features"], **data.sketch}}
        if epsilon:
            noise = {"clip": 1.0, "epsilon": float(epsilon), "delta": DELTA, "rescale": "sphere"}
            own["privacy"] = {"dp_embedding": noise}


def _criteo(folder: Path, seed: int) -> Job:
    return criteo(folder, seed, {}, LABEL_ATTACKS)


_FEW = {"numbers": {"quantiles": 10}}
_WIDE = {"numbers": {"transform": "log1p"}, "categories": {"min_count": 3}}
_LARGE_TOP = {"kind": "mlp", "hidden": [128, 128]}

ADULT = Data(32, (32, 16, 8), "census_office", adult_example, _FEW, {}, {"kind": "mlp", "hidden": [32]})
CRITEO = Data(128, (308, 128, 64, 32), "publisher", _criteo, _WIDE, {"epochs": 8, "batch_size": 512}, _LARGE_TOP)
DEFAULT_CREDIT = Data(32, (32, 8), "", default_credit, _FEW, {}, {"kind": "mlp", "hidden": [32]})
BANK = Data(32, (32, 8), "", bank, _FEW, {}, {"kind": "mlp", "hidden": [32]})
DATA: Mapping[str, Data] = {"Adult": ADULT, "Criteo": CRITEO, "Default of credit": DEFAULT_CREDIT, "Bank": BANK}
