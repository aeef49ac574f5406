"""One-vs-rest AUC of several classes, averaged over the classes, and its resampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.errors import ConfigError, DataError
from cutlayer.kernels.bootstrap import _aucs, _merged
from cutlayer.kernels.roc import roc_auc, tie_groups

_NUMBERS_AT_A_TIME = 1 << 20


def macro_auc(scores: Tensor, codes: Tensor) -> float:
    """Mean over the classes of the AUC of one class against the rest.

    Args:
        scores: float (n, classes), column c higher meaning "class c"; infinities allowed.
        codes: int64 (n,), each row's class.

    Returns:
        0 to 1; classes without rows are left out; NaN where all rows are of one class.

    Raises:
        DataError: the shapes do not fit, or a score is NaN.

    >>> import torch
    >>> macro_auc(torch.eye(3), torch.tensor([0, 1, 2]))
    1.0
    """
    _check(scores, codes)
    aucs = [roc_auc(scores[:, code], codes == code) for code in range(scores.shape[1])]
    known = [auc for auc in aucs if not np.isnan(auc)]
    return float(np.mean(known)) if known else float("nan")


def macro_auc_replicates(scores: Tensor, codes: Tensor, repeats: int = 1000, seed: int = 0) -> npt.NDArray[np.float64]:
    """Macro AUC of bootstrap resamples of the rows.

    A row is drawn with all its scores, so that the correlation between the classes' AUCs is kept. Each class is sorted
    once, neighbours merged as in `auc_replicates`; a resample only decides how often each row counts.

    Args:
        scores, codes: as `macro_auc`.
        repeats: resamples, 1 or more.
        seed: of its own random generator; the same seed gives the same numbers.

    Returns:
        float64 (repeats,), NaN where a resample holds one class only.

    Raises:
        ConfigError: repeats is out of range.
        DataError: as `macro_auc`.
    """
    if repeats < 1:
        raise ConfigError.expected("repeats >= 1", repeats, "1000 is usual")
    _check(scores, codes)
    rows = len(codes)
    if not bool((codes[1:] != codes[:-1]).any()):
        return np.full(repeats, np.nan)
    classes = [_Cells.of(scores[:, code], codes == code) for code in range(scores.shape[1])]
    generator = np.random.default_rng(seed)
    at_a_time = max(1, _NUMBERS_AT_A_TIME // max(rows, 1))
    parts = []
    for start in range(0, repeats, at_a_time):
        size = min(at_a_time, repeats - start)
        drawn = generator.integers(rows, size=(size, rows)) * size + np.arange(size)[:, None]
        counts = torch.from_numpy(np.bincount(drawn.ravel(), minlength=rows * size)).to(torch.float32)
        parts.append(_means(np.stack([one.aucs(counts.reshape(rows, size)) for one in classes])))
    return np.concatenate(parts)


@dataclass(frozen=True)
class _Cells:
    """Rows grouped by their score for one class, as in `kernels.bootstrap`; positives' cells before the others'.

    Attributes:
        cell: of each row, int64 (n,).
        inner: AUC of the pairs inside each group of neighbouring scores.
    """

    cell: Tensor
    inner: npt.NDArray[np.float64]

    @classmethod
    def of(cls, values: Tensor, positive: Tensor) -> _Cells:
        groups, inner = _merged(tie_groups(values, positive))
        group = np.empty(len(values), np.int64)
        group[np.argsort(values.numpy())] = np.repeat(np.arange(len(inner)), groups.positives + groups.negatives)
        return cls(torch.from_numpy(group + len(inner) * ~positive.numpy()), inner)

    def aucs(self, counts: Tensor) -> npt.NDArray[np.float64]:
        """AUC in every resample; counts float32 (n, resamples), exact below 2^24."""
        sums = counts.new_zeros(2 * len(self.inner), counts.shape[1]).index_add_(0, self.cell, counts)
        return _aucs(sums.T.numpy().astype(np.int64), self.inner)


def _means(aucs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Mean over the classes (axis 0) that have an AUC."""
    missing = np.isnan(aucs)
    known = (~missing).sum(axis=0)
    total = np.where(missing, 0.0, aucs).sum(axis=0)
    means: npt.NDArray[np.float64] = np.divide(total, known, out=np.full(len(known), np.nan), where=known > 0)
    return means


def _check(scores: Tensor, codes: Tensor) -> None:
    if scores.dim() != 2 or codes.dim() != 1 or len(scores) != len(codes):
        raise DataError.expected(
            "scores (n, classes) and codes (n,)", f"shapes {tuple(scores.shape)} and {tuple(codes.shape)}"
        )
    if bool(scores.isnan().any()):
        raise DataError.expected("scores without NaN", "NaN", "leave out the rows that were not scored")
