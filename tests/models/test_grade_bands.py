"""Borders of grades: as many as the noise and the number of rows allow."""

from __future__ import annotations

import pytest
import torch

from cutlayer.models.bottom_fits.grade import ROWS_A_GRADE, borders_of


@pytest.mark.parametrize("are_numbers", [False, True])
def test_few_rows_have_few_grades(*, are_numbers: bool) -> None:
    scores = torch.linspace(-2, 2, 5 * ROWS_A_GRADE, dtype=torch.float64)[:, None]
    assert len(borders_of(scores, 8.0, 16, 0, are_numbers=are_numbers)) + 1 == 5
    assert len(borders_of(scores[::5], 8.0, 16, 0, are_numbers=are_numbers)) + 1 == 2
    assert len(borders_of(scores.repeat(4, 1), 8.0, 16, 0, are_numbers=are_numbers)) + 1 == 16
    assert len(borders_of(scores.repeat(4, 1), 4.0, 16, 0, are_numbers=are_numbers)) + 1 == 4
