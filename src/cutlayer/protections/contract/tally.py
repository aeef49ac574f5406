"""Sums of what protections count, which stay on a GPU until they are read."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from cutlayer.lazy import Tensor

K = TypeVar("K", bound=Hashable)


class Tally(Generic[K]):
    """Sums by name.

    An amount that is a tensor is added on its device, so that a step that counts does not wait for a GPU.

    Args:
        start: The sums to begin with; what it raises for an amount of another name is raised.
    """

    def __init__(self, start: dict[K, float]) -> None:
        self._sums, self._there = start, dict[K, Any]()

    def add(self, name: K, amount: float | Tensor) -> None:
        """Add an amount, a number or a tensor without axes."""
        if not isinstance(amount, Tensor) and name not in self._there:
            self._sums[name] += amount
            return
        if isinstance(amount, Tensor):
            amount = amount.detach().double() if amount.is_floating_point() else amount.long()
        # One sum from the first amount to the last, so that it does not depend on when it is read.
        self._there[name] = self._there.get(name, self._sums[name]) + amount

    @property
    def sums(self) -> dict[K, float]:
        """The sums, read from wherever they are."""
        for name, total in self._there.items():
            self._sums[name] = total.item()
        return self._sums
