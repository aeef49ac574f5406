"""The benchmark of backdoors in a single release: they succeed on a toy, and one honest grade bounds what it can do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks import graded_rows, release_backdoor
from benchmarks.release_backdoor import Done, Reach, measured, page
from benchmarks.utility.datasets import DataSet
from cutlayer.models.bottom_fits.grade import GradeFit


@pytest.fixture(scope="module")
def attacks() -> dict[str, dict[str, Done | Reach]]:
    draw = np.random.default_rng(0)
    bank, partner = pd.DataFrame({"x": draw.normal(size=800)}), pd.DataFrame({"y": draw.normal(size=800)})
    labels = (bank["x"] + 2 * partner["y"] > 1).to_numpy().astype(int)
    toy = DataSet("binary", bank, partner, labels)

    def brief(**_: Any) -> GradeFit:
        return GradeFit(candidates=("linear",), folds=2, least_z=0)

    few_trees = partial(HistGradientBoostingClassifier, max_iter=25)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release_backdoor, "labelled", lambda name, folder: toy)
        patch.setattr(graded_rows, "GradeFit", brief)
        patch.setattr(release_backdoor, "HistGradientBoostingClassifier", few_trees)
        return measured("toy", Path(), 0, 800)


def test_a_known_trigger_decides_most_predictions_and_costs_no_utility(
    attacks: dict[str, dict[str, Done | Reach]],
) -> None:
    for release in ("sketch", "grades, epsilon 8"):
        honest, known = (attacks[release][name] for name in ("honest", "known"))
        assert isinstance(honest, Done)
        assert isinstance(known, Done)
        assert honest.success < 0.1 < 0.5 < known.success
        assert honest.auc - known.auc < 0.03


def test_the_reach_of_one_grade_covers_the_highest_one_and_falls_with_epsilon(
    attacks: dict[str, dict[str, Done | Reach]],
) -> None:
    reaches = []
    for epsilon in (8, 2):
        found = attacks[f"grades, epsilon {epsilon}"]
        reach, chosen = found["reach"], found["chosen"]
        assert isinstance(reach, Reach)
        assert isinstance(chosen, Done)
        assert chosen.success <= reach.success
        reaches.append(reach.largest)
    assert reaches[1] < reaches[0]


def test_the_page_has_a_line_for_each_attack(attacks: dict[str, dict[str, Done | Reach]]) -> None:
    text = page({"toy": [attacks, attacks]})
    assert text.count("\n| toy, sketch | ") == 4
    assert text.count("\n| toy, grades, epsilon 2 | ") == 6
