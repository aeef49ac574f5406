"""Labels from embeddings: what each layer knows, and what distance correlation, Marvell and label DP do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cutlayer.config import Job
from cutlayer.studies.base import Cell, Found, Study, by_setting, distance, mean, table
from cutlayer.studies.data import avazu, criteo

ATTACKS = ("spectral",)
ALPHAS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05)
PAPER_COST = {
    "1 top layer": {0.003: 0.7769, 0.005: 0.7763, 0.02: 0.7528, 0.03: 0.7082, 0.04: 0.5848},
    "3 top layers": {0.003: 0.7777, 0.005: 0.7773, 0.02: 0.7645, 0.03: 0.7518, 0.04: 0.7152},
}
"""Test AUC by alpha in table 1 of Sun et al. 2022."""
PAPER_CUT = {"undefended": (0.78, 0.78), "marvell s 8": (0.75, None), "label_dp eps 0.5": (0.75, None)}
"""Leak AUC at the cut and test AUC that the paper's figure 2 shows, rounded."""

Privacy = Mapping[str, Any]


class ForwardLeakage(Study):
    """Spectral leak of every layer, undefended and defended, on Criteo and Avazu."""

    name = "forward-leakage"
    title = "Label leakage from forward embeddings"
    source = "Sun et al. 2022 (arXiv 2203.01451)"

    def cells(self, data: Path, seeds: int) -> Iterator[Cell]:
        """Figures 2 to 7 and tables 1 and 2, the seeds outermost."""
        for seed in range(1, seeds + 1):
            for setting, privacy in _settings().items():
                yield Cell("Criteo", setting, seed, criteo(data, seed, privacy, ATTACKS))
            for alpha in PAPER_COST["1 top layer"]:
                one = _with_linear_top(criteo(data, seed, {"dcor": {"alpha": alpha}}, ATTACKS))
                yield Cell("Criteo, 1 top layer", f"dcor alpha {alpha:g}", seed, one)
            for setting, privacy in {"undefended": {}, **_dcor((0.03,))}.items():
                yield Cell("Avazu", setting, seed, avazu(data, seed, privacy, ATTACKS))

    def page(self, found: Sequence[Found]) -> str:
        """Leak and utility of every setting, then every layer of the three networks of figure 2."""
        parts = []
        for group in ("Criteo", "Criteo, 1 top layer", "Avazu"):
            grouped = by_setting(found, group)
            if grouped:
                parts += [f"## {group}", _utility(grouped)]
        layers = by_setting(found, "Criteo")
        shown = {name: layers[name] for name in PAPER_CUT if name in layers}
        return "\n\n".join([*parts, "## Every layer (figure 2)", _layers(shown)])


def _settings() -> dict[str, Privacy]:
    marvell = {f"marvell s {s:g}": {"marvell": {"s": float(s)}} for s in (1, 2, 4, 8, 16)}
    label_dp = {f"label_dp eps {eps:g}": {"label_dp": {"eps": eps}} for eps in (0.5, 1.0, 2.0, 4.0)}
    together = {
        f"dcor alpha {alpha:g} + {name}": {"dcor": {"alpha": alpha}, **other}
        for name, other in (("marvell s 8", {"marvell": {"s": 8.0}}), ("label_dp eps 2", {"label_dp": {"eps": 2.0}}))
        for alpha in ALPHAS
    }
    return {"undefended": {}, **marvell, **label_dp, **_dcor(ALPHAS), **_forms(), **together}


def _dcor(alphas: Sequence[float]) -> dict[str, Privacy]:
    return {f"dcor alpha {alpha:g}": {"dcor": {"alpha": alpha}} for alpha in alphas}


def _forms() -> dict[str, Privacy]:
    """Other forms of the term at alpha 0.03, since the paper's collapses on a small data set."""
    forms: dict[str, dict[str, Any]] = {
        "floor 0.05": {"floor": 0.05},
        "floor 0.2": {"floor": 0.2},
        "unbiased, floor 0.05": {"estimate": "unbiased", "floor": 0.05},
        "ramp 4": {"ramp": 4.0},
        "start 2": {"start": 2.0},
    }
    return {f"dcor alpha 0.03, {name}": {"dcor": {"alpha": 0.03, **form}} for name, form in forms.items()}


def _with_linear_top(job: Job) -> Job:
    model = job.model.model_copy(update={"top": {"kind": "mlp", "hidden": ()}})
    return job.model_copy(update={"model": model})


def _utility(grouped: Mapping[str, Sequence[Found]]) -> str:
    rows = []
    for setting, found in grouped.items():
        worst = mean([0.5 + distance(one.leaks["embedding/spectral"]["auc"]) for one in found])
        last = mean([0.5 + distance(one.leaks["embedding/spectral"]["last"]) for one in found])
        rows.append([setting, mean([one.metric for one in found]), worst, last, PAPER_CUT.get(setting, ("", ""))[0]])
    head = ["defence", "test AUC", "cut leak, worst epoch", "cut leak, last epoch", "the paper's cut leak"]
    return "Leak columns: max(AUC, 1 - AUC) of the spectral attack.\n\n" + table(head, rows)


def _layers(shown: Mapping[str, Sequence[Found]]) -> str:
    names = list(dict.fromkeys(layer for found in shown.values() for one in found for layer in one.layers))
    rows = [
        [layer, *(mean([0.5 + distance(one.layers[layer]["auc"]) for one in found]) for found in shown.values())]
        for layer in names
    ]
    return table(["layer", *shown], rows)
