"""Label differential privacy: what eps costs, what still leaks, and what drawing again every epoch would give away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cutlayer.config import Job, validated
from cutlayer.runs.execute import Progress
from studies.base import Cell, Found, Study
from studies.claims import Runs
from studies.data import criteo, handwritten
from studies.label_dp_page import (
    ATTACKS,
    EACH_EPOCH,
    EPOCHS,
    EPS,
    GROUPS,
    ONCE,
    REDRAWN_EPS,
    LabelDPPage,
    in_one_place,
)
from studies.redrawing import train_with_draws

DIGITS_ROWS = 512
"""Of each epoch that attacks on the six views see."""


class LabelDPStudy(Study):
    """Binary labels on Criteo, ten classes on six views of handwritten digits, and the price of redrawing."""

    name = "label-dp"
    title = "Label differential privacy"
    source = "Warner 1965; Ghazi et al. 2021 (arXiv 2102.06062); MindSpore Federated's label DP"
    settings = (
        "Criteo 137,139 rows (two classes), preset `small`: log1p before min-max, batch 8192, Adam 1e-3, the best of "
        "12 epochs on validation rows; six views of 2,000 handwritten digits at six parties (ten classes), batch 64, "
        f"the best of 30 epochs, the default network, leaks from {DIGITS_ROWS} rows an epoch. Validation rows keep "
        "their true labels.\n\n"
        "What differs from the sources: MindSpore Federated draws again in every batch, so that its eps is spent as "
        "often as a row is seen; Ghazi et al. train image networks on 50,000 and more rows."
    )

    def cells(self, data: Path, seeds: int) -> Iterator[Cell]:
        """Each eps on both data sets, both undefended, and drawn once and again in one place; the seeds outermost."""
        names, tables = handwritten(data)
        for seed in range(1, seeds + 1):
            for setting, privacy in {"undefended": {}, **{f"eps {e:g}": {"label_dp": {"eps": e}} for e in EPS}}.items():
                yield Cell("Criteo", setting, seed, criteo(data, seed, privacy, ATTACKS))
                yield Cell("handwritten", setting, seed, _digits(names, privacy, seed), tables)
            for setting in [f"eps {eps:g}, {how}" for eps in REDRAWN_EPS for how in (ONCE, EACH_EPOCH)]:
                yield Cell(in_one_place("Criteo"), setting, seed, criteo(data, seed, {}, ATTACKS))
                yield Cell(in_one_place("handwritten"), setting, seed, _digits(names, {}, seed), tables)

    def train(self, cell: Cell, work: Path, progress: Progress) -> dict[str, Any]:
        """A run of the job, or the same network in one place where the labels are to be drawn again."""
        if cell.group not in map(in_one_place, GROUPS):
            return super().train(cell, work, progress)
        eps, _, how = cell.setting.removeprefix("eps ").partition(", ")
        found = train_with_draws(cell.job, cell.tables, float(eps), each_epoch=how == EACH_EPOCH)
        named = {"group": cell.group, "setting": cell.setting, "seed": cell.seed, "leaks": {}, "layers": {}}
        return {**named, **found}

    def page(self, found: Sequence[Found]) -> str:
        """Utility and leak by eps, then what redrawing costs."""
        return LabelDPPage(Runs(found)).text()

    def figures(self, found: Sequence[Found]) -> dict[str, str]:
        """One per data set."""
        return LabelDPPage(Runs(found)).figures()


def _digits(names: Sequence[str], privacy: object, seed: int) -> Job:
    sampled = {"rows": DIGITS_ROWS, "layers": False}
    parties: dict[str, object] = {name: {"role": "passive", "audit": sampled} for name in names[1:]}
    audit = {"attacks": ["spectral"], **sampled}
    owner = {"role": "active", "label": "digit", "privacy": privacy, "audit": audit}
    raw = {
        "task": "multiclass",
        "parties": {names[0]: owner, **parties},
        "train": {"epochs": EPOCHS["handwritten"], "batch_size": 64, "seed": seed, "threads": 1},
    }
    return validated(Job, raw, "study")
