"""Files are whole or as before, synced in the right order, and locked by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cutlayer.errors import RunFolderError
from cutlayer.storage import durable


def test_a_failed_write_leaves_the_old_content_and_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    durable.write_whole(path, "old")

    def fail(partial: Path) -> None:
        partial.write_text("half of the n")
        raise OSError(errno.ENOSPC, "disk full")

    with pytest.raises(OSError, match="disk full") as refused:
        durable.replace_whole(path, fail)
    assert refused.value.filename == str(path)
    assert path.read_text() == "old"
    assert [child.name for child in tmp_path.iterdir()] == ["job.yaml"]


def test_content_is_synced_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls = tmp_path / "job.yaml", list[str]()
    monkeypatch.setattr(durable, "sync_file", lambda synced: calls.append(f"sync {synced.name} {path.exists()}"))
    durable.write_whole(path, b"new")
    assert calls == ["sync job.yaml.partial False", f"sync {tmp_path.name} True"]


def test_files_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    durable.make_folder(tmp_path / "a" / "b")
    durable.write_whole(tmp_path / "a" / "b" / "c", "x")
    durable.append_line(tmp_path / "a" / "b" / "d", "x")
    modes = [path.stat().st_mode & 0o777 for path in sorted((tmp_path / "a").rglob("*"))]
    assert modes == [0o700, 0o600, 0o600]


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "log"
    durable.append_line(path, "one")
    durable.append_line(path, "two")
    assert path.read_text() == "one\ntwo\n"


def test_a_lock_is_held_by_one_process_and_freed_when_it_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    held = (
        "from cutlayer.storage.durable import locked; from pathlib import Path; import time\n"
        f"with locked(Path({str(lock)!r}), 'a run'): print('held', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE, env=dict(os.environ))
    assert child.stdout is not None
    child.stdout.readline()
    with pytest.raises(RunFolderError, match=rf"in use by a run \(process {child.pid}\)"), durable.locked(lock, "x"):
        pass
    child.kill()
    child.communicate()
    with durable.locked(lock, "another"):
        assert "another" in lock.read_text()


def test_a_process_may_wait_for_a_lock(tmp_path: Path) -> None:
    lock, order = tmp_path / "lock", list[str]()

    def second() -> None:
        with durable.locked(lock, "second", wait=True):
            order.append("second")

    with durable.locked(lock, "first"):
        waiting = threading.Thread(target=second)
        waiting.start()
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


def test_a_lock_whose_file_was_removed_excludes_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that opened the file before its holder removed it must not take its lock for that of the new file."""
    lock, flock, removed = tmp_path / "lock", fcntl.flock, list[bool]()

    def racing(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append(True)
            lock.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", racing)
    with (
        durable.locked(lock, "first"),
        pytest.raises(RunFolderError, match=r"in use by first"),
        durable.locked(lock, "second"),
    ):
        pass


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """A folder from another user may hold links of the names that are written in it, to any file of this user."""
    key, text = tmp_path / "bank.key", "x" * 32
    key.write_text(text)
    for name in ("report.html.partial", "lock", "history.jsonl"):
        (tmp_path / name).symlink_to(key)
    durable.write_whole(tmp_path / "report.html", "page")
    assert (tmp_path / "report.html").read_text() == "page"
    assert not (tmp_path / "report.html").is_symlink()
    with pytest.raises(OSError, match="symbolic links"), durable.locked(tmp_path / "lock", "a run"):
        pass
    with pytest.raises(OSError, match="symbolic links"):
        durable.append_line(tmp_path / "history.jsonl", "line")
    with pytest.raises(OSError, match="symbolic links"):
        durable.create(tmp_path / "lock")
    assert key.read_text() == text


def test_a_file_that_another_process_left_unfinished_gives_its_permissions_to_none(tmp_path: Path) -> None:
    left = tmp_path / "report.html.partial"
    left.write_text("old")
    left.chmod(0o666)
    durable.write_whole(tmp_path / "report.html", "page")
    assert (tmp_path / "report.html").stat().st_mode & 0o777 == 0o600
