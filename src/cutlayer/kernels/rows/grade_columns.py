"""Grades of rows as columns of 0 and 1, which models read, and as one byte a row, which crosses."""

from __future__ import annotations

from cutlayer.lazy import Tensor, torch


def columns_of_grades(grades: Tensor, width: int) -> Tensor:
    """Grades as columns: column i is 1 from grade i on.

    The first column is 1 of every grade, so that a row of zeros is none: it is a row of which nothing was sent. Grades
    without an order are read alike: a linear model of these columns is one of each grade's own column, and every row
    says which grade it has, whatever other rows are in its batch.

    Args:
        grades: int64 (n,), 0 to width - 1.
        width: Number of columns.

    Returns:
        float32 (n, width) of 0 and 1.
    """
    return (grades[:, None] >= torch.arange(width, device=grades.device)).float()


def grades_of_columns(columns: Tensor) -> Tensor:
    """Invert `columns_of_grades`, int64 (n,); of other numbers, grades that there may be."""
    return (columns.nan_to_num(0.0).sum(dim=1) - 1).clamp(0, columns.shape[1] - 1).long()
