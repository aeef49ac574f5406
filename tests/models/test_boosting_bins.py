"""Bins that fits of parts of the same rows share: with those of all rows, a fit is the one that finds its own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from cutlayer.models.bottom_fits import grade
from cutlayer.models.bottom_fits.grade import GradeFit
from cutlayer.models.top_estimators import bins
from cutlayer.models.top_estimators.bins import Bins, binned
from cutlayer.models.top_estimators.boosting import fit_boosting
from cutlayer.models.top_estimators.rows import FitRows
from tests.models.test_top_estimators_trees import CARDS, table, target

FIT = partial(fit_boosting, seed=0, settings={"max_iter": 10, "early_stopping": False, "max_features": 0.5})


def rows_of(classes: int) -> FitRows:
    codes, numbers = table()
    value = target(codes, numbers)
    flags = np.column_stack([numbers, numbers[:, 0] > -1, numbers[:, 0] > 0, numbers[:, 0] > 1]).astype(np.float32)
    labels = np.digitize(value, np.quantile(value, np.arange(1, classes) / classes)) if classes else value
    return FitRows(codes, flags, CARDS, labels, classes)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_bins_of_all_rows_are_those_of_a_fit_to_the_bit(classes: int) -> None:
    rows = rows_of(classes)
    shared, own = (FIT(each).state_dict() for each in (binned(rows, 7), rows))
    assert shared.keys() == own.keys()
    assert all(shared[name].equal(own[name]) for name in own)


def test_a_part_has_the_bins_of_all_rows_and_reads_no_other() -> None:
    rows = rows_of(2)
    some = np.flatnonzero(np.arange(len(rows)) % 3 > 0)
    part = binned(rows, 0).take(some)
    assert part.bins is not None
    borders = np.concatenate(part.bins.model._bin_mapper.bin_thresholds_).tolist()
    assert {*FIT(part).threshold.tolist()} <= {*borders, 0.5, 1.0}  # these of splits of categories, and of leaves
    other = replace(rows, targets=np.where(np.arange(len(rows)) % 3 > 0, rows.targets, 1 - rows.targets))
    again = FIT(binned(other, 0).take(some)).state_dict()
    assert all(value.equal(again[name]) for name, value in FIT(part).state_dict().items())


def test_where_the_library_does_not_take_them_it_finds_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(2)
    part = binned(rows, 0).take(np.arange(0, len(rows), 2))
    monkeypatch.setattr(Bins, "hand_to", lambda *_: None)
    mistaken, own = FIT(part).state_dict(), FIT(replace(part, bins=None)).state_dict()
    assert all(value.equal(own[name]) for name, value in mistaken.items())


def test_a_category_that_no_sampled_row_has_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(2)
    monkeypatch.setattr(bins, "SAMPLED", 40)
    given = binned(rows, 3)
    assert given.bins is not None
    rank, most = given.bins.layout.ranks[1]
    absent = np.flatnonzero(rank == most)
    present = np.flatnonzero(rank < most)
    of_code = given.bins.codes[1][np.isin(rows.codes[:, 1], absent)]
    missing = given.bins.model._bin_mapper.missing_values_bin_idx_
    assert len(of_code)
    assert (of_code == missing).all()
    assert (given.bins.codes[1][np.isin(rows.codes[:, 1], present)] != missing).all()
    trees = FIT(given)
    codes, numbers = torch.from_numpy(rows.codes[:2]), torch.from_numpy(rows.numbers[:2])
    raw = [trees.raw(codes.index_fill(1, torch.tensor([1]), int(code)), numbers) for code in absent]
    assert all(each.equal(raw[0]) for each in raw)


@pytest.mark.parametrize("part", [None, 0.5])
def test_grades_of_many_rows_are_fitted_by_shared_bins(monkeypatch: pytest.MonkeyPatch, part: float | None) -> None:
    rows, seen = rows_of(2), list[bool]()
    folds = np.random.default_rng(0).integers(0, 3, len(rows))

    def counted(given: FitRows, *rest: object, **settings: object) -> object:
        seen.append(given.bins is not None)
        return fit_boosting(given, *rest, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr("cutlayer.models.top_estimators.boosting.fit_boosting", counted)
    settings, scores = GradeFit(candidates=("boosting",)), []
    for cells in (grade.BINNED_CELLS, 0):
        monkeypatch.setattr(grade, "BINNED_CELLS", cells)
        seen.clear()
        heads, held_out = grade._fitted(settings, rows, folds, 3, part, None, 0)
        assert seen == [cells == 0] * (3 if part is None else 4)
        assert len(heads) == 3
        scores.append((held_out[:, 1] - held_out[:, 0]).numpy())
    assert np.corrcoef(scores)[0, 1] > 0.98


def test_a_linear_model_alone_needs_no_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grade, "BINNED_CELLS", 0)
    monkeypatch.setattr(bins, "binned", lambda *_: pytest.fail("bins were computed"))
    rows, folds = rows_of(2), np.arange(700) % 3
    assert len(grade._fitted(GradeFit(candidates=("linear",)), rows, folds, 3, None, None, 0)[0]) == 3
