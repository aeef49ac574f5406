"""Secrets are made whole, once, and for their owner alone."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cutlayer.runs.keys import LENGTH, load_or_make


def test_many_runs_at_once_share_one_whole_key(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "bank.key"
    with ThreadPoolExecutor(16) as pool:
        keys = list(pool.map(load_or_make, [path] * 64))
    assert len(set(keys)) == 1
    assert len(keys[0]) == LENGTH
    assert [found.name for found in path.parent.iterdir()] == ["bank.key"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
