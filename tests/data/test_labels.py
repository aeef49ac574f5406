from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import torch

from cutlayer.config.job import TaskKind
from cutlayer.data.labels import check_training_labels, encode_labels
from cutlayer.errors import DataError


def chunked(values: object, kind: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ([0, 1, 1, 0], ("0", "1")),
        ([-1.0, 1.0, 1.0, -1.0], ("-1", "1")),
        ([9, 10, 10, 9], ("9", "10")),
        (["<=50K", ">50K", ">50K", "<=50K"], ("<=50K", ">50K")),
        ([False, True, True, False], ("false", "true")),
        ([Decimal("0.5"), Decimal("1.5"), Decimal("1.5"), Decimal("0.5")], ("0.5", "1.5")),
        (pa.array(["no", "yes", "yes", "no"]).dictionary_encode(), ("no", "yes")),
    ],
)
def test_the_greater_value_is_positive(values: object, classes: tuple[str, str]) -> None:
    labels = encode_labels(chunked(values), "binary")
    assert labels.values.tolist() == [0, 1, 1, 0]
    assert labels.values.dtype == torch.int64
    assert labels.classes == classes


def test_classes_are_in_the_order_of_their_values() -> None:
    labels = encode_labels(chunked([10, 9, 2, 9]), "multiclass")
    assert (labels.values.tolist(), labels.classes) == ([2, 1, 0, 1], ("2", "9", "10"))
    ratings = encode_labels(chunked([0.5, 1.0, 1.5]), "multiclass")
    assert ratings.classes == ("0.5", "1", "1.5")


def test_targets() -> None:
    labels = encode_labels(chunked([1, 2, 5]), "regression")
    assert labels.values.dtype == torch.float32
    assert (labels.values.tolist(), labels.classes) == ([1, 2, 5], ())


def test_rows_choose_and_order() -> None:
    labels = encode_labels(chunked(["a", "b", "b", "a"]), "binary", rows=np.array([3, 1]))
    assert labels.values.tolist() == [0, 1]
    targets = encode_labels(chunked([0.5, 1.5, 2.5]), "regression", rows=np.array([2, 0]))
    assert targets.values.tolist() == [2.5, 0.5]


@pytest.mark.parametrize("rows", [[0, 2], [1], []], ids=str)
def test_classes_and_errors_are_those_of_the_whole_table(rows: list[int]) -> None:
    """A partner has a part in which rows are common: what fails must not tell their labels."""
    assert encode_labels(chunked(["a", "b", "a"]), "binary", rows=np.array(rows, int)).classes == ("a", "b")
    for values, task, message in (
        (["a", None, "a"], "binary", "a label in every row, got none in 1 rows, the first is row 1"),
        (["a", "b", "c"], "binary", "two classes for task binary"),
        ([0.0, float("inf"), 1.0], "regression", "finite labels, got inf in row 1"),
    ):
        with pytest.raises(DataError, match=message):
            encode_labels(chunked(values), task, rows=np.array(rows, int))  # type: ignore[arg-type]


MANY = np.linspace(0, 1, 300)


@pytest.mark.parametrize(
    ("values", "task", "message"),
    [
        ([0, None, 1], "binary", "none in 1 rows, the first is row 1"),
        ([0.0, 1.0, float("nan")], "binary", "none in 1 rows, the first is row 2"),
        ([1.0, float("nan")], "regression", "none in 1 rows, the first is row 1"),
        ([1, 1, 1], "binary", "two classes or more, got only '1'"),
        (["a", "a"], "multiclass", "two classes or more, got only 'a'"),
        (["a", "a"], "binary", "all the rows?; in a CSV file NA, NaN, nan, null and ? are no labels"),
        (["a", None], "binary", "unlabelled: drop; in a CSV file NA, NaN, nan, null and ? are no labels"),
        ([2.0, 2.0], "regression", "expected different labels, got 2 in all rows"),
        (["a", "b", "c"], "binary", "got 3 (a, b, c); set task: multiclass"),
        (MANY, "binary", "set task: regression"),
        (MANY, "multiclass", "300 different numbers (0, "),
        (["1", "2"], "regression", "expected numbers for task regression, got string"),
        ([True, False], "regression", "got bool"),
        ([1.0, float("inf")], "regression", "finite labels, got inf in row 1 (counted from 0); fix"),
        (
            [1.0, 1e300],
            "regression",
            "finite labels, got 1e+300 in row 1 (counted from 0), beyond the 3.4e+38 of float32",
        ),
        ([[1], [2]], "binary", "numbers, text or booleans, got list"),
    ],
)
def test_bad_labels(values: object, task: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        encode_labels(chunked(values), task, "labels")  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (pa.array([10, 9, 2, 9, 10]), "multiclass"),
        (pa.array(["yes", "no", "no", "yes", "yes"]), "binary"),
        (pa.array(["no", "yes", "yes", "no", "no"]).dictionary_encode(), "binary"),
        (pa.array([0.5, 2.0, 0.5, 1e9, 3.0]), "regression"),
    ],
)
def test_labels_in_pieces_are_those_of_the_whole_column(values: pa.Array, task: TaskKind) -> None:
    whole = encode_labels(pa.chunked_array([values]), task)
    parts = encode_labels(pa.chunked_array([values.slice(start, 2) for start in range(0, len(values), 2)]), task)
    assert (parts.classes, parts.kind) == (whole.classes, whole.kind)
    assert parts.values.dtype == whole.values.dtype
    assert torch.equal(parts.values, whole.values)


def test_the_row_named_is_the_tables_own() -> None:
    with pytest.raises(DataError, match="the first is row 2 "):
        encode_labels(chunked([0, 1, None]), "binary", rows=np.array([1, 2, 0]))
    with pytest.raises(DataError, match="none in 2 rows, the first is row 0 "):
        encode_labels(chunked([None, 1, None]), "binary", rows=np.array([2, 0, 1]))


def test_dates_are_no_targets() -> None:
    with pytest.raises(DataError, match="expected numbers, text or booleans, got date32"):
        encode_labels(chunked([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]), "regression")


def test_constant_in_training_only() -> None:
    labels = encode_labels(chunked([0, 0, 1]), "binary").values
    check_training_labels(labels[[0, 2]], "labels")
    with pytest.raises(DataError, match="different labels in the training rows"):
        check_training_labels(labels[[0, 1]], "labels")
