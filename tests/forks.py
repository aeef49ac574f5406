"""`pytest --forks 3`: tests in three processes that are forked when all is imported and collected, which happens once.

Each process takes the next files that belong together until there are none. Where a process dies, its test fails and
so do those that it had taken, and the others go on: `--last-failed` then runs each test that did not run.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, Pipe, arbitrary_address
from pathlib import Path
from typing import Any

import pytest

_NUMBER = 2
"""Bytes of the number of a group of tests."""
_PATIENCE = 10
"""Seconds without any report after which it is looked whether a process has died."""


@dataclass
class _Worker:
    """A process that runs tests, as the first one sees it.

    Attributes:
        process: Its id.
        results: What it sends when a test starts: the reports since the last one, and its id, or none at the end.
        test: Id of the test that it runs.
        ended: Whether it has no more.
    """

    process: int
    results: Connection
    test: str = ""
    ended: bool = False


class Forks:
    """Runs the collected tests in several processes.

    Args:
        count: Number of processes.
        together: What tests have in common that one process runs, one after the other.
    """

    def __init__(self, count: int, together: Callable[[pytest.Item], str]) -> None:
        self._count, self._together = count, together

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all; without processes of their own where a few tests were chosen, or where they are only listed."""
        groups = self._groups(session.items)
        if session.testsfailed or session.config.option.collectonly or len(groups) == 1:
            return None
        folder = session.config._tmp_path_factory.getbasetemp()
        if sys.version_info < (3, 14):  # later ones ask for a key, and each worker starts a process of its own
            serve_forks(folder / "processes.txt")
        numbers = _queue(len(groups))
        workers: list[_Worker] = []
        try:
            for number in range(min(self._count, len(groups))):
                results, sent = Pipe(duplex=False)
                process = forked()
                if not process:
                    _work(session.config, number, groups, numbers, sent)
                sent.close()
                workers.append(_Worker(process, results))
            _gather(session, workers)
        finally:
            for worker in workers:
                if not worker.ended:
                    os.kill(worker.process, signal.SIGTERM)
                os.waitpid(worker.process, 0)
        return True

    def _groups(self, items: list[pytest.Item]) -> list[list[pytest.Item]]:
        groups: dict[str, list[pytest.Item]] = {}
        for item in items:
            groups.setdefault(self._together(item), []).append(item)
        return [*groups.values()]


def forked() -> int:
    """`os.fork`, which later Pythons warn of where a library has a thread, such as one that gives memory back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def serve_forks(said: Path) -> None:
    """Fork the process that tests fork theirs from, as all is imported here and no test has run.

    Each worker would else start one, which imports everything for five seconds.

    Args:
        said: File of what these processes print, unless a test has it elsewhere.
    """
    server: Any = forkserver._forkserver
    resource_tracker.ensure_running()
    server.ensure_running = resource_tracker.ensure_running
    with socket.socket(socket.AF_UNIX) as listener:
        server._forkserver_address = arbitrary_address("AF_UNIX")
        listener.bind(server._forkserver_address)
        listener.listen()
        ended, server._forkserver_alive_fd = os.pipe()
        if not forked():
            try:
                os.close(server._forkserver_alive_fd)
                with said.open("ab") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
                forkserver.main(listener.detach(), ended, [])
            finally:
                os._exit(0)
    os.close(ended)


def _queue(count: int) -> int:
    """A pipe with the numbers up to `count`: each is read by one process, and after the last the pipe has ended."""
    read, write = os.pipe()
    os.write(write, b"".join(number.to_bytes(_NUMBER, "big") for number in range(count)))
    os.close(write)
    return read


def _gather(session: pytest.Session, workers: list[_Worker]) -> None:
    """Report what the processes send until all have ended."""
    hook, left = session.config.hook, {item.nodeid for item in session.items}
    with selectors.DefaultSelector() as running:
        for worker in workers:
            running.register(worker.results, selectors.EVENT_READ, worker)
        while running.get_map():
            ready = [key.data for key, _ in running.select(_PATIENCE)]
            for worker in ready or [key.data for key in [*running.get_map().values()] if _has_died(key.data)]:
                try:
                    sent, test = worker.results.recv() if ready else ([], None)
                except EOFError:
                    sent, test = [], None
                reports = [hook.pytest_report_from_serializable(config=session.config, data=data) for data in sent]
                if test is None:
                    reports.append(_failure(worker.test, "the process that ran this test died"))
                if not test:
                    worker.ended = test is not None
                    running.unregister(worker.results)
                left.discard(test)
                worker.test = test
                for report in reports:
                    hook.pytest_runtest_logreport(report=report)
                    if session.shouldfail:
                        raise session.Failed(session.shouldfail)
    for test in left:
        hook.pytest_runtest_logreport(report=_failure(test, "no process ran this test"))


def _has_died(worker: _Worker) -> bool:
    """Whether a process has ended, whose pipe a process that it started keeps open."""
    return os.waitid(os.P_PID, worker.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _failure(test: str, text: str) -> pytest.TestReport:
    return pytest.TestReport(test, (test.partition("::")[0], None, test), {}, "failed", text, "call")


def _work(config: pytest.Config, number: int, groups: list[list[pytest.Item]], numbers: int, sent: Connection) -> None:
    """Be a process that runs tests; never returns."""
    try:
        manager = config.pluginmanager
        manager.unregister(name="terminalreporter")
        sender = _Sender(config, sent)
        manager.register(sender)
        # The files that hold what is captured are shared with the process that was forked.
        capture = manager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        factory: Any = config._tmp_path_factory
        factory._basetemp = factory.getbasetemp() / f"worker{number}"
        factory._basetemp.mkdir(mode=0o700)
        items = _items(groups, numbers)
        item = next(items, None)
        while item:
            following = next(items, None)
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
        sender.pytest_runtest_logstart("")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _items(groups: list[list[pytest.Item]], numbers: int) -> Iterator[pytest.Item]:
    while number := os.read(numbers, _NUMBER):
        yield from groups[int.from_bytes(number, "big")]


class _Sender:
    """Sends what happens in a process to the one that reports it, at the start of a test what was since the last."""

    def __init__(self, config: pytest.Config, sent: Connection) -> None:
        self._config, self._keep_message = config, sent
        self._reports: list[Any] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Name the test that starts, in case that the process dies, or none when there are no more."""
        self._keep_message.send((self._reports, nodeid))
        self._reports = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hold a report; of a setup or a teardown that passed nothing but its duration is ever shown."""
        if report.when != "call" and report.passed and self._config.option.durations is None:
            return
        hook = self._config.hook
        self._reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))
