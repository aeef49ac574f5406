"""Every part of the benchmark of rows can be measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.row_memory import PARTS


@pytest.mark.parametrize("part", PARTS)
def test_a_part_runs(part: str, tmp_path: Path) -> None:
    PARTS[part](300, tmp_path)()
