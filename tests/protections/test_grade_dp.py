"""Draws of grades: as often changed as epsilon says, among as many grades as it leaves, and once for each row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cutlayer.kernels.rows.grade_columns import columns_of_grades, grades_of_columns
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.contract.views import Mode, PassiveView
from tests.protections.setup import protection

ROWS, WIDTH = 20_000, 16
IDS = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (ROWS, 16), dtype=np.uint8))


def drawn(grades: torch.Tensor, epsilon: float, run: int = 0, key: bytes = b"") -> torch.Tensor:
    """Grades as they leave, int64 (n,), in a run with a noise key of its own."""
    noise = Noise(run.to_bytes(32, "little"))
    grade_dp = protection("grade_dp", {"epsilon": epsilon}, party="telco", peers=("bank",), noise=noise)
    if key:
        grade_dp.draw_by(key)
    rows = torch.arange(len(grades))
    view = PassiveView(Mode.TRAIN, -1, 0, rows, lambda rows: rows, ids=lambda wanted: IDS[wanted])
    return grades_of_columns(grade_dp.embedding_out(columns_of_grades(grades, WIDTH), view))


@pytest.mark.parametrize(("epsilon", "bands"), [(1.0, 2), (2.0, 2), (3.0, 3), (4.0, 4), (6.0, 8), (8.0, 16)])
def test_a_grade_is_kept_as_often_as_epsilon_says(epsilon: float, bands: int) -> None:
    """The rate of each other grade too: of a larger epsilon or another number of grades it is another."""
    grades = torch.arange(ROWS) % bands
    found = drawn(grades, epsilon)
    kept = np.exp(epsilon) / (bands - 1 + np.exp(epsilon))
    rates = np.bincount(((found - grades) % bands).numpy(), minlength=bands) / ROWS
    expected = np.array([kept, *[(1 - kept) / (bands - 1)] * (bands - 1)])
    assert int(found.max()) == bands - 1
    assert (np.abs(rates - expected) < 5 * np.sqrt(expected * (1 - expected) / ROWS)).all()


def test_many_runs_that_begin_again_are_one_draw() -> None:
    """Under keys of their own they would be as many draws, whose mean is the grade."""
    grade, key = torch.tensor([5]), bytes(range(32))
    assert len({int(drawn(grade, 8.0 / 4, run, key)) for run in range(200)}) == 1
    assert len({int(drawn(torch.tensor([1]), 2.0, run)) for run in range(100)}) == 2


def test_a_key_draws_as_another_does_not() -> None:
    grades = torch.zeros(ROWS, dtype=torch.int64)
    first, second = (drawn(grades, 1.0, key=bytes([part] * 32)) for part in (1, 2))
    both = float(((first == 1) & (second == 1)).double().mean())
    assert abs(both - (1 / (1 + np.e)) ** 2) < 0.02
