"""Running pytest in this process, in a copy of the tree: with measurements, or against a mutant."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

_OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "--tb=line", "--no-header", "--hypothesis-seed=0")


def preload(modules: Sequence[str]) -> None:
    """Import what the tests import, without the package under test: a fork then starts in milliseconds."""
    os.environ["OMP_NUM_THREADS"] = "1"  # threads would not survive the fork
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["PYTEST_PLUGINS"] = "_hypothesis_pytestplugin"
    for name in modules:
        importlib.import_module(name)


class _Chosen:
    """Runs some of the tests of the collected files: those that execute the mutated line, or the rest."""

    def __init__(self, hits: Mapping[str, float], failing: frozenset[str], rest: bool) -> None:
        self._hits, self._failing, self._rest = hits, failing, rest

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the other tests, and those that fail without a mutant; within a file the fastest come first."""
        files = list(dict.fromkeys(item.path for item in items))
        items[:] = [i for i in items if i.nodeid not in self._failing and (i.nodeid in self._hits) != self._rest]
        items.sort(key=lambda item: (files.index(item.path), self._hits.get(item.nodeid, 0.0)))


def kill(files: Sequence[str], rest: Sequence[str], hits: Mapping[str, float], failing: frozenset[str]) -> int:
    """Run test files, a few at a time, until a test fails.

    The tests that execute the mutated line come first. Others of their files follow: a test may look at what an earlier
    test of the file computed and left in a cache.

    Args:
        files: test files with such tests, the cheapest first.
        rest: test files of which the others run too.
        hits: ids of the tests that execute the mutated line, with the processor time of each in seconds.
        failing: ids of the tests that fail without a mutant.

    Returns:
        pytest's exit status: 0 if the mutant survives.
    """
    for batch, others in ((files[:1], False), (files[1:4], False), (files[4:], False), (rest, True)):
        if batch:
            status = int(pytest.main([*_OPTIONS, *batch], plugins=[_Chosen(hits, failing, others)]))
            if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                return status
    return 0


class _Contexts:
    """Notes the processor time of each test, and under its id the lines that it executes."""

    def __init__(self, coverage: Any) -> None:
        self._coverage = coverage
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure one test with its fixtures."""
        self._coverage.switch_context(item.nodeid)
        start = time.process_time()
        yield
        self.seconds[item.nodeid] = time.process_time() - start
        self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self.failed.add(report.nodeid)


def measure(file: str, targets: Sequence[str], result: Path) -> int:
    """Run one test file and write which of its tests executes which lines.

    Args:
        file: the test file, relative to the copy of the tree, which is the current folder.
        targets: the modules that are mutated, relative to it.
        result: JSON file that is written.

    Returns:
        pytest's exit status.
    """
    import coverage

    tree = Path.cwd()
    measured = coverage.Coverage(
        data_file=None, config_file=False, include=[str(tree / target) for target in targets], messages=False
    )
    contexts = _Contexts(measured)
    start = time.process_time()
    measured.start()
    status = int(pytest.main([option for option in (*_OPTIONS, file) if option != "-x"], plugins=[contexts]))
    measured.stop()
    seconds = time.process_time() - start
    lines: dict[str, dict[str, list[int]]] = {name: {} for name in contexts.seconds}
    data = measured.get_data()
    for path in data.measured_files():
        module = Path(path).relative_to(tree).as_posix()
        for line, names in data.contexts_by_lineno(path).items():
            for name in names:
                if name in lines:
                    lines[name].setdefault(module, []).append(line)
    content = {
        "digest": digest(tree / file),
        "seconds": seconds,
        "tests": contexts.seconds,
        "failing": sorted(contexts.failed),
        "lines": lines,
    }
    result.write_text(json.dumps(content), encoding="utf-8")
    return status


def digest(path: Path) -> str:
    """A digest of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
