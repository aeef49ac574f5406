"""The family of attacks on features: the active party's computation on the embeddings of one passive party."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic

from cutlayer.attacks.base import Attack, Result
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge, Need, Shadows
from cutlayer.attacks.label.base import is_finite
from cutlayer.errors import NotApplicable
from cutlayer.kernels.rows.one_hot import MAX_COLUMNS, one_hot_columns
from cutlayer.lazy import Tensor, torch

if TYPE_CHECKING:
    from cutlayer.data.encoded import ColumnSpec


MIN_ROWS = 20
"""Minimum number of rows to fit anything on."""


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Features that an attack reconstructed.

    Attributes:
        rows: Row numbers of the common order, int64 (n,).
        values: Features in encoded units, float32 (n, columns), laid out as `encoded_matrix` does.
    """

    rows: Tensor
    values: Tensor


def encoded_matrix(columns: ColumnSpec, codes: Tensor, numbers: Tensor) -> Tensor:
    """Encoded features as one matrix: the numbers, the pixels of an image, then each category one-hot.

    Args:
        columns: Shape of the columns.
        codes: Codes of the categories, int (n, c).
        numbers: Numbers, float32 (n, d), pixels last.
    """
    return one_hot_columns(codes.long(), numbers, columns.cardinalities)


def encoded_slices(columns: ColumnSpec) -> dict[str, slice]:
    """The slice of each column of the table, the image as one, in `encoded_matrix`, by name."""
    names = columns.number_names or tuple(f"number {index}" for index in range(columns.numeric))
    slices = {name: slice(index, index + 1) for index, name in enumerate(names)}
    start = columns.numeric
    if columns.image is not None:
        slices["image"] = slice(start, start + columns.image.pixels)
        start += columns.image.pixels
    categories = columns.category_names or tuple(f"category {index}" for index in range(len(columns.cardinalities)))
    for name, count in zip(categories, columns.cardinalities, strict=True):
        slices[name] = slice(start, start + min(count, MAX_COLUMNS))
        start += min(count, MAX_COLUMNS)
    return slices


class FeatureAttack(Attack[FeatureView, Result], ABC, Generic[Result]):
    """Infers features of the view's rows, or which of them were training rows.

    What an attack returns decides how the audit measures it: a `Reconstruction` or `Inferences` against the features of
    the rows that are not auxiliary, `Readings` against those of all rows, `Scores` against which rows were training
    rows.

    Class attributes:
        reads_own: Whether it reads what the attacker holds of the rows besides, `FeatureView.own`. No other attack has
            that.
    """

    reads_own: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ("embedding",)
    needs: ClassVar[frozenset[Need]] = frozenset({Need.AUXILIARY_FEATURES})
    tasks: ClassVar[frozenset[str]] = frozenset({"binary", "multiclass", "regression"})

    def check(self, view: FeatureView, knowledge: Knowledge) -> None:
        """Raise `NotApplicable` if the embeddings, or the rows that the attacker knows, do not fit."""
        if view.embeddings.dim() != 2 or len(view.embeddings) != len(view.rows):
            wanted = f"embeddings (n, width) of {len(view.rows)} rows for {self.name}"
            raise NotApplicable.expected(wanted, tuple(view.embeddings.shape))
        if not is_finite(view.embeddings):
            raise NotApplicable.expected(f"finite embeddings for {self.name}", "NaN or infinity", "training diverged")
        super().check(view, knowledge)
        if self.needs & {Need.AUXILIARY_FEATURES, Need.INITIAL_WEIGHTS, Need.SIMULATOR}:
            self._check_auxiliary(view, knowledge.auxiliary)
        if self.needs & {Need.SHADOW_ROWS, Need.CANDIDATE_ROWS}:
            self._check_shadows(view, knowledge.shadows)

    def _check_auxiliary(self, view: FeatureView, known: Auxiliary) -> None:
        """There are auxiliary rows to fit on, and other rows to attack."""
        count = len(known.indices)
        if count < MIN_ROWS or count >= len(view.rows):
            wanted = f"{MIN_ROWS} auxiliary rows or more for {self.name}, and other rows to attack"
            raise NotApplicable.expected(wanted, f"{count} of {len(view.rows)} rows", "raise audit.rows")
        if len(known.codes) != count or len(known.numbers) != count:
            raise NotApplicable.expected(
                f"the features of all {count} auxiliary rows for {self.name}",
                f"{len(known.codes)} rows of codes and {len(known.numbers)} of numbers",
            )

    def _check_shadows(self, view: FeatureView, shadows: Shadows) -> None:
        """There are logits and labels of the rows, and enough rows for the shadows that are not attacked."""
        if view.logits is None or view.labels is None:
            raise NotApplicable.expected(f"logits and labels of the rows for {self.name}", "embeddings alone")
        if len(shadows.rows) < 2 * MIN_ROWS:
            raise NotApplicable.expected(f"{2 * MIN_ROWS} shadow rows or more for {self.name}", len(shadows.rows))
        if bool(torch.isin(shadows.rows, view.rows).any()):
            raise NotApplicable.expected(f"shadow rows that are not attacked for {self.name}", "some that are")
