"""Grades of rows as columns of 0 and 1, which models read, and as one byte a row, which crosses."""

from __future__ import annotations

from cutlayer.lazy import Tensor, torch


def columns_of_grades(grades: Tensor, width: int, *, ordered: bool) -> Tensor:
    """Grades as columns.

    Args:
        grades: int64 (n,), 0 to width.
        width: Number of columns.
        ordered: Whether the grades have an order: a column is then 1 from its border on, else of its grade alone.

    Returns:
        float32 (n, width) of 0 and 1.
    """
    at = torch.arange(1, width + 1, device=grades.device)
    return ((grades[:, None] >= at) if ordered else (grades[:, None] == at)).float()


def grades_of_columns(columns: Tensor) -> Tensor:
    """Invert `columns_of_grades`, of either kind, int64 (n,)."""
    several = columns.sum(dim=1).long()
    last = columns.shape[1] - columns.flip(1).argmax(dim=1)
    return torch.where(several > 0, last, torch.zeros_like(several))


def are_ordered(columns: Tensor) -> bool:
    """Whether columns are those of grades in an order."""
    return torch.equal(columns_of_grades(grades_of_columns(columns), columns.shape[1], ordered=True), columns)
