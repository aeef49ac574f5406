"""A run leaves its process as it found it; the command line sets up its own."""

from __future__ import annotations

import gc
import importlib
import json
import os
import platform
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet
from threadpoolctl import ThreadpoolController, threadpool_limits

import cutlayer
from cutlayer import workers
from cutlayer.config import Job, validated
from cutlayer.errors import CutlayerError, ProtocolError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.forecast import forecast
from cutlayer.jobs.options import Options, Progress
from cutlayer.training import process
from cutlayer.training.keys import Keys
from cutlayer.training.process import LARGE_BATCH
from tests.estimator.tables import classifier
from tests.estimator.tables import tables as estimator_tables
from tests.forks import forked
from tests.parties.runs import make_job, raw_job, run, tables

STEPS = """
import resource, sys, numpy  # its arrays come from the allocator that tensors come from, and it is imported sooner
from cutlayer.training.process import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else False
def step():
    return sum(float(block[0]) for block in [numpy.ones(2**20, numpy.float32) for _ in range(5)])
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(kept, (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)
"""


def _run(how, **environment):
    """Whether it said that memory is kept, and pages fetched for a step of 20 MB."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", STEPS, how]
    done = subprocess.run(command, env=plain | environment, capture_output=True, text=True, check=True)
    kept, pages = done.stdout.split()
    return kept == "True", float(pages)


def test_a_step_fetches_its_memory_once():
    kept, pages = _run("keep")
    if platform.libc_ver()[0] != "glibc":
        assert not kept
        pytest.skip("the C library here has no such setting")
    assert kept
    # What the C library does by itself hangs on how its heap lies; told to, it gives back every block of this size.
    assert pages < _run("leave", MALLOC_MMAP_THRESHOLD_="131072")[1] / 5


@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_TRIM_THRESHOLD_", "100000"), ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=100000")],
)
def test_a_users_own_settings_stand(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    def allocator(_name: object) -> None:
        raise AssertionError("the settings of the user are replaced")

    monkeypatch.setattr("cutlayer.training.process.ctypes.CDLL", allocator)
    monkeypatch.setenv(name, value)
    assert not process.keep_freed_memory()


def _state() -> dict[str, Any]:
    """What a library call must leave alone."""
    numpy_state = [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()]
    return {
        "environment": {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        "threads": torch.get_num_threads(),
        "random state of torch": torch.get_rng_state().tolist(),
        "random state of numpy": numpy_state,
        "random state of random": random.getstate(),
        "warning filters": list(warnings.filters),
        "gradients": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
    }


@pytest.fixture
def unchanged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compare the process before and after the test, which runs where two threads are set."""

    def allocator(_name: object) -> None:
        raise AssertionError("a library call changes the allocator for good")

    def devices(_seed: int) -> None:
        raise AssertionError("a library call changes the random state of every device")

    # Libraries that set filters and variables of their own, some on first use.
    for module in ("sklearn.linear_model", "ruamel.yaml", "rich.console"):
        importlib.import_module(module)
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]).step()
    monkeypatch.setattr("cutlayer.training.process.ctypes.CDLL", allocator)
    monkeypatch.setattr("torch.cuda.manual_seed_all", devices)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    before = _state()
    try:
        yield
        after = _state()
        assert not [name for name in before if before[name] != after[name]]
    finally:
        torch.set_num_threads(threads)


FRESH = """
import json, os, random, sys, warnings

def state():
    found = {"environment": dict(os.environ), "filters": list(warnings.filters), "random": random.getstate()}
    if "torch" in sys.modules:
        found["numpy"] = numpy.random.get_state()[1].tolist()
        found["torch"] = torch.get_rng_state().tolist(), torch.get_num_threads()
    return found

def changed(before):
    after = state()
    return [name for name in before if before[name] != after[name]]

before = state()
import cutlayer
facts = {"import": changed(before), "libraries": sorted({"torch", "sklearn", "numpy"} & {*sys.modules})}
import numpy, torch
before = state()
from cutlayer.training.process import one_blas_thread
facts["process"] = changed(before)
with one_blas_thread():
    import scipy.optimize, threadpoolctl
    libraries = threadpoolctl.ThreadpoolController().select(prefix="libscipy_openblas").info()
    facts["threads"] = [library["num_threads"] for library in libraries]
print(json.dumps(facts), flush=True)
os._exit(0)  # which spares taking down two thousand modules one by one
"""


