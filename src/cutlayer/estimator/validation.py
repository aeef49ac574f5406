"""Validation of an estimator's input: tables as scikit-learn does it, and the key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from cutlayer.errors import ConfigError, DataError
from cutlayer.estimator.single_table import is_frame
from cutlayer.training.keys import KEY_BYTES

_MISSING: Any = object()
_ABSENT = frozenset({"NoneType", "NAType", "NaTType"})
"""Types of a missing label; pandas' own compares with nothing, and another is a NaN."""


class InputError(DataError, ValueError):
    """Bad data given to an estimator; a `ValueError` too, which scikit-learn's tools expect."""


class ParameterError(ConfigError, ValueError):
    """A parameter of an estimator that cannot be used; a `ValueError` too, which scikit-learn's tools expect."""


@contextmanager
def value_errors(parameters: Callable[[str], str] = str, data: Callable[[str], str] = str) -> Iterator[None]:
    """Raise errors of data and of parameters as `ValueError` too.

    Args:
        parameters: Puts an error of a parameter into other words.
        data: Puts an error of data into other words.
    """
    try:
        yield
    except (InputError, ParameterError):
        raise
    except DataError as failure:
        raise InputError(data(str(failure))) from failure
    except ConfigError as failure:
        raise ParameterError(parameters(str(failure))) from failure


@overload
def checked(estimator: BaseEstimator, table: Any) -> Any: ...
@overload
def checked(estimator: BaseEstimator, table: Any, labels: Any) -> tuple[Any, npt.NDArray[Any]]: ...
def checked(estimator: BaseEstimator, table: Any, labels: Any = _MISSING) -> Any:
    """Validate one table, and its labels when fitting; sets `n_features_in_` and `feature_names_in_` then.

    Frames stay as they are: their columns may be of any type. Arrays may have missing values.

    Args:
        estimator: Estimator that is fitted or predicts.
        table: DataFrame or array (n, columns).
        labels: Labels (n,), when fitting.

    Raises:
        ValueError: As scikit-learn's own estimators.
    """
    fitting = labels is not _MISSING
    if fitting and labels is None:
        raise InputError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    arguments: dict[str, Any] = {"reset": fitting, "dtype": None, "ensure_all_finite": "allow-nan"}
    if is_frame(table):
        arguments = {"reset": fitting, "skip_check_array": True}
    if not fitting:
        return validate_data(estimator, table, **arguments)
    table = validate_data(estimator, table, **arguments)
    column = column_or_1d(labels, warn=True)
    if is_classifier(estimator):
        _check_labels(column)
        check_classification_targets(column)
    elif not np.isfinite(np.asarray(column, dtype=np.float64)).all():
        raise InputError.expected("finite numbers in y", "NaN or infinity")
    if len(table) < 2:
        raise InputError.expected("rows to train on and to hold out", f"{len(table)} sample")
    if len(column) != len(table):
        raise InputError.expected(f"as many labels as the {len(table):,} rows of X", f"{len(column):,} inconsistent")
    return table, np.asarray(column)


def _check_labels(column: Any) -> None:
    """Refuse labels that are missing, which scikit-learn would call a regression's or of an unknown type."""
    if column.dtype != object:
        return
    missing = np.flatnonzero([type(value).__name__ in _ABSENT or value != value for value in column])
    if len(missing):
        got = f"none in {len(missing):,} rows, the first is row {missing[0]} (counted from 0)"
        raise InputError.expected("a label in every row of y", got, "drop the rows without one")


def checked_key(key: bytes | None) -> bytes | None:
    """The key, if it has the right length or is `None`; raises `ConfigError` otherwise."""
    if key is None or (isinstance(key, bytes) and len(key) == KEY_BYTES):
        return key
    got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
    raise ConfigError.expected(f"key as {KEY_BYTES} bytes", got, f"such as secrets.token_bytes({KEY_BYTES})")
