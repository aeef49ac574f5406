"""Ctrl-C: a run can be resumed after its last committed epoch; before the first one its folder is removed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from cutlayer.audit.watch import Watcher
from cutlayer.cli.run import interruptible
from cutlayer.errors import Interrupted
from cutlayer.jobs import runs
from cutlayer.parties.session.checkpoint import SENT_LABELS_FILE
from tests.parties.processes import forked, run_in

EPOCHS = 10
ALLOWED = ("--allow-model", "cli_slow_model")
SLOW_MODEL = """
import os, time, torch

class Slow(torch.nn.Module):
    width = 3

    def __init__(self, inputs):
        super().__init__()
        self.layer = torch.nn.Linear(inputs.numbers, 3)

    def forward(self, codes, numbers):
        time.sleep(float(os.environ.get("CLI_TEST_SECONDS", 0)))
        return self.layer(numbers)
"""


def losses(folder: Path) -> list[float]:
    """The training loss of every epoch, in the order they were run."""
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(len(lines)))
    return [line["loss"] for line in lines]


def run_slowly(folder: Path, arguments: list[str]) -> None:
    """The command line in a process of its own, with a model that takes its time."""
    # A shell starts its background jobs deaf to Ctrl-C, and their children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["CLI_TEST_SECONDS"] = "0.05"
    sys.path.insert(0, str(folder))
    run_in(folder, arguments)


def test_a_real_interrupt_and_a_resume_end_as_a_run_without(place, monkeypatch):
    (place.folder / "cli_slow_model.py").write_text(SLOW_MODEL)
    monkeypatch.syspath_prepend(place.folder)
    model = {"bank": {"kind": "mlp"}, "telco": {"kind": "python", "path": "cli_slow_model:Slow"}}
    place.change({"train.epochs": EPOCHS, "model.bottom": model, "parties.bank.audit": {"every": "never"}})
    key = place.folder / "noise.key"  # without it another run would start from other weights
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    options = ["--json", "--key", str(key), *ALLOWED]
    history = place.run_folder / "history.jsonl"
    running = forked(run_slowly, place.folder, ["run", str(place.file), *options])
    try:
        deadline = time.monotonic() + 60
        while not (history.exists() and history.read_text().count("\n") >= 2):
            assert running.alive, "it ended before it could be interrupted"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        running.signal(signal.SIGINT)
        code = running.wait()
    finally:
        running.kill()
    assert (code, (place.folder / "errors.txt").read_text()) == (130, "")
    result = json.loads((place.folder / "output.json").read_text())
    assert result["exit_code"] == 130
    assert f"the last committed epoch is in {place.run_folder}" in result["error"]
    assert "--resume continues from it" in result["error"]
    assert not (place.run_folder / "report.json").exists()
    assert len(losses(place.run_folder)) < EPOCHS
    assert place.call("run", place.file, "--resume", *options).code == 0
    assert place.call("run", place.file, "--out", "whole", *options).code == 0
    assert losses(place.run_folder) == losses(place.folder / "whole")


@pytest.fixture
def interrupted_after(monkeypatch: pytest.MonkeyPatch):
    """Press Ctrl-C when an epoch of a training has ended."""

    def at(epoch: int) -> None:
        ended = Watcher.ended

        def pressed(self, record):
            ended(self, record)
            if record.epoch == epoch:
                raise KeyboardInterrupt

        monkeypatch.setattr(Watcher, "ended", pressed)

    return at


def test_the_message_says_what_stands(place, interrupted_after):
    interrupted_after(0)
    result = place.call("run", place.file)
    assert result.code == 130
    assert result.err.splitlines()[-1] == (
        f"error interrupted; the last committed epoch is in {place.run_folder}; "
        "the same command with --resume continues from it"
    )
    assert place.call("run", place.file).code == 2, "a run that was interrupted is not overwritten"


def test_drawn_labels_that_were_sent_are_a_run_to_resume(tmp_path):
    """The folder stays, and the message said that there is nothing to resume."""
    sent = tmp_path / "checkpoint" / "bank" / SENT_LABELS_FILE
    sent.parent.mkdir(parents=True)
    with pytest.raises(Interrupted, match="there is nothing to resume"), interruptible(tmp_path):
        raise KeyboardInterrupt
    sent.touch()
    wanted = "labels as they were drawn and sent; the same command with --resume"
    with pytest.raises(Interrupted, match=wanted), interruptible(tmp_path):
        raise KeyboardInterrupt


def test_before_the_first_epoch_nothing_is_kept(place, monkeypatch):
    def pressed(*_arguments, **_named):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "train_together", pressed)
    result = place.call("run", place.file)
    assert (result.code, result.error) == (130, "interrupted; no epoch was committed yet: there is nothing to resume\n")
    assert place.left() == set()
    monkeypatch.undo()
    assert place.call("run", place.file, "--json").code == 0


def test_an_interrupted_comparison_is_resumed_too(place, interrupted_after, monkeypatch):
    place.change({"parties.bank.privacy": {"max_norm": None}, "compare": ["undefended"]})
    interrupted_after(1)
    assert place.call("run", place.file).code == 130
    assert not (place.run_folder / "history.jsonl").exists(), "the twin is trained first"
    monkeypatch.undo()
    monkeypatch.chdir(place.folder)
    report = place.call("run", place.file, "--resume", "--json").document()
    assert {row["name"] for row in report["utility"]["rows"]} == {"this run", "undefended", "chance"}


@pytest.mark.parametrize("verb", ["check", "report", "audit"])
def test_other_verbs_are_just_interrupted(place, finished, monkeypatch, verb):
    def pressed(*_arguments, **_named):
        raise KeyboardInterrupt

    monkeypatch.setattr("cutlayer.jobs.matching.intersect", pressed)
    monkeypatch.setattr("cutlayer.training.folder.RunFolder.open", pressed)
    result = place.call(verb, place.file if verb == "check" else finished)
    assert (result.code, result.err.strip()) == (130, "error interrupted")