@pytest.fixture(scope="module")
def fresh() -> dict[str, list[Any]]:
    """What imports changed in a process of their own, which takes seconds to import the libraries."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", FRESH], env=environment, capture_output=True, text=True, check=True)
    facts: dict[str, list[Any]] = json.loads(done.stdout)
    return facts


def test_an_import_loads_no_library_and_leaves_the_process_as_it_was(fresh: dict[str, list[Any]]) -> None:
    assert (fresh["import"], fresh["libraries"]) == ([], [])


def test_the_import_of_linear_algebra_leaves_the_process_as_it_was(fresh: dict[str, list[Any]]) -> None:
    assert fresh["process"] == []


def test_the_import_of_every_name_leaves_the_process_as_it_was() -> None:
    """In a fork that has what they import of others, which change some of it themselves, and takes seconds."""
    assert [getattr(cutlayer, name) for name in cutlayer.__all__]
    receiver, sender = Pipe(duplex=False)
    if not (child := forked()):
        try:
            sender.send(_changed_by_imports())
        finally:
            os._exit(0)
    sender.close()
    try:
        assert receiver.recv() == []
    finally:
        os.waitpid(child, 0)


def _changed_by_imports() -> list[str]:
    """What the modules of the package change once all are forgotten, in a process as no import would leave it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "cutlayer"]:
        del sys.modules[name]
    os.environ.clear()
    warnings.resetwarnings()
    torch.set_num_threads(3)
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(9973)
    before = _state()
    package = importlib.import_module("cutlayer")
    missing = [name for name in package.__all__ if not getattr(package, name)]
    after = _state()
    return missing + [name for name in before if before[name] != after[name]]


def test_names_of_the_package_are_listed() -> None:
    with pytest.raises(AttributeError, match="module 'cutlayer' has no attribute 'Jobs'"):
        _ = cutlayer.Jobs
    assert {"Job", "VerticalClassifier", "__version__"} <= {*dir(cutlayer)}
    assert [getattr(cutlayer, name) for name in cutlayer.__all__]


COMMAND = """
import gc, os, sys; sys.argv = ["cutlayer", "--version"]; import cutlayer.__main__ as command
import cutlayer.training.process as process; process.keep_freed_memory = lambda: print("kept")
try: command.main()
except SystemExit: print(os.environ["OMP_WAIT_POLICY"], gc.get_threshold()[0] >= 10000)
import grpc
servers = [grpc.server(None, options=[("grpc.so_reuseport", 0)]) for _ in range(2)]
port = servers[0].add_insecure_port("127.0.0.1:0")
try: servers[1].add_insecure_port(f"127.0.0.1:{port}")
except RuntimeError: print("refused")
import atexit; atexit._run_exitfuncs(); print(gc.get_freeze_count() > 1000)  # nothing is searched at the end
"""


@cache
def command_process(policy: str) -> subprocess.CompletedProcess[str]:
    """The process of a command, which then opens a port twice."""
    plain = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    given = plain | ({"OMP_WAIT_POLICY": policy} if policy else {})
    return subprocess.run([sys.executable, "-c", COMMAND], env=given, capture_output=True, text=True, check=True)


