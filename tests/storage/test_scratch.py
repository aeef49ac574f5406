"""Temporary folders of a process that was killed are removed by the next one, and nobody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cutlayer.storage.scratch import new_folder, remove_folder, scratch_folder

PREFIX = "cutlayer-test-"
HOLD = f"""
import sys, time
from cutlayer.storage.scratch import new_folder
(new_folder("{PREFIX}") / "rows").write_text("private")
print("made", flush=True)
time.sleep(60)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_private_and_removed_with_its_lock(place: Path) -> None:
    with scratch_folder(PREFIX) as folder:
        assert folder.is_dir()
        assert not [*folder.iterdir()]
        assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert not [*place.iterdir()]


def test_one_of_a_process_that_was_killed_is_removed_and_one_that_is_held_is_not(place: Path) -> None:
    mine = new_folder(PREFIX)
    environment = {**os.environ, "TMPDIR": str(place)}
    with subprocess.Popen([sys.executable, "-c", HOLD], env=environment, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"made\n"
        left = {path.name for path in place.iterdir()} - {mine.parent.name}
        assert len(left) == 1
        remove_folder(new_folder(PREFIX))
        assert {path.name for path in place.iterdir()} == {*left, mine.parent.name}, "both are held"
        other.send_signal(signal.SIGKILL)
    remove_folder(new_folder("cutlayer-other-"))
    assert len([*place.iterdir()]) == 2, "of another prefix"
    remove_folder(new_folder(PREFIX))
    assert [*place.iterdir()] == [mine.parent]
    remove_folder(mine)


@pytest.mark.parametrize("kind", ["link to a folder", "link to a lock", "no lock", "another's"])
def test_what_may_be_somebody_elses_stays(place: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    for name in ("lock", "precious"):
        (elsewhere / name).write_text("")
    path = place / f"{PREFIX}x"
    if kind == "link to a folder":
        path.symlink_to(elsewhere)
    else:
        path.mkdir()
        (path / "precious").write_text("")
    if kind == "link to a lock":
        (path / "lock").symlink_to(elsewhere / "lock")
    if kind == "another's":
        (path / "lock").write_text("")
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    remove_folder(new_folder(PREFIX))
    assert (path / "precious").exists()
    assert (elsewhere / "precious").exists()


def test_links_in_a_folder_that_is_left_are_not_followed(place: Path) -> None:
    elsewhere, path = place / "elsewhere", place / f"{PREFIX}x"
    for folder in (elsewhere, path):
        folder.mkdir()
    (elsewhere / "precious").write_text("")
    (path / "lock").write_text("")
    (path / "files").symlink_to(elsewhere)
    remove_folder(new_folder(PREFIX))
    assert not path.exists()
    assert (elsewhere / "precious").exists()
