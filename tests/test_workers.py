"""Worker processes: the rows of one process, errors, and no process that is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from cutlayer import workers
from cutlayer.alignment.ristretto255 import multiply, random_points, random_scalar
from cutlayer.errors import CutlayerError, ProtocolError
from cutlayer.workers import ByteRows, Workers

PARENT = """
import sys
import numpy as np
from cutlayer import workers
from cutlayer.alignment.ristretto255 import hash_to_group

if __name__ == "__main__":
    workers.MIN_DIVIDED_ROWS = workers.TASK_ROWS = 1
    with workers.Workers(2) as pool:
        pool.map(hash_to_group, np.zeros((4, 16), np.uint8), b"")
        print(*pool._pool._processes, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MIN_DIVIDED_ROWS", 10)
    monkeypatch.setattr(workers, "TASK_ROWS", 8)


def ended(rows: ByteRows, argument: bytes) -> ByteRows:
    """Stands for a process that the system ends for want of memory."""
    os._exit(1)


def test_shares_come_back_in_order_and_errors_as_they_are(small: None) -> None:
    points, scalar = random_points(50), random_scalar()
    with Workers(2) as pool:
        assert (pool.map(multiply, points, scalar) == multiply(points, scalar)).all()
        points[33] = 0
        with pytest.raises(ProtocolError, match="other than the identity"):
            pool.map(multiply, points, scalar)
        points[33] = points[32]
        assert len(pool.map(multiply, points, scalar)) == 50, "still usable"


def test_a_worker_that_is_ended_is_an_error_that_says_so(small: None) -> None:
    with Workers(2) as pool, pytest.raises(CutlayerError, match="a worker process was ended from outside"):
        pool.map(ended, np.zeros((20, 1), np.uint8), b"")


def test_few_rows_start_no_process() -> None:
    with Workers(2) as pool:
        pool.map(multiply, random_points(3), random_scalar())
        assert pool._pool is None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent_and_do_not_load_the_tensor_library(tmp_path: Path, number: int) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, script], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert pids
        for pid in pids:
            assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()
        parent.send_signal(number)
        parent.wait()
    deadline = time.monotonic() + 60
    while [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, "a worker is left"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("stated", "most", "threads"), [("4,2", None, 4), ("3", 2, 2), ("many", None, 5), (None, 9, 5), (None, 0, 1)]
)
def test_threads_are_bounded_by_the_environment_and_by_a_job(
    monkeypatch: pytest.MonkeyPatch, stated: str | None, most: int | None, threads: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if stated is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", stated)
    monkeypatch.setattr(workers, "usable_cores", lambda: 5)
    with workers.thread_limit(most):
        assert workers.work_threads() == threads
    assert workers.work_threads() == (int(stated[0]) if stated in ("4,2", "3") else 5)


def test_threads_give_results_in_order_and_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "work_threads", lambda: 2)
    both = threading.Barrier(2, timeout=20)  # neither part ends before the other one has begun

    def work(part: int) -> int:
        both.wait()
        return 10 // part

    assert workers.map_in_threads(work, [5, 2]) == [2, 5]
    with pytest.raises(ZeroDivisionError):
        workers.map_in_threads(work, [0, 1])


def test_a_bound_is_of_the_thread_that_sets_it_and_of_those_that_work_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(workers, "usable_cores", lambda: 5)
    both = threading.Barrier(2, timeout=20)

    def work(_: int) -> int:
        both.wait()
        return workers.work_threads()

    found: list[int] = []
    with workers.thread_limit(2):
        assert workers.map_in_threads(work, [0, 1]) == [2, 2]
        other = threading.Thread(target=lambda: found.append(workers.work_threads()))
        other.start()
        other.join()
    assert found == [5]


def test_threads_of_libraries_are_bounded_for_a_while_also_of_those_that_are_loaded_later() -> None:
    """Libraries are loaded by two modules of packages that take a second to import."""
    code = (
        "import sys\n"
        "from importlib.machinery import EXTENSION_SUFFIXES\n"
        "from importlib.util import find_spec, module_from_spec, spec_from_file_location\n"
        "from pathlib import Path\n"
        "import numpy\n"
        "from threadpoolctl import threadpool_info\n"
        "from cutlayer.workers import limit_library_threads\n"
        "def load(package, module):\n"
        "    path = Path(find_spec(package).origin).parent / (module + EXTENSION_SUFFIXES[0])\n"
        "    sys.modules[path.stem] = module_from_spec(spec_from_file_location(path.name.split('.')[0], path))\n"
        "def threads(kind):\n"
        "    return [library['num_threads'] for library in threadpool_info() if library['user_api'] == kind]\n"
        "with limit_library_threads(1):\n"
        "    assert set(threads('blas')) == {1}, threads('blas')\n"
        "    load('scipy', 'linalg/_fblas')\n"
        "    load('sklearn', 'utils/_openmp_helpers')\n"
        "with limit_library_threads(1, 'openmp'):\n"
        "    assert (set(threads('openmp')), set(threads('blas'))) == ({1}, {2})\n"
        "with limit_library_threads(1):\n"
        "    assert set(threads('blas')) == {1} and len(threads('blas')) > 1, threads('blas')\n"
        "assert set(threads('blas')) == {2} and 2 in threads('openmp')\n"
    )
    bounds = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **bounds})
