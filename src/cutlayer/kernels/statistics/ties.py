"""Scores that differ by rounding alone are made equal, so that no rank depends on the last bit of the input."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.lazy import Tensor, torch

RESOLUTION = 1e-6
"""Relative difference below which two numbers computed from float32 values count as equal: about eight units in the
last place, more than the kernels of different processors disagree by."""

_MAX_WIDTH = 4.0
"""Widest group, in tolerances: scores that lie close to each other all along their range must not become one group."""


def merge_ties(values: Tensor, scale: Tensor | float = 0.0) -> Tensor:
    """Replace scores that differ by rounding alone by one value, the lowest of them.

    The AUC ranks scores, so two scores that are equal in theory and differ in the last bit count as if one were really
    the higher: gradients of one length after clipping, or cosines of collinear rows, then give an AUC that depends on
    the processor and on the alignment of the tensor. Rounding scores to a grid would not help, since equal scores can
    lie on either side of a grid's border. Here neighbours in the sorted order are joined where they are at most a
    tolerance apart, `RESOLUTION` times the larger of their own size and `scale`; a group is cut where it would be wider
    than four tolerances.

    Args:
        values: float (n,) or (n, columns), finite; columns are merged each on its own.
        scale: Size of the terms whose sum or difference each score is, float (n,), or one number for all rows: 1 for
            cosines and log-odds, the length of the row for its projection. 0 where no terms cancel.

    Returns:
        float64, of the shape of `values`.

    >>> merge_ties(torch.tensor([1.0, 0.5, 1.0 - 1e-9], dtype=torch.float64)).tolist()
    [0.999999999, 0.5, 0.999999999]
    """
    return merge_ties_each(values[None], torch.as_tensor(scale, dtype=torch.float64).expand(1, len(values)))[0]


def merge_ties_each(values: Tensor, scale: Tensor) -> Tensor:
    """`merge_ties` of several batches at once, each on its own.

    Args:
        values: float (b, n) or (b, n, columns), finite.
        scale: As in `merge_ties`, float (b, n).

    Returns:
        float64, of the shape of `values`.
    """
    if not values.numel():
        return values.double()
    several = values.detach().double().flatten(2) if values.dim() > 2 else values.detach().double()[..., None]
    columns = np.ascontiguousarray(several.transpose(1, 2).numpy())
    sizes = scale.detach().double().cpu().numpy()[:, None]
    # Equal values of equal size have equal tolerances, so that their order says nothing, and the faster sort will do.
    stable = not (sizes == sizes[..., :1]).all()
    merged = _merged(columns, RESOLUTION * np.maximum(np.abs(columns), sizes), stable=stable)
    return torch.from_numpy(merged).transpose(1, 2).reshape(values.shape)


def _merged(
    values: npt.NDArray[np.float64], tolerance: npt.NDArray[np.float64], *, stable: bool
) -> npt.NDArray[np.float64]:
    """Values (..., n) without ties; the sort has to be stable where equal values have different tolerances."""
    order = np.argsort(values, axis=-1, kind="stable" if stable else "quicksort")
    ordered = np.take_along_axis(values, order, -1)
    tolerance = np.take_along_axis(tolerance, order, -1)
    first = np.ones((*values.shape[:-1], values.shape[-1] + 1), np.bool_)  # of its group; the last entry ends the last
    first[..., 1:-1] = np.diff(ordered) > np.maximum(tolerance[..., 1:], tolerance[..., :-1])
    grouped = ~(first[..., :-1] & first[..., 1:])  # few of many scores have a neighbour as near
    if not grouped.any():
        return values.copy()
    ordered = ordered[grouped]
    tolerance = tolerance[grouped]
    starts = first[..., :-1][grouped]
    width = _MAX_WIDTH * _lowest(tolerance, starts)
    apart = ordered - _lowest(ordered, starts)
    part = np.floor(np.divide(apart, width, out=np.zeros_like(apart), where=width > 0))
    starts[1:] |= np.diff(part) != 0
    merged = values.copy()
    merged[(*np.nonzero(grouped)[:-1], order[grouped])] = _lowest(ordered, starts)
    return merged


def _lowest(ordered: npt.NDArray[np.float64], starts: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """The first entry of each entry's group, (n,); `starts` says where a group starts, bool (n,)."""
    return ordered[np.maximum.accumulate(np.where(starts, np.arange(len(ordered)), 0))]
