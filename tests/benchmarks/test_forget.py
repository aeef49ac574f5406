"""The benchmark of forgetting finds trained rows by their loss before, and forgotten ones no more."""

from __future__ import annotations

import pytest

from benchmarks import forget


@pytest.fixture
def brief_tops() -> None:
    """Not here: rows that were trained on are found by models that know them by heart."""


def test_forgotten_rows_are_found_before_and_not_after() -> None:
    found = forget.members(1_000, 0)
    assert found["forgotten rows, before"] > 0.55
    assert abs(found["forgotten rows, after"] - 0.5) < 0.15
    assert found["staying rows, after"] > 0.55


def test_the_time_is_of_training_and_of_forgetting() -> None:
    first, second = forget.forgetting(400)
    assert first.startswith("400 rows: trained in ")
    assert "forgot 4 in " in first
    assert second.endswith("train again and report")
