"""Label differential privacy: what eps costs, what still leaks, and what redrawing in every epoch would give away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cutlayer.config import Job
from cutlayer.jobs.execute import Progress
from studies.datasets import criteo, digits, handwritten
from studies.label_dp.claims import ATTACKS, EACH_EPOCH, EPOCHS, EPS, GROUPS, ONCE, REDRAWN_EPS, centralised
from studies.label_dp.page import label_dp_page
from studies.label_dp.redrawing import train_with_draws
from studies.page import Page
from studies.results import UNDEFENDED, Results
from studies.trials import Study, Trial

DIGITS_ROWS = 512
"""Rows of each epoch that attacks on the six views see."""


class LabelDPStudy(Study):
    """Binary labels on Criteo, ten classes on six views of handwritten digits, and the price of redrawing."""

    name = "label-dp"
    title = "Label differential privacy"
    source = "Warner 1965; Ghazi et al. 2021 (arXiv 2102.06062); MindSpore Federated's label DP"
    settings = (
        "Data: Criteo, 137,139 rows (two classes), preset `small`: log1p before min-max, batch 8192, Adam 1e-3, the "
        "best of 12 epochs on validation rows; six views of 2,000 handwritten digits at six parties (ten classes), "
        f"batch 64, the best of 30 epochs, the default network, leaks from {DIGITS_ROWS} rows of each epoch. "
        "Validation rows have their true labels.\n\n"
        "Differences from the sources: MindSpore Federated draws again in every batch, so that its eps is spent as "
        "often as a row is seen; Ghazi et al. train image networks on 50,000 and more rows."
    )

    def trials(self, data: Path, seeds: int) -> Iterator[Trial]:
        """Each eps on both data sets, both undefended, and centralised with either way to draw; the seeds outermost."""
        names, tables = handwritten(data)
        settings = {UNDEFENDED: {}, **{f"eps {eps:g}": {"label_dp": {"eps": eps}} for eps in EPS}}
        for seed in range(1, seeds + 1):
            for setting, privacy in settings.items():
                yield Trial("Criteo", setting, seed, criteo(data, seed, privacy, ATTACKS))
                yield Trial("handwritten", setting, seed, _digits(names, privacy, seed), tables)
            for setting in [f"eps {eps:g}, {draws}" for eps in REDRAWN_EPS for draws in (ONCE, EACH_EPOCH)]:
                yield Trial(centralised("Criteo"), setting, seed, criteo(data, seed, {}, ATTACKS))
                yield Trial(centralised("handwritten"), setting, seed, _digits(names, {}, seed), tables)

    def train(self, trial: Trial, work: Path, progress: Progress) -> dict[str, Any]:
        """A run of the job, or the same network centralised where the labels are to be drawn again."""
        if trial.group not in map(centralised, GROUPS):
            return super().train(trial, work, progress)
        eps, _, draws = trial.setting.removeprefix("eps ").partition(", ")
        values = train_with_draws(trial.job, trial.tables, float(eps), each_epoch=draws == EACH_EPOCH)
        key = {"group": trial.group, "setting": trial.setting, "seed": trial.seed}
        return {**key, "leaks": {}, "layers": {}, **values}

    def page(self, results: Results) -> Page:
        """Utility and leak by eps, then what redrawing costs."""
        return label_dp_page(results)


def _digits(names: Sequence[str], privacy: object, seed: int) -> Job:
    sampled = {"rows": DIGITS_ROWS, "layers": False}
    owner = {"privacy": privacy, "audit": {"attacks": ["spectral"], **sampled}}
    return digits(names, owner, sampled, {"epochs": EPOCHS["handwritten"], "seed": seed})
