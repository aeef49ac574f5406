"""Ctrl-C while tables are read ends at once, with nothing left behind."""

from __future__ import annotations

import gzip
import signal
import tempfile
import threading
import time
from pathlib import Path

import duckdb
import pytest

from cutlayer.data.engine import Reading, raise_if_stopped
from cutlayer.data.sources.base import Source
from cutlayer.errors import Interrupted
from tests.cli.jobs import Place
from tests.parties.processes import forked, run_in


def read_slowly(folder: Path, arguments: list[str]) -> None:
    """The command line in a process of its own, where every batch of rows takes a minute unless it is stopped."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chunks = Source.chunks

    def slow(self, *arguments, **named):
        for piece in chunks(self, *arguments, **named):
            for _ in range(6000):
                (folder / "reading").touch()
                raise_if_stopped()
                time.sleep(0.01)
            yield piece

    Source.chunks = slow
    tempfile.tempdir = str(folder / "scratch")
    run_in(folder, arguments)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_end_while_a_table_is_read_leaves_nothing(place: Place, end: signal.Signals):
    """Also no copy without compression of a table, which a killed process cannot remove."""
    (place.folder / "scratch").mkdir()
    packed = gzip.compress((place.folder / "telco.csv").read_bytes())
    (place.folder / "telco.csv.gz").write_bytes(packed)
    place.change({"parties.telco.table": "telco.csv.gz"})
    running = forked(read_slowly, place.folder, ["run", str(place.file), "--json"])
    try:
        deadline = time.monotonic() + 60
        while not (place.folder / "reading").exists():
            assert running.alive, (place.folder / "errors.txt").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        running.signal(end)
        assert running.wait() == (130 if end == signal.SIGINT else -end)
    finally:
        running.kill()
    assert not place.run_folder.exists()
    assert [*(place.folder / "scratch").iterdir()] == []


def test_a_query_of_another_thread_is_interrupted():
    reading = Reading()
    began = threading.Event()

    def endless() -> None:
        with duckdb.connect() as engine:
            raise_if_stopped(engine)
            began.set()
            try:
                engine.sql("SELECT count(*) FROM range(1000000000000) t(i) WHERE i * i % 7 = 3").fetchall()
            except duckdb.Error:
                raise_if_stopped()
                raise

    failures: list[BaseException] = []

    def read() -> None:
        try:
            reading.run(endless)
        except Interrupted as failure:
            failures.append(failure)

    thread = threading.Thread(target=read)
    thread.start()
    assert began.wait(60)
    while thread.is_alive():  # a query that has not begun yet is not interrupted
        reading.stop()
        thread.join(0.05)
    assert [type(failure) for failure in failures] == [Interrupted]
    with pytest.raises(Interrupted):
        reading.run(raise_if_stopped)
    raise_if_stopped()
