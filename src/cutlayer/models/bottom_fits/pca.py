"""Principal components of the encoded columns, as the weights of a linear bottom model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from cutlayer.config import FrozenModel
from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor, torch
from cutlayer.models.bottom_fits.base import Fit, TrainingColumns

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel


class PcaFit(FrozenModel):
    """The principal components of the encoded columns, at most 4,096 with one for each category."""

    kind: Literal["pca"] = "pca"


MAX_COLUMNS = 4096
"""Columns, each category being one: their covariance is 134 MB, and its eigenvectors take a minute."""
_CHUNK = 1024


def fit_pca(_settings: PcaFit, bottom: BottomModel, columns: TrainingColumns) -> tuple[float, ...]:
    """Set a linear bottom model to the projection on the components of largest variance.

    The columns are the numbers as encoded and a column of zeros and ones for each category, all centred on their means
    over the training rows. The embedding's columns are the scores, in falling order of variance. The largest weight of
    each component is positive, so that the signs do not depend on the library.

    Returns:
        The share of the variance that is lost.

    Raises:
        ConfigError: Another kind of bottom model, more components than columns or rows, or too many columns.
    """
    from cutlayer.models.linear import LinearBottom

    if not isinstance(bottom, LinearBottom):
        raise ConfigError.expected("a bottom model of kind linear for fit pca", type(bottom).__name__)
    max_components = min(columns.total, len(columns.rows))
    if bottom.width > max_components:
        wanted = f"model.bottom.width of at most {max_components}, the columns and rows there are, for fit pca"
        raise ConfigError.expected(wanted, bottom.width, "lower it")
    if columns.total > MAX_COLUMNS:
        remedy = "lower features.categories.max_codes, or fit a sketch"
        raise ConfigError.expected(f"at most {MAX_COLUMNS:,} columns for fit pca", f"{columns.total:,}", remedy)
    mean = sum((part.sum(0) for part in _one_hot_chunks(columns)), torch.zeros((), dtype=torch.float64)) / len(
        columns.rows
    )
    covariance = torch.zeros(columns.total, columns.total, dtype=torch.float64)
    for part in _one_hot_chunks(columns):
        centred = part - mean
        covariance.addmm_(centred.T, centred)
    values, vectors = torch.linalg.eigh(covariance)
    weights = vectors.flip(1)[:, : bottom.width]
    largest = weights.gather(0, weights.abs().argmax(0, keepdim=True))
    weights = weights * torch.where(largest < 0, -1.0, 1.0)
    bottom.assign(weights.float(), -(mean @ weights).float())
    total = float(values.clamp(min=0).sum())
    explained = float(values.flip(0)[: bottom.width].clamp(min=0).sum())
    return (1 - explained / total if total else 0.0,)


def _one_hot_chunks(columns: TrainingColumns) -> Iterator[Tensor]:
    """The training rows with a column per category, float64 (n, d), a chunk at a time."""
    starts = torch.tensor([0, *columns.inputs.cardinalities[:-1]]).cumsum(0)
    hot = sum(columns.inputs.cardinalities)
    for rows in torch.split(columns.rows, _CHUNK):
        codes, numbers = columns.gather(rows)
        dense = torch.zeros(len(rows), columns.total, dtype=torch.float64)
        if columns.inputs.cardinalities:
            dense.scatter_(1, codes.long() + starts, 1.0)
        dense[:, hot:] = numbers
        yield dense


PCA = Fit(PcaFit, fit_pca, bottom="linear")
