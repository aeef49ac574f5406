"""What stands for a module imports it at its first use, and then reads its names as the module has them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cutlayer import lazy

LATE = """
value = 1

def __getattr__(name):
    if name == "made":
        return 2
    raise AttributeError(f"no {name}")
"""


def test_a_module_is_imported_at_its_first_use_and_read_as_it_is_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_names.py").write_text(LATE)
    monkeypatch.syspath_prepend(tmp_path)
    stands = type(lazy.torch)("late_names")
    assert "late_names" not in sys.modules
    assert stands.value == 1
    module = sys.modules.pop("late_names")
    assert vars(stands) is vars(module)
    module.value = 3
    assert (stands.value, vars(stands).get("made")) == (3, None)


def test_names_that_a_module_makes_are_asked_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "later_names.py").write_text(LATE)
    monkeypatch.syspath_prepend(tmp_path)
    stands = type(lazy.torch)("later_names")
    try:
        assert [stands.made, stands.value, stands.made] == [2, 1, 2]
        with pytest.raises(AttributeError, match="no other"):
            _ = stands.other
    finally:
        del sys.modules["later_names"]