@pytest.mark.parametrize(("given", "policy"), [("", "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_the_command_line_sets_up_its_process(given: str, policy: str) -> None:
    said = command_process(given).stdout.split()
    assert said == ["kept", "cutlayer", cutlayer.__version__, policy, "True", "refused", "True"]


def test_a_port_in_use_is_said_once_by_the_error() -> None:
    """gRPC writes a line of its own, with its file and line, before the error of the command."""
    assert not command_process("").stderr


def test_a_training_step_leaves_no_cycle_of_objects(tmp_path: Path) -> None:
    def left(epochs: int, batch_size: int = 2) -> int:
        """Objects in cycles after a training; the steps of its last epoch are among them, which a party keeps."""
        gc.collect()
        gc.disable()
        try:
            run(make_job(epochs=epochs, batch_size=batch_size), given, tmp_path / f"{epochs}-{batch_size}")
            return gc.collect()
        finally:
            gc.enable()

    given = tables(rows=90)
    left(1, batch_size=60)  # what is imported and made once
    gc.freeze()  # and is not searched again, which takes longer than the trainings
    few, many = left(1), left(2)  # some 36 steps more, of each party
    assert abs(many - few) < 25


@pytest.mark.parametrize(
    ("wanted", "batch", "policy", "processes", "threads"),
    [
        ("auto", LARGE_BATCH - 1, "PASSIVE", 1, 1),
        ("auto", LARGE_BATCH, "PASSIVE", 1, 6),
        ("auto", LARGE_BATCH, "passive", 4, 1),
        ("auto", LARGE_BATCH, "ACTIVE", 1, 1),
        ("auto", LARGE_BATCH, "", 1, 1),
        (3, 1, "", 1, 3),
    ],
)
def test_threads_of_a_run(
    monkeypatch: pytest.MonkeyPatch, wanted: Any, batch: int, policy: str, processes: int, threads: int
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    monkeypatch.setattr(workers, "usable_cores", lambda: 6)
    before = torch.get_num_threads()
    with process.run_threads(wanted, batch, processes) as found:
        assert found == torch.get_num_threads() == threads
    assert torch.get_num_threads() == before


def test_linear_algebra_of_a_run_has_one_thread() -> None:
    def threads() -> list[int]:
        return [library["num_threads"] for library in ThreadpoolController().select(prefix="libscipy_openblas").info()]

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with process.run_threads(3, 1):
            assert threads() == [1] * len(before)
        assert threads() == before
    assert len(before) >= 2  # that of NumPy and that of SciPy


def test_so_has_what_a_run_imports_later(fresh: dict[str, list[Any]]) -> None:
    assert fresh["threads"] == [1, 1]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("threads", ["auto", 1])
def test_fit_and_predict_leave_the_process_as_it_was(threads: Any) -> None:
    X, y = estimator_tables()
    model = classifier(threads=threads, compare=("centralised", "finetuned")).fit(X, y)
    model.predict(X)
    model.audit()


@pytest.mark.usefixtures("unchanged")
def test_a_fit_and_a_prediction_that_fail_leave_the_process_as_it_was() -> None:
    X, y = estimator_tables()
    with pytest.raises(CutlayerError):
        classifier(lr=1e30).fit(X, y)
    model = classifier(epochs=1).fit(X, y)
    with pytest.raises(CutlayerError):
        model.predict({"bank": X["bank"]})


class _Failing(Progress):
    def stepped(self, epoch: int, rows: int, loss: float) -> None:
        torch.rand(1)
        raise ProtocolError("stopped")


@pytest.mark.usefixtures("unchanged")
def test_execute_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    given = tables()
    execute(make_job(epochs=1), tmp_path / "run", options(tmp_path, given), Progress())
    with pytest.raises(ProtocolError, match="stopped"):
        execute(make_job(), tmp_path / "failed", options(tmp_path, given), _Failing())


def options(folder: Path, given: Any) -> Options:
    return Options(Keys(folder / "keys"), tables=given)


@pytest.mark.usefixtures("unchanged")
def test_a_forecast_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    raw = raw_job()
    for name, table in tables().items():
        raw["parties"][name]["table"] = str(tmp_path / f"{name}.parquet")
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    assert forecast(validated(Job, raw, "")).threads == 1
    raw["train"]["batch_size"] = 10_000
    raw["model"]["bottom"] = {"kind": "python", "class": "missing.Model"}
    with pytest.raises(CutlayerError):
        forecast(validated(Job, raw, ""))
