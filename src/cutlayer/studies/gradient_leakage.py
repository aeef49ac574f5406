"""Labels from gradients: sumKL-minimising noise and max norm alignment against the gradient attacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cutlayer.studies.base import Cell, Found, Study, by_setting, distance, mean, table
from cutlayer.studies.data import avazu, criteo

SUM_KL = (3.6, 1.44, 0.64, 0.49, 0.16, 0.01)
ATTACKS = ("norm", "direction", "hint", "spectral")
PAPER = {"sum_kl 0.49": 0.012, "sum_kl 0.16": 0.014, "sum_kl 0.01": 0.04}
"""AUC lost to the noise in ByteDance's report, by setting."""


class GradientLeakage(Study):
    """Utility and leak of the gradient defences on Criteo and Avazu."""

    name = "gradient-leakage"
    title = "Label leakage from gradients"
    source = "Li, Sun et al. 2021 (arXiv 2102.08504) and ByteDance's technical report of it"

    def cells(self, data: Path, seeds: int) -> Iterator[Cell]:
        """Every defence on both data sets; the seeds outermost, so that an early stop leaves whole comparisons."""
        for seed in range(1, seeds + 1):
            for setting, privacy in _settings().items():
                yield Cell("Criteo", setting, seed, criteo(data, seed, privacy, ATTACKS))
                yield Cell("Avazu", setting, seed, avazu(data, seed, privacy, ATTACKS))

    def page(self, found: Sequence[Found]) -> str:
        """One table per data set, and the verdict on the report's order of the defences."""
        parts = []
        for group in ("Criteo", "Avazu"):
            grouped = by_setting(found, group)
            if grouped:
                parts += [f"## {group}", _table(grouped), _verdict(grouped)]
        return "\n\n".join(parts)


def _settings() -> dict[str, Mapping[str, Any]]:
    noise = {f"sum_kl {target:g}": {"marvell": {"sum_kl": target}} for target in SUM_KL}
    return {"undefended": {}, **noise, "max_norm": {"max_norm": None}}


def _table(grouped: Mapping[str, Sequence[Found]]) -> str:
    head = ["defence", "test AUC", *(f"{attack} on gradients" for attack in ATTACKS), "spectral on the embedding"]
    rows = []
    for setting, found in grouped.items():
        gradient = [_leak(found, f"gradient/{attack}") for attack in ATTACKS]
        rows.append([setting, mean([one.metric for one in found]), *gradient, _leak(found, "embedding/spectral")])
    note = "Leak columns: |AUC - 0.5| at the worst epoch of each run, mean over seeds with its 95 % interval."
    return f"{note}\n\n{table(head, rows)}"


def _leak(found: Sequence[Found], key: str) -> str:
    known = [distance(one.leaks[key]["auc"]) for one in found if key in one.leaks]
    return str(mean(known)) if known else "n/a"


def _verdict(grouped: Mapping[str, Sequence[Found]]) -> str:
    """AUC lost to each defence, paired by seed, beside the report's figure."""
    base = {one.seed: one.metric for one in grouped.get("undefended", ())}
    rows = []
    for setting, found in grouped.items():
        losses = [base[one.seed] - one.metric for one in found if one.seed in base]
        if setting != "undefended" and losses:
            rows.append([setting, mean(losses), PAPER.get(setting, "not given"), worst_attack(found)])
    head = ["defence", "test AUC lost (paired by seed)", "the report's loss", "strongest gradient attack at its worst"]
    return table(head, rows)


def worst_attack(found: Sequence[Found]) -> str:
    """Which gradient attack gained most, and how much, over all seeds."""
    gains = {
        key.removeprefix("gradient/"): max(distance(one.leaks[key]["auc"]) for one in found)
        for key in found[0].leaks
        if key.startswith("gradient/")
    }
    name = max(gains, key=gains.__getitem__)
    return f"{name}: {0.5 + gains[name]:.3f}"
