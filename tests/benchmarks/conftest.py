"""Benchmarks fork their processes here: a new interpreter takes four seconds to import what they measure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import dummy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyarrow import parquet

from benchmarks import processes
from cutlayer.attacks.feature import decoder, kernel_ridge
from cutlayer.config import Job
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.folder import RunFolder
from studies.datasets import ADULT_TABLE
from tests.models.estimator_rows import one_candidate
from tests.parties.processes import forkserver


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "context", forkserver)


class Threads:
    """What `multiprocessing` gives a benchmark, by threads of this process."""

    Pipe = staticmethod(dummy.Pipe)

    class Process(threading.Thread):
        """A measurement: what fails in it fails in the test too, which waits for its message."""

        def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...], daemon: bool = True) -> None:
            super().__init__(target=target, args=args, daemon=daemon)
            self._pipe = args[0]

        def run(self) -> None:
            """Run the target."""
            try:
                super().run()
            except BaseException as failure:
                self._pipe.send(failure)
                raise


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch, forked: None) -> None:
    """Has a benchmark measure in this process, where its modules can be made smaller: one test of each kind forks."""
    monkeypatch.setattr(processes, "context", Threads)


@pytest.fixture(autouse=True)
def brief_tops(monkeypatch: pytest.MonkeyPatch) -> None:
    one_candidate(monkeypatch)


@pytest.fixture
def small_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has `inversion` train a smaller network, from the same linear map, for fewer epochs, and fit fewer kernels."""
    monkeypatch.setattr(decoder, "EPOCHS", 20)
    monkeypatch.setattr(decoder, "HIDDEN", 32)
    monkeypatch.setattr(kernel_ridge, "SCALES", (1.0,))


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType, int], None]:
    """Has a benchmark run its jobs on the first rows of Adult: all 48,842 take half a minute for each job."""

    def patch(benchmark: ModuleType, rows: int) -> None:
        whole = benchmark.execute

        def briefly(job: Job, folder: Path, options: Options, progress: Progress) -> RunFolder:
            tables = dict.fromkeys(job.parties, parquet.read_table(ADULT_TABLE).slice(0, rows))
            result: RunFolder = whole(job, folder, replace(options, tables=tables), progress)
            return result

        monkeypatch.setattr(benchmark, "execute", briefly)

    return patch
