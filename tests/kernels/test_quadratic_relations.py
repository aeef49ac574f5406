"""The part of a span that one-hot columns fill."""

from __future__ import annotations

import numpy as np
import pytest

from cutlayer.kernels.fits import two_valued
from cutlayer.kernels.fits.quadratic_relations import MAX_RANK, one_hot_part

LEVELS, NUMBERS = (5, 4, 3), 3


def mixed(rows: int = 1_500, levels: tuple[int, ...] = LEVELS, numbers: int = NUMBERS) -> tuple[np.ndarray, np.ndarray]:
    """A rotation of one-hot columns and numbers, and the one-hot columns."""
    draw = np.random.default_rng(0)
    hot = np.concatenate([np.eye(count)[draw.integers(count, size=rows)] for count in levels], axis=1)
    table = np.concatenate([hot, draw.exponential(size=(rows, numbers))], axis=1)
    turn, _ = np.linalg.qr(draw.normal(size=(table.shape[1],) * 2))
    return (table @ turn).astype(np.float32).astype(float), hot


def left_of(columns: np.ndarray, basis: np.ndarray) -> float:
    """Largest share of a centred column that a basis and the constant leave."""
    whole = np.column_stack([np.ones(len(basis)), basis])
    rest = columns - whole @ np.linalg.lstsq(whole, columns, rcond=None)[0]
    return float(np.square(rest).sum() / np.square(columns - columns.mean(axis=0)).sum())


def test_numbers_drop_out_and_categories_stay():
    release, hot = mixed()
    part = one_hot_part(release, np.random.default_rng(1))
    assert part is not None
    assert part.shape == (1_500, sum(LEVELS) - len(LEVELS))
    assert left_of(hot, part) < 1e-8
    assert left_of(release, part) > 0.1


@pytest.mark.parametrize(
    "release",
    [
        np.random.default_rng(0).exponential(size=(1_000, 6)),
        mixed(numbers=0)[0],
        mixed(rows=100)[0],
        np.random.default_rng(0).normal(size=(4_000, MAX_RANK + 1)),
        np.ones((100, 2)),
    ],
    ids=["numbers alone", "categories alone", "few rows", "too wide", "constant"],
)
def test_nothing_is_divided(release: np.ndarray):
    assert one_hot_part(release, np.random.default_rng(1)) is None


def test_a_search_that_stops_goes_on_in_the_part(monkeypatch: pytest.MonkeyPatch):
    search = two_valued._search

    def of_categories_alone(span: two_valued._Span, generator: np.random.Generator) -> np.ndarray:
        inside = span.rank <= 1 + sum(LEVELS) - len(LEVELS)
        return search(span, generator) if inside else np.zeros((len(span.basis), 0), bool)

    monkeypatch.setattr(two_valued, "_search", of_categories_alone)
    release, hot = mixed()
    found, certain = two_valued.two_valued_vectors(release, np.random.default_rng(0))
    read = {column.tobytes() for column in found[:, certain].T}
    assert all((column > 0).tobytes() in read for column in hot.T if column.mean() < 0.5)
