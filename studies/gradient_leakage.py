"""Labels from gradients: sumKL-minimising noise and max norm alignment against the gradient attacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cutlayer.runs.folder import RunFolder
from studies.base import Cell, Found, Study
from studies.by_day import measure_days
from studies.claims import Runs
from studies.data import avazu, avazu_by_day, criteo
from studies.gradient_page import ATTACKS, DAY_SETTINGS, DAYS, GradientPage

SUM_KL = (3.6, 1.44, 0.64, 0.49, 0.16, 0.01)


class GradientLeakage(Study):
    """Utility and leak of the gradient defences on Criteo and Avazu."""

    name = "gradient-leakage"
    title = "Label leakage from gradients"
    source = "Li, Sun et al. 2021 (arXiv 2102.08504) and ByteDance's technical report of it"
    settings = (
        "Criteo 137,139 rows, Avazu 53,247 rows; the network of Sun et al. 2022, all features at the passive party; "
        "preset `small`: log1p before min-max, Adam 1e-3, the best of 12 epochs on validation rows, batch 8192 on "
        "Criteo and 4096 on Avazu. By day: Avazu's 20,000 rows of ten days, 30 % of them for testing, batch 1024.\n\n"
        "What differs from the report: its data are some 300 times larger. Here an attack counts at its worst epoch."
    )

    def cells(self, data: Path, seeds: int) -> Iterator[Cell]:
        """Every defence on both data sets; the seeds outermost, so that an early stop leaves whole comparisons."""
        for seed in range(1, seeds + 1):
            for setting, privacy in _settings().items():
                yield Cell("Criteo", setting, seed, criteo(data, seed, privacy, ATTACKS))
                yield Cell("Avazu", setting, seed, avazu(data, seed, privacy, ATTACKS))
        for seed in range(1, seeds + 1):
            for setting in DAY_SETTINGS:
                yield Cell(DAYS, setting, seed, avazu_by_day(data, seed, _settings()[setting], ATTACKS))

    def measure(self, cell: Cell, folder: RunFolder) -> dict[str, Any]:
        """Test AUC and leaks of each day, where the cell is of those."""
        return measure_days(cell, folder) if cell.group == DAYS else {}

    def page(self, found: Sequence[Found]) -> str:
        """Claims, one table per data set, every layer, every day."""
        return GradientPage(Runs(found)).text()

    def figures(self, found: Sequence[Found]) -> dict[str, str]:
        """Leaks by defence, by layer and by day."""
        return GradientPage(Runs(found)).figures()


def _settings() -> dict[str, Mapping[str, Any]]:
    noise = {f"sum_kl {target:g}": {"marvell": {"sum_kl": target}} for target in SUM_KL}
    return {"undefended": {}, **noise, "max_norm": {"max_norm": None}}
