"""Secrets are made whole, once, and for their owner alone."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import cutlayer
from cutlayer.errors import ConfigError
from cutlayer.training.keys import KEY_BYTES, Keys, load_or_make


def test_many_runs_at_once_share_one_whole_key(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "bank.key"
    with ThreadPoolExecutor(16) as pool:
        keys = list(pool.map(load_or_make, [path] * 64))
    assert len(set(keys)) == 1
    assert len(keys[0]) == KEY_BYTES
    assert [found.name for found in path.parent.iterdir()] == ["bank.key"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "bank.key"
    load_or_make(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"got mode {mode:04o}; run chmod 600 {path}"):
        load_or_make(path)


def test_no_dataclass_shows_a_key() -> None:
    """A key in a representation ends in a log or a traceback; `bytes` written out is what to look for."""
    modules = [import_module(found.name) for found in walk_packages(cutlayer.__path__, "cutlayer.")]
    holders = {
        (found, field.name): field
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and is_dataclass(found)
        for field in fields(found)
        if field.name in {"secret", "noise_key", "supplied", "key", "noise"}
        and ("bytes" in str(field.type) or "Noise" in str(field.type))
    }
    assert {"Keys", "LocalSide", "Context"} <= {found.__name__ for found, _ in holders}
    shown = [f"{found.__name__}.{name}" for (found, name), field in holders.items() if field.repr]
    assert not shown
    assert "1234" not in repr(Keys(Path("x"), b"1234" * 8))
