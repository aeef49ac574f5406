"""Tests in several processes: what they report, one that dies, and one that ends before its tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import sys
sys.path.insert(0, {root!r})
from tests import forks

def pytest_configure(config):
    config.pluginmanager.register(forks.Forks(2, lambda item: item.path.name))
"""
FILES = {
    "test_a.py": """
import os, time
def test_folder(tmp_path, capfd):
    os.system("echo from outside")
    assert "outside" in capfd.readouterr().out
    assert "worker" in str(tmp_path)
def test_wrong():
    print("printed")
    assert 1 == 2
""",
    "test_b.py": """
import multiprocessing.forkserver, os, pytest, sys
def test_right():
    process = multiprocessing.get_context("forkserver").Process(target=os._exit, args=(7,))
    process.start()
    process.join()
    assert process.exitcode == 7
    # It was forked from the process that all workers share.
    assert multiprocessing.forkserver._forkserver._forkserver_pid is None or sys.version_info >= (3, 14)
@pytest.mark.skip
def test_skipped(): pass
""",
}
DYING = "import os\ndef test_dying(): os._exit(0)\ndef test_after(): pass\n"
ENDING = "_items = forks._items\nforks._items = lambda *given: iter([*_items(*given)][:1])\n"


def ran(folder: Path, files: dict[str, str], conftest: str = "") -> tuple[int, str]:
    """Exit code and output of pytest on some files."""
    (folder / "conftest.py").write_text(CONFTEST.format(root=str(Path(__file__).parents[1])) + conftest)
    for name, text in files.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", folder, "-c", "/dev/null", folder]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # half of the time goes into those installed
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_what_all_processes_ran_is_reported(tmp_path: Path) -> None:
    code, said = ran(tmp_path, FILES)
    assert code == 1, said
    assert re.search(r"1 failed, 2 passed, 1 skipped in", said), said
    assert "printed" in said
    assert "E       assert 1 == 2" in said


@pytest.mark.slow
def test_a_process_that_dies_fails_what_it_had_taken_and_the_others_go_on(tmp_path: Path) -> None:
    code, said = ran(tmp_path, {"test_a.py": DYING, "test_b.py": FILES["test_b.py"], "test_c.py": FILES["test_b.py"]})
    assert code == 1, said
    assert re.search(r"FAILED .*test_a\.py::test_dying - the process that ran this test died", said), said
    # What `make failed` runs again, alone: all that did not run, and nothing less.
    assert re.search(r"FAILED .*test_a\.py::test_after - no process ran this test", said), said
    assert "2 failed, 2 passed, 2 skipped in" in said, said


@pytest.mark.slow
def test_tests_that_no_process_ran_fail(tmp_path: Path) -> None:
    code, said = ran(tmp_path, {"test_b.py": FILES["test_b.py"], "test_c.py": FILES["test_b.py"]}, ENDING)
    assert code == 1, said
    assert "no process ran this test" in said
