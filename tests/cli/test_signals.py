"""SIGTERM and SIGHUP, as services and terminals send them, end a command as Ctrl-C does."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from cutlayer.audit.watch import Watcher
from cutlayer.cli.signals import stopped_by_signals
from cutlayer.jobs import execute, runs


def sent(number: int) -> None:
    """Send this process a signal; Python runs its handler before the next statement."""
    os.kill(os.getpid(), number)
    signal.sigtimedwait([], 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_what_was_committed_and_says_so(place, monkeypatch, number, code):
    ended = Watcher.ended

    def stop(self, record):
        ended(self, record)
        if record.epoch == 1:
            sent(number)

    with monkeypatch.context() as patched:
        patched.setattr(Watcher, "ended", stop)
        result = place.call("run", place.file, "--json")
    assert result.code == code
    assert result.document()["exit_code"] == code
    assert f"the last committed epoch is in {place.run_folder}" in result.document()["error"]
    assert place.call("run", place.file, "--resume", "--json").code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_first_epoch_clears_the_folder(place, monkeypatch, number):
    monkeypatch.setattr(runs, "train_together", lambda *_, **__: sent(number))
    result = place.call("run", place.file)
    assert (result.code, result.error) == (
        128 + number,
        "interrupted; no epoch was committed yet: there is nothing to resume\n",
    )
    assert place.left() == set()


def test_handlers_are_put_back_and_an_ignored_signal_stays_ignored():
    before = signal.getsignal(signal.SIGTERM)
    hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopped_by_signals() as received:
            assert signal.getsignal(signal.SIGTERM) is not before
            sent(signal.SIGHUP)
        assert received.number is None
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGHUP, hangup)


def test_further_signals_do_not_interrupt_the_cleaning_up():
    with stopped_by_signals() as received:
        with pytest.raises(KeyboardInterrupt):
            sent(signal.SIGTERM)
        sent(signal.SIGTERM)
        sent(signal.SIGHUP)
    assert (received.number, received.exit_code(130)) == (signal.SIGTERM, 143)


def test_outside_the_main_thread_nothing_is_installed():
    before, found = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with stopped_by_signals():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [before]


def test_a_library_call_installs_no_handler(place, monkeypatch):
    from cutlayer.config.load import load_job
    from cutlayer.training.keys import Keys

    before, found = signal.getsignal(signal.SIGTERM), []
    monkeypatch.setattr(Watcher, "stepped", lambda *_: found.append(signal.getsignal(signal.SIGTERM)))
    options = execute.Options(Keys(place.folder / ".cutlayer"))
    execute.execute(load_job(place.file), place.run_folder, options, execute.Progress())
    assert {*found} == {before}
