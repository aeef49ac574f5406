"""What an attack on features is: the active party's computation on the embeddings that one passive party sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar, final

import torch
from torch import Tensor

from cutlayer.attacks.base import is_finite
from cutlayer.attacks.for_tasks import ForTasks
from cutlayer.attacks.knowledge import Need
from cutlayer.data.encoding import ColumnSpec
from cutlayer.errors import NotApplicable
from cutlayer.kernels.one_hot import MOST, one_hot_columns

FEWEST = 20
"""Auxiliary rows below which nothing is fitted."""


@dataclass(frozen=True, eq=False)
class ActiveView:
    """What the active end of a link holds of some rows. There is no features field.

    Attributes:
        party: whose embeddings they are.
        rows: row numbers of the common order, int64 (n,).
        embeddings: as they were received, float32 (n, width).
        logits: its own top model's, float32 (n, outputs); `None` where they are not known.
        labels: its own, (n,); `None` where they are not known.
    """

    party: str
    rows: Tensor
    embeddings: Tensor
    logits: Tensor | None = None
    labels: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Auxiliary:
    """Rows whose features the attacker knows, and how the columns are encoded.

    Attributes:
        columns: their shape and names.
        places: of the rows in the view, distinct, int64 (m,).
        codes, numbers: their encoded features, int32 (m, c) and float32 (m, d), the pixels of an image last.
    """

    columns: ColumnSpec
    places: Tensor
    codes: Tensor
    numbers: Tensor

    def others(self, rows: int) -> Tensor:
        """Places of the view's other rows, ascending, int64.

        Args:
            rows: of the view.
        """
        unknown = torch.ones(rows, dtype=torch.bool)
        unknown[self.places] = False
        return unknown.nonzero().flatten()


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Features as an attack rebuilt them.

    Attributes:
        rows: row numbers of the common order, int64 (n,).
        values: in encoded units, float32 (n, columns), laid out as `encoded_matrix` does.
    """

    rows: Tensor
    values: Tensor


def encoded_matrix(columns: ColumnSpec, codes: Tensor, numbers: Tensor) -> Tensor:
    """Encoded features as one matrix: the numbers, the pixels of an image, then each category one-hot.

    Args:
        codes: int (n, c). numbers: float32 (n, d), pixels last.
    """
    return one_hot_columns(codes.long(), numbers, columns.cardinalities)


def encoded_places(columns: ColumnSpec) -> dict[str, slice]:
    """Where each column, the image as one, stands in `encoded_matrix`, by name."""
    names = columns.number_names or tuple(f"number {place}" for place in range(columns.numeric))
    places = {name: slice(place, place + 1) for place, name in enumerate(names)}
    start = columns.numeric
    if columns.image is not None:
        places["image"] = slice(start, start + columns.image.pixels)
        start += columns.image.pixels
    kinds = columns.category_names or tuple(f"category {place}" for place in range(len(columns.cardinalities)))
    for name, count in zip(kinds, columns.cardinalities, strict=True):
        places[name] = slice(start, start + min(count, MOST))
        start += min(count, MOST)
    return places


K = TypeVar("K")
R = TypeVar("R")


class FeatureAttack(ForTasks, ABC, Generic[K, R]):
    """A computation of the active party. The call is final and validates; an author writes `check` and `run`.

    Class attributes:
        name: as in `audit.attacks` of a passive party, which owns what is looked for. reference: paper and section.
        reads, needs, tasks, live: as in `Attack`.
    """

    name: ClassVar[str]
    reference: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ("embedding",)
    needs: ClassVar[frozenset[Need]] = frozenset({Need.AUXILIARY_FEATURES})
    tasks: ClassVar[frozenset[str]] = frozenset({"binary", "multiclass", "regression"})
    live: ClassVar[bool] = False

    @final
    def __call__(self, view: ActiveView, knowledge: K, seed: int) -> R:
        """Attack the view's rows.

        Args:
            view: what the attacker holds.
            knowledge: what it knows besides.
            seed: of every draw; the process's random state is left as it was.

        Raises:
            NotApplicable: the view or the knowledge does not fit; says which and why.
        """
        if view.embeddings.dim() != 2 or len(view.embeddings) != len(view.rows):
            wanted = f"embeddings (n, width) of {len(view.rows)} rows for {self.name}"
            raise NotApplicable.expected(wanted, tuple(view.embeddings.shape))
        if not is_finite(view.embeddings):
            raise NotApplicable.expected(f"finite embeddings for {self.name}", "NaN or infinity", "training diverged")
        self.check(view, knowledge)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.run(view, knowledge)

    @abstractmethod
    def check(self, view: ActiveView, knowledge: K) -> None:
        """Raise `NotApplicable` if the attack lacks something."""

    @abstractmethod
    def run(self, view: ActiveView, knowledge: K) -> R:
        """The attack itself; it draws from the global random state, which `__call__` has seeded."""


def check_auxiliary(name: str, view: ActiveView, known: Auxiliary) -> None:
    """Raise `NotApplicable` unless there are auxiliary rows to fit on and others to try on."""
    if len(known.places) < FEWEST or len(known.places) >= len(view.rows):
        wanted = f"{FEWEST} auxiliary rows or more for {name}, and other rows to try them on"
        got = f"{len(known.places)} of {len(view.rows)} rows"
        raise NotApplicable.expected(wanted, got, "raise audit.rows")
    if len(known.codes) != len(known.places) or len(known.numbers) != len(known.places):
        raise NotApplicable.expected(
            f"the features of all {len(known.places)} auxiliary rows for {name}",
            f"{len(known.codes)} rows of codes and {len(known.numbers)} of numbers",
        )
