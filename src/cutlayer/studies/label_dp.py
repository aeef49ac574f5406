"""Label differential privacy: what eps costs, what still leaks, and what drawing again every epoch would give away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from cutlayer.config import Job, validated
from cutlayer.kernels.randomized_response import randomized_response
from cutlayer.studies.base import Cell, Found, Study, by_setting, mean, table
from cutlayer.studies.data import criteo, handwritten

EPS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
ATTACKS = ("norm", "direction", "spectral")
ROWS, EPOCHS = 100_000, 15


class LabelDPStudy(Study):
    """Binary labels on Criteo, ten classes on six views of handwritten digits, and the price of redrawing."""

    name = "label-dp"
    title = "Label differential privacy"
    source = "Warner 1965; Ghazi et al. 2021 (arXiv 2102.06062); MindSpore Federated's label DP"

    def cells(self, data: Path, seeds: int) -> Iterator[Cell]:
        """Each eps on both data sets, and both undefended."""
        names, tables = handwritten(data)
        for seed in range(1, seeds + 1):
            for setting, privacy in {"undefended": {}, **{f"eps {e:g}": {"label_dp": {"eps": e}} for e in EPS}}.items():
                yield Cell("Criteo", setting, seed, criteo(data, seed, privacy, ATTACKS))
                yield Cell("handwritten", setting, seed, _digits(names, privacy, seed), tables)

    def page(self, found: Sequence[Found]) -> str:
        """Utility and leak by eps, then what redrawing costs."""
        parts = []
        for group, metric in (("Criteo", "test AUC"), ("handwritten", "test accuracy")):
            grouped = by_setting(found, group)
            keys = sorted({key for some in grouped.values() for one in some for key in one.leaks})
            head = ["setting", metric, *(f"{key}, worst AUC" for key in keys)]
            rows = [
                [
                    setting,
                    mean([one.metric for one in some]),
                    *(mean([one.leaks[key]["auc"] for one in some]) for key in keys),
                ]
                for setting, some in grouped.items()
            ]
            parts += [f"## {group}", table(head, rows)]
        return "\n\n".join([*parts, "## What redrawing every epoch costs", _redrawing()])


def _redrawing() -> str:
    """Labels recovered by a majority vote over redraws, against one draw; computed here, no training involved."""
    labels = torch.randint(0, 2, (ROWS,), generator=torch.Generator().manual_seed(0))
    ids = torch.randint(0, 256, (ROWS, 16), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    rows = []
    for eps in EPS:
        draws = [randomized_response(labels, ids, 2, eps, bytes([number]) * 32, "label") for number in range(EPOCHS)]
        vote = torch.stack(draws).double().mean(0) > 0.5
        once = float((draws[0] == labels).double().mean())
        rows.append([f"{eps:g}", f"{once:.3f}", f"{float((vote == labels).double().mean()):.3f}", f"{eps * EPOCHS:g}"])
    head = ["eps of one draw", "right after one draw", f"right after a vote over {EPOCHS} draws", "eps really spent"]
    return table(head, rows)


def _digits(names: Sequence[str], privacy: object, seed: int) -> Job:
    parties: dict[str, object] = {name: {"role": "passive"} for name in names[1:]}
    owner = {"role": "active", "label": "digit", "privacy": privacy}
    raw = {
        "task": "multiclass",
        "parties": {names[0]: owner, **parties},
        "train": {"epochs": 30, "batch_size": 64, "seed": seed, "threads": 1},
    }
    return validated(Job, raw, "study")
