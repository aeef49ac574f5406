"""What a label owner reads of the partner's columns from what it saw, with 512 known rows; and a partner of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.grade_attacks import with_labels
from benchmarks.graded_rows import Rows
from cutlayer.attacks.feature.best_guess import BestGuess
from cutlayer.attacks.feature.inversion import Inversion
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.audit.features.measures import FeatureCase, measure_feature_attack

Floats = npt.NDArray[np.floating[Any]]
Codes = npt.NDArray[np.int64]
KNOWN = 512
NARROW = 16
"""Most columns that `best_guess`, which is the attack for grades and scores, is given; `inversion` reads more."""
MAX_WIDTH = 256


def columns_read(rows: Rows, at: Codes, seen: Floats | None, seed: int) -> dict[str, float]:
    """Mean and largest R² of the partner's columns, on rows that are not known.

    Args:
        rows: The data set.
        at: Row numbers.
        seen: What the label owner saw of each of them, (n, ...); `None` for its own columns and labels alone.
        seed: Seed of the known rows.
    """
    order = np.random.default_rng(seed).permutation(len(at))
    chosen = torch.from_numpy(at[order])
    known = min(KNOWN, len(at) // 2)
    release = np.zeros((len(at), 0)) if seen is None else _reduced(seen[order])
    own, store = with_labels(rows)[at[order]], rows.partner.store
    auxiliary = Auxiliary(store.columns, torch.arange(known), *store.gather(chosen[:known]))
    truth = store.gather(chosen[known:])
    wide = release.shape[1] > NARROW
    held = torch.from_numpy(np.hstack([release, own]) if wide else release).float()
    view = FeatureView("partner", chosen, held, own=None if wide else torch.from_numpy(own).float())
    knowledge, case = Knowledge(auxiliary_rows=auxiliary), "rivals"
    attack: Any = Inversion() if wide else BestGuess()
    about = {"run": "", "party": "partner", "attack": attack.name}
    results = measure_feature_attack(attack(view, knowledge, seed), FeatureCase(case, view, knowledge, truth), about)
    (r2,) = (result for result in results if result.metric == "r2")
    columns = [column.value for column in r2.columns if column.value is not None]
    return {"r2": r2.value or 0.0, "best column": max(columns, default=0.0), "width": release.shape[1]}


def _reduced(seen: Floats) -> Floats:
    """Columns with the same span, or the first of their principal components."""
    if seen.shape[1] <= NARROW:
        return seen
    centred = seen - seen.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    kept = min(int((sizes > 1e-11 * sizes[0]).sum()), MAX_WIDTH)
    # Of the same size each: what takes part in few rounds is read as well as what takes part in all.
    return np.asarray(left[:, :kept] * len(seen) ** 0.5)
