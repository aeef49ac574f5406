"""Labels from gradients: sumKL-minimising noise and max norm alignment against the gradient attacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cutlayer.training.folder import RunFolder
from studies.datasets import avazu, avazu_at_both, avazu_by_day, criteo
from studies.gradient_leakage.by_day import measure_days
from studies.gradient_leakage.claims import AT_BOTH, AT_BOTH_SETTINGS, ATTACKS, BY_DAY, DAY_SETTINGS
from studies.gradient_leakage.page import gradient_page
from studies.page import Page
from studies.results import UNDEFENDED, Results
from studies.trials import Study, Trial

PAPER_FORM = {"form": "paper"}
SUM_KL = (3.6, 1.44, 0.64, 0.49, 0.16, 0.01)


class GradientLeakageStudy(Study):
    """Utility and leak of the gradient defences on Criteo and Avazu."""

    name = "gradient-leakage"
    title = "Label leakage from gradients"
    source = "Li, Sun et al. 2021 (arXiv 2102.08504) and ByteDance's technical report of it"
    advice = (
        "Do not use the published form of Marvell or of max norm alignment for a guarantee: the noise hides labels "
        "from the norm attack that it was made for, others read them, and all of them read more over several epochs "
        "([adaptive attacks](adaptive-audit.md))."
    )
    settings = (
        "Data: Criteo, 137,139 rows; Avazu, 53,247 rows; all features at the passive party. Network: that of Sun et "
        "al. 2022. Preset `small`: log1p before min-max, Adam 1e-3, the best of 12 epochs on validation rows, batch "
        "8192 on Criteo and 4096 on Avazu. By day: Avazu's 20,000 rows of ten days, 30 % of them for testing, batch "
        "1024.\n\n"
        "Differences from the report: its data are some 300 times larger. Here an attack counts at its worst epoch. "
        "[Reasons tested](reasons.md) has controls for the costs of the noise.\n\n"
        "The claims are judged by the attacks of the papers, as the papers judge them. Attacks on all epochs together, "
        "and on other directions, read more of the same messages: see [defences under adaptive "
        "attacks](adaptive-audit.md)."
    )

    def trials(self, data: Path, seeds: int) -> Iterator[Trial]:
        """Every defence on both data sets; the seeds outermost, so that an early stop leaves whole comparisons."""
        for seed in range(1, seeds + 1):
            for setting, privacy in _settings().items():
                yield Trial("Criteo", setting, seed, criteo(data, seed, privacy, ATTACKS))
                yield Trial("Avazu", setting, seed, avazu(data, seed, privacy, ATTACKS))
        for seed in range(1, seeds + 1):
            for setting in DAY_SETTINGS:
                yield Trial(BY_DAY, setting, seed, avazu_by_day(data, seed, _settings()[setting], ATTACKS))
        for seed in range(1, seeds + 1):
            for setting in AT_BOTH_SETTINGS:
                yield Trial(AT_BOTH, setting, seed, avazu_at_both(data, seed, _settings()[setting], ATTACKS))

    def measure(self, trial: Trial, folder: RunFolder) -> dict[str, Any]:
        """Test AUC and leaks of each day, for trials by day."""
        return measure_days(trial, folder) if trial.group == BY_DAY else {}

    def page(self, results: Results) -> Page:
        """Claims, one table per data set, every layer, every day."""
        return gradient_page(results)


def noise_settings() -> dict[str, Mapping[str, Any]]:
    """Protections of Marvell's noise, by the setting's name."""
    return {f"sum_kl {target:g}": {"marvell": {"sum_kl": target, **PAPER_FORM}} for target in SUM_KL}


def _settings() -> dict[str, Mapping[str, Any]]:
    return {UNDEFENDED: {}, **noise_settings(), "max_norm": {"max_norm": PAPER_FORM}}
