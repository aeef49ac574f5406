"""The training rows of a model that is fitted at once, and the interface of its parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from cutlayer.workers import map_in_threads

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

Float64Buffer: TypeAlias = Annotated[Tensor, torch.float64]
Float32Buffer: TypeAlias = Annotated[Tensor, torch.float32]
Int64Buffer: TypeAlias = Annotated[Tensor, torch.int64]
UInt8Buffer: TypeAlias = Annotated[Tensor, torch.uint8]

MIN_LOG_PROBABILITY = -30.0
"""Log probability of a class without a training row."""


@dataclass(frozen=True)
class FitRows:
    """Rows with their targets.

    Attributes:
        codes: Category codes, int64 (n, c).
        numbers: Numbers, float32 (n, m); NaN where one is missing.
        cardinalities: Number of codes of each categorical column.
        targets: Class codes, int64 (n,), or standardised targets of a regression, float64 (n,).
        classes: Number of classes; 0 for a regression.
        weights: Weights of the rows, float64 (n,), of mean about 1; `None` where all weigh the same.
        power: Power of the mean that the variance follows, of targets on the log link; `None` for squared errors.
    """

    codes: Integers
    numbers: npt.NDArray[np.float32]
    cardinalities: tuple[int, ...]
    targets: npt.NDArray[Any]
    classes: int
    weights: Floats | None = None
    power: float | None = None

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def present(self) -> Integers:
        """Codes of the classes that have a row with a weight, ascending."""
        weighted = self.targets if self.weights is None else self.targets[self.weights > 0]
        return np.flatnonzero(np.bincount(weighted))

    @property
    def positions(self) -> Tensor:
        """Place of each class among those present, int64 (classes,), and after them of a class that is not."""
        present = torch.from_numpy(self.present)
        return torch.full((self.classes,), len(present)).index_copy_(0, present, torch.arange(len(present)))

    def targets_of(self, rows: Integers) -> FitRows:
        """Some of the rows without their columns."""
        return replace(self, codes=self.codes[:, :0], numbers=self.numbers[:, :0]).take(rows)

    def take(self, rows: Integers) -> FitRows:
        """Some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(
            self, codes=self.codes[rows], numbers=self.numbers[rows], targets=self.targets[rows], weights=weights
        )


class FittedPart(nn.Module, ABC):
    """A fitted model: buffers alone, and so plain tensors on disk; their shapes come with the fit.

    Its class declares them with their dtypes; those of an unfitted model are empty.

    Attributes:
        kind: Name in a checkpoint.
    """

    kind: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        for name, declared in get_annotations(type(self), eval_str=True).items():
            for dtype in getattr(declared, "__metadata__", ()):
                self.register_buffer(name, torch.zeros(0, dtype=dtype))

    @abstractmethod
    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predict.

        Args:
            codes: int64 (n, c).
            numbers: float32 (n, m), NaN where missing.

        Returns:
            Log probabilities, float64 (n, classes), or standardised values, float64 (n, 1); of a target on the log
            link their logarithms.
        """

    def hold(self, **tensors: Tensor) -> None:
        """Set buffers."""
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    def predicted(self, rows: FitRows, size: int = 8192) -> Floats:
        """Predictions of rows, as `forward` returns them."""

        def part(start: int) -> Tensor:
            at = slice(start, start + size)
            with torch.no_grad():  # which is a setting of this thread
                predicted: Tensor = self(torch.from_numpy(rows.codes[at]), torch.from_numpy(rows.numbers[at]))
            return predicted

        return torch.cat(map_in_threads(part, range(0, max(len(rows), 1), size))).numpy()

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in self._buffers.items():
            saved = state_dict.get(prefix + name)
            if saved is not None and buffer is not None:
                self._buffers[name] = buffer.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class OwnColumns(FittedPart):
    """A model of the label owner's columns alone, among models that read those of partners too.

    Attributes:
        numbers: Which of the numbers it reads, int64 (k,).

    Args:
        part: The model.
    """

    numbers: Int64Buffer

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part
        self.kind = f"{self.PREFIX}{part.kind}"  # type: ignore[misc]

    PREFIX: ClassVar[str] = "own "

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predict; see `FittedPart.forward`."""
        return cast("Tensor", self.part(codes, numbers[:, self.numbers]))


def log_shares(shares: Tensor, positions: Tensor) -> Tensor:
    """Log probabilities (n, classes) of shares (n, present) of the classes with a row; see `FitRows.positions`."""
    known = shares.log().clamp_min(MIN_LOG_PROBABILITY)
    return torch.cat([known, torch.full_like(known[:, :1], MIN_LOG_PROBABILITY)], dim=1)[:, positions]


def with_exchanged_columns(
    codes: Tensor, numbers: Tensor, columns: Sequence[int], orders: Tensor
) -> tuple[Tensor, Tensor]:
    """Codes (r * n, c) and numbers (r * n, m) of n rows where some columns have the values of other rows.

    Args:
        codes: int64 (n, c).
        numbers: Floating (n, m).
        columns: Numbers of the columns, codes first.
        orders: Rows whose values they have, int64 (r, n), in r orders; all rows in the first order come first.
    """
    whole = torch.cat([codes.double(), numbers.double()], dim=1).repeat(len(orders), 1)
    for column in columns:
        whole[:, column] = whole[:, column][orders.reshape(-1)]
    return whole[:, : codes.shape[1]].long(), whole[:, codes.shape[1] :].to(numbers.dtype)


def code_offsets(cardinalities: tuple[int, ...]) -> Tensor:
    """Number of the first code of each categorical column, where the codes of all columns have one numbering."""
    sizes = torch.tensor(cardinalities, dtype=torch.int64)
    return sizes.cumsum(0) - sizes


def frequency_ranks(codes: Integers, cardinality: int, most: int, min_rows: int = 1) -> tuple[Integers, int]:
    """Rank of each code of a column by its number of rows, the most frequent first.

    Args:
        codes: Codes of the rows, (n,).
        cardinality: Number of codes.
        most: Maximum number of codes with a rank of their own.
        min_rows: Minimum number of rows of such a code.

    Returns:
        Rank of each code, int64 (cardinality,), and the number of codes with a rank of their own, which is the rank of
        all other codes.
    """
    counts = np.bincount(codes, minlength=cardinality)
    order = np.argsort(-counts, kind="stable")
    common = order[:most][counts[order[:most]] >= max(min_rows, 1)]
    ranks = np.full(cardinality, len(common), dtype=np.int64)
    ranks[common] = np.arange(len(common))
    return ranks, len(common)
