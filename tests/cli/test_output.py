"""What a person sees on a terminal of 80 columns: nothing wraps in the middle, nothing is cut that matters."""

from __future__ import annotations

import io
import re
import sys

import pytest
import torch
from rich.console import Console

from cutlayer.cli.progress import TerminalProgress
from cutlayer.parties.session.observer import EpochRecord
from cutlayer.problem.task import Task
from cutlayer.report.rounding import size
from tests.cli.jobs import JOB, changed

NARROW = 80


def terminal(width: int) -> Console:
    """A console that believes it is a terminal of this width, and keeps what it was sent."""
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None, legacy_windows=False)


def shown(console: Console) -> list[str]:
    """The lines that were on the screen at one time or another."""
    assert isinstance(console.file, io.StringIO)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", console.file.getvalue())
    return [line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip()]


def train(progress: TerminalProgress, names: list[str], kind: str = "binary", speed: float = 123_456.0) -> None:
    """Tell the progress of some trainings of one epoch."""
    task = Task(kind, ("no", "yes"))
    leak = {"employer/gradient/direction": 0.61, "employer/gradient/spectral": 0.93}
    for name in names:
        progress.stage(name)
        progress.started(task, torch.zeros(40_000), torch.arange(40_000), 1, 0)
        progress.stepped(0, 20_000, 0.5)
        progress.stepped(0, 20_000, 0.5)
        metrics = {task.metric: 0.98765}
        progress.ended(EpochRecord(0, 0.12345, "validation", metrics, 0.5, speed, True, leak))


def test_every_line_of_every_verb_fits_80_columns(place, finished):
    place.change({"parties.bank.privacy": {"label_dp": {"eps": 2.0}, "max_norm": None}})
    for arguments in (
        ("check", place.file),
        ("report", finished),
        ("list", "protections"),
        ("list", "attacks"),
        ("list", "models"),
    ):
        result = place.call(*arguments)
        assert result.code == 0
        wide = [line for line in result.out.splitlines() if len(line) > NARROW and str(finished) not in line]
        assert wide == [], arguments


def test_check_shows_each_party_on_one_line_with_sizes_people_can_read(place):
    name = "national_census_office"
    parties = {"bank": JOB["parties"]["bank"], name: JOB["parties"]["telco"]}
    place.write(changed({**JOB, "parties": parties}, {"train.batch_size": 128}))
    out = place.call("check", place.file).out
    assert re.search(r"^party +role +rows +cat\. +num\. +model +cut +weights +sent/epoch +on disk$", out, re.M)
    assert re.search(r"^bank +active +200 +0 +1 +mlp +4 +[\d,]+ +2\.56\skB +800\sB$", out, re.M)
    assert re.search(r"^national_census… +passive +200 +1 +1 +mlp +4 +[\d,]+ +2\.88\skB +1\.60\skB$", out, re.M)


def test_sizes():
    assert [size(n) for n in (0, 999, 1000, 1_500_000, 2 * 10**9, 3 * 10**12, 4 * 10**15)] == [
        "0\u00a0B",
        "999\u00a0B",
        "1.00\u00a0kB",
        "1.50\u00a0MB",
        "2.00\u00a0GB",
        "3.00\u00a0TB",
        "4000\u00a0TB",
    ]


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_progress_on_a_narrow_terminal_shows_all_its_figures(kind):
    console = terminal(NARROW)
    with TerminalProgress(console) as progress:
        train(progress, ["this run", "all columns in one place"], kind)
    lines = shown(console)
    assert max(map(len, lines)) <= NARROW
    metric = "auc" if kind == "binary" else "acc"
    for name in ("this run", "all columns in …"):
        last = [line for line in lines if line.startswith(name)][-1]
        assert f"123k rows/s loss 0.123 {metric} 0.988 leak 0.930" in last
        assert re.search(r"━ +123k", last), "there is room for the bar"
        assert re.search(r"\d:\d\d:\d\d$", last)


def test_progress_on_a_wide_terminal_names_the_attack():
    console = terminal(120)
    with TerminalProgress(console) as progress:
        train(progress, ["all columns in one place"])
    assert "all columns in one place" in shown(console)[-1]
    assert "leak 0.930 (spectral)" in shown(console)[-1]
    assert max(map(len, shown(console))) <= 120


def test_progress_without_a_terminal_is_one_line_per_epoch():
    file = io.StringIO()
    with TerminalProgress(Console(file=file, width=NARROW)) as progress:
        train(progress, ["this run", "undefended"])
    assert file.getvalue().splitlines() == [
        f"{name}: epoch 1: 123k rows/s  loss 0.123  auc 0.988  leak 0.930 (spectral)"
        for name in ("this run", "undefended")
    ]


@pytest.mark.parametrize(("width", "words"), [(NARROW, "auc 0.988 (cv)"), (120, "rows of all parties")])
def test_a_fitted_model_is_said_to_be_measured_by_cross_validation(width, words):
    console = terminal(width)
    with TerminalProgress(console) as progress:
        progress.stage("this run")
        progress.started(Task("binary", ("no", "yes")), torch.zeros(50), torch.arange(50), 1, 0)
        progress.stepped(0, 50, 0.5)
        progress.ended(EpochRecord(0, 0.12345, "cross-validation", {"auc": 0.98765}, 0.5, 400.0))
    assert words in shown(console)[-1]
    assert max(map(len, shown(console))) <= width


@pytest.mark.parametrize(("speed", "shown"), [(84.4, "84"), (999.0, "999"), (1000.0, "1k")])
def test_a_slow_run_shows_its_speed_in_rows(speed, shown):
    file = io.StringIO()
    with TerminalProgress(Console(file=file, width=NARROW)) as progress:
        train(progress, ["this run"], speed=speed)
    assert f"epoch 1: {shown} rows/s" in file.getvalue()


def test_a_log_has_the_loss_of_every_hundredth_step():
    file = io.StringIO()
    task = Task("binary", ("no", "yes"))
    with TerminalProgress(Console(file=file, width=NARROW)) as progress:
        progress.stage("this run")
        progress.started(task, torch.zeros(250), torch.arange(250), 2, 0)
        for epoch in range(2):
            for step in range(250):
                progress.stepped(epoch, 1, epoch + step / 1000)
    assert file.getvalue().splitlines() == [
        "this run: epoch 1, step 100: loss 0.099",
        "this run: epoch 1, step 200: loss 0.199",
        "this run: epoch 2, step 100: loss 1.099",
        "this run: epoch 2, step 200: loss 1.199",
    ]
    console = terminal(NARROW)
    with TerminalProgress(console) as progress:
        progress.stage("this run")
        progress.started(task, torch.zeros(250), torch.arange(250), 1, 0)
        for step in range(250):
            progress.stepped(0, 1, step / 1000)
    assert not any("step 100" in line for line in shown(console))


def test_an_error_is_wrapped_between_words_on_a_terminal_and_not_elsewhere(place, monkeypatch):
    place.change({"parties.bank.audit": {"fail_above": {"label_auc": 0.6}, "every": "never"}})
    assert len(place.call("run", place.file).error.splitlines()) == 1
    console = terminal(NARROW)
    monkeypatch.setattr(sys.modules["cutlayer.cli.app"], "error_console", console)
    monkeypatch.chdir(place.folder)
    assert place.call("run", "job.yaml").code == 2
    lines = shown(console)
    assert len(lines) == 2
    assert max(map(len, lines)) <= NARROW
    assert " ".join(lines).endswith(
        "expected every: epoch or end with fail_above, got never; a gate is on the largest leak of all epochs"
    )
