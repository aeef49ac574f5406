"""Columns that give the labels alone, at any party; and columns that do not, however many categories they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from cutlayer.alignment.held_rows import HeldRows
from cutlayer.audit.label_copies import LabelCopy, label_copies
from cutlayer.data.party_data import PartyTable

ROWS = 600
DRAW = np.random.default_rng(3)
LABELS = DRAW.permuted(np.arange(ROWS) % 5 == 0).astype(int)
NOISE = DRAW.normal(size=ROWS)


def copies(
    column: Any, labels: Any = LABELS, classes: int = 2, held: Mapping[str, np.ndarray] | None = None
) -> tuple[LabelCopy, ...]:
    rows = np.arange(ROWS)
    store = PartyTable("telco", pa.table({"x": column, "noise": NOISE})).prepare(rows, rows).store
    assert store is not None
    return label_copies({"telco": store}, HeldRows(held or {}), torch.from_numpy(np.asarray(labels)), classes)


def test_a_copy_by_another_name_is_found_whatever_it_is_called() -> None:
    for column in (LABELS, 7 - 3 * LABELS, np.where(LABELS, "yes", "no"), LABELS.astype(bool)):
        [copy] = copies(column)
        assert (copy.party, copy.column, copy.auc, copy.same) == ("telco", "x", 1.0, True)
        assert str(copy) == "it is the label under another name"


def test_a_number_that_a_threshold_divides_is_found_in_either_direction() -> None:
    for sign in (1, -1):
        [copy] = copies(sign * (NOISE.clip(-0.4, 0.4) + LABELS))
        assert (copy.column, copy.same) == ("x", False)
        assert str(copy) == "it gives the label alone, with an AUC of 1.0000"


def test_categories_that_each_have_one_label_are_found() -> None:
    [copy] = copies([f"{label}{row % 7}" for row, label in enumerate(LABELS)])
    assert not copy.same


def test_a_few_wrong_rows_are_a_near_copy_and_more_are_not() -> None:
    far = np.concatenate([NOISE[:200] - 9, NOISE[200:] - 9])
    column = np.where(LABELS == 1, -far, far)
    assert copies(column)
    wrong = column.copy()
    wrong[np.flatnonzero(LABELS)[:3]] *= -1
    assert not copies(wrong)


@pytest.mark.parametrize(
    "column",
    [
        [f"customer {row}" for row in range(ROWS)],
        [f"pair {row // 2}" for row in range(ROWS)],
        NOISE + LABELS,
        np.zeros(ROWS),
        pa.nulls(ROWS, pa.float64()),
    ],
    ids=["all differ", "pairs", "a good number", "constant", "none"],
)
def test_other_columns_are_not_found(column: Any) -> None:
    assert copies(column) == ()


def test_of_several_classes_each_has_to_be_known() -> None:
    classes = DRAW.integers(3, size=ROWS)
    [copy] = copies(np.array(list("abc"))[classes], classes, 3)
    assert copy.same
    assert copies(classes * 10, classes, 3)[0].same
    assert copies(np.array(list("aac"))[classes], classes, 3) == ()
    assert copies((classes == 2).astype(float) + 0.001 * NOISE, classes, 3) == ()


def test_a_target_is_compared_by_its_order() -> None:
    target = (3 * NOISE - 1).astype(np.float32)
    assert [copy.column for copy in copies(np.arange(ROWS) % 7, target, 0)] == ["noise"]
    assert copies(np.arange(ROWS) % 7, DRAW.normal(size=ROWS).astype(np.float32), 0) == ()


def test_rows_that_a_party_lacks_do_not_count() -> None:
    """They read as zeros, which would hide the copy."""
    present = np.where(np.arange(ROWS) % 2, np.arange(ROWS) // 2, -1)
    rows = np.arange(ROWS // 2)
    store = PartyTable("telco", pa.table({"x": np.where(LABELS[1::2], "yes", "no")})).prepare(rows, rows).store
    assert store is not None
    numbered = {"telco": store.numbered(torch.from_numpy(present))}
    labels = torch.from_numpy(LABELS)
    assert [copy.column for copy in label_copies(numbered, HeldRows({"telco": present}), labels, 2)] == ["x"]
    assert label_copies(numbered, HeldRows({}), labels, 2) == ()


def test_few_rows_of_a_class_say_nothing() -> None:
    labels = np.zeros(ROWS, int)
    labels[:4] = 1
    assert copies(labels, labels) == ()
    labels[:5] = 1
    assert copies(labels, labels)
