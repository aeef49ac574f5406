"""Ways for a run to die, and what must be equal however it was interrupted."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cutlayer.channel import Kind, Message
from cutlayer.config import Job
from cutlayer.jobs.options import Progress
from cutlayer.parties.faults import FaultPoint, Faults, no_faults
from cutlayer.parties.session.observer import Observer
from cutlayer.training.folder import RunFolder
from cutlayer.training.together import TrainedRun
from tests.parties.runs import KEY, run


class Crash(Exception):
    """Stands for whatever ends a process."""


def crashes_at_rename(nth: int, train: Callable[[], Any], *, after: bool) -> bool:
    """Train until the process dies around its nth rename; returns whether it died."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "replace", Calls(nth, after=after)(Path.replace))
        try:
            train()
        except Crash:
            return True
        return False


def left_at_renames(folder: Path, train: Callable[[], Any], numbers: Sequence[int]) -> dict[int, Path]:
    """Train in a folder, and copy it around renames of these numbers, before one and after the next in turn.

    A copy is what a process leaves that is killed there: one run stands for all that die.
    """
    left: dict[int, Path] = {}
    numbered, renamed, last = count(), Path.replace, len(str(numbers[-1]))

    def copied(nth: int) -> None:
        left[nth] = folder.with_name(f"{folder.name}-{nth:0{last}}")
        if folder.exists():
            shutil.copytree(folder, left[nth])

    def replace(path: Path, target: Any) -> Path:
        nth = next(numbered)
        place = numbers.index(nth) if nth in numbers else None
        if place is not None and place % 2 == 0:
            copied(nth)
        result = renamed(path, target)
        if place is not None and place % 2 == 1:
            copied(nth)
        return result

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        train()
    return left


class Copies:
    """Copies of the folder of one run, made where other runs would die: what a process leaves that is killed there.

    Args:
        folder: Folder of the run.

    Attributes:
        left: The copies, by the name of the point.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.left: dict[str, Path] = {}

    def take(self, name: str) -> None:
        """Copy the folder as it is now."""
        assert name not in self.left, "a run dies once"
        self.left[name] = self.folder.with_name(f"{self.folder.name}-{len(self.left)}")
        self.left[name].mkdir()
        if self.folder.exists():
            shutil.copytree(self.folder, self.left[name], dirs_exist_ok=True)

    def faults(self, points: Mapping[str, Fails]) -> Faults:
        """Faults that copy the folder at each point."""
        coming = deepcopy(dict(points))

        def fault(at: FaultPoint, party: str, what: Any) -> None:
            for name in [*coming]:
                try:
                    coming[name](at, party, what)
                except Crash:
                    del coming[name]
                    self.take(name)

        return fault

    def call(self, name: str, nth: int, *, after: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """As `Calls`, with a copy in place of the crash."""

        def wrap(work: Callable[..., Any]) -> Callable[..., Any]:
            numbers = count()

            def wrapped(*args: Any, **options: Any) -> Any:
                here = next(numbers) == nth
                if here and not after:
                    self.take(name)
                result = work(*args, **options)
                if here and after:
                    self.take(name)
                return result

            return wrapped

        return wrap

    def steps(self, *numbers: int) -> Progress:
        """Progress that copies the folder at steps of these numbers, by the name `step N`."""
        return _CopyingSteps(self, numbers)


class _CopyingSteps(Progress):
    def __init__(self, copies: Copies, numbers: Collection[int]) -> None:
        self._copies, self._numbers, self._steps = copies, numbers, count()

    def stepped(self, epoch: int, rows: int, loss: float) -> None:
        if (step := next(self._steps)) in self._numbers:
            self._copies.take(f"step {step}")


class Calls:
    """Counts calls and crashes at one of them, before or after its work is done."""

    def __init__(self, nth: int, *, after: bool = False) -> None:
        self.left, self.after = nth, after

    def __call__(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0 and not self.after:
                raise Crash
            result = work(*args, **options)
            if self.left < 0:
                raise Crash
            return result

        return wrapped


class Fails:
    """Faults that fail a run at the nth of the points that are of a kind, of a party and of what is there.

    Args:
        at: Kind of the point.
        party: Name of the party; any by default.
        nth: Number of such points that are passed.
        when: Whether a point counts, by what is there.
        failure: Raised there.
    """

    def __init__(
        self,
        at: FaultPoint,
        party: str = "",
        nth: int = 0,
        when: Callable[[Any], bool] = lambda what: True,
        failure: Exception | None = None,
    ) -> None:
        self.at, self.party, self.left, self.when, self.failure = at, party, nth, when, failure or Crash()

    def __call__(self, at: FaultPoint, party: str, what: Any) -> None:
        if at == self.at and self.party in ("", party) and self.when(what):
            self.left -= 1
            if self.left < 0:
                raise self.failure


def of_kind(kind: Kind) -> Callable[[Message], bool]:
    """Whether a message is of a kind."""
    return lambda message: message.kind == kind


class Dying(Progress):
    """Progress that ends the run at its nth step, by an error."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def stepped(self, epoch: int, rows: int, loss: float) -> None:
        self.left -= 1
        if self.left < 0:
            self.die()

    def die(self) -> None:
        raise Crash


class Killed(Dying):
    """Progress that ends its process at the nth step as `kill -9` does: no handler and no clean-up runs."""

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def history(folder: Path) -> list[dict[str, Any]]:
    """The history without what a clock decides."""
    clocks = ("seconds", "rows_per_second")
    return [{key: value for key, value in line.items() if key not in clocks} for line in RunFolder(folder).history()]


def losses(folder: Path) -> list[float]:
    """The mean loss of every epoch."""
    return [line["loss"] for line in RunFolder(folder).history()]


def halves(folder: Path, job: Job) -> dict[str, dict[str, torch.Tensor]]:
    """Last and best checkpoint of every party, optimiser and random state included."""
    found = {}
    for party in job.parties:
        saved = sorted((folder / "checkpoint" / party).glob("epoch-*.safetensors"))
        found[party] = {f"last/{name}": tensor for name, tensor in load_file(saved[-1]).items()}
        best = folder / "checkpoint" / party / "best.safetensors"
        found[party] |= {f"best/{name}": tensor for name, tensor in load_file(best).items()}
    return found


def assert_equal(folder: Path, trained: TrainedRun, other_folder: Path, other: TrainedRun, job: Job) -> None:
    """Weights, optimisers, history, evidence, held-out metrics and every leak figure are equal to the last bit."""
    mine, theirs = halves(folder, job), halves(other_folder, job)
    for party, tensors in theirs.items():
        assert mine[party].keys() == tensors.keys()
        different = [name for name, tensor in tensors.items() if not torch.equal(mine[party][name], tensor)]
        assert not different, (party, different)
    assert history(folder) == history(other_folder)
    assert trained.active.evidence == other.active.evidence
    assert trained.active.metrics == other.active.metrics
    assert trained.active.selected_epoch == other.active.selected_epoch
    assert (trained.active.epochs, trained.active.stopped_early) == (other.active.epochs, other.active.stopped_early)
    assert torch.equal(trained.active.logits, other.active.logits)
    assert cells(trained) == cells(other)


def cells(trained: TrainedRun) -> list[str]:
    """Every leak of every epoch and the results with their intervals, as text, so that NaN equals NaN."""
    assert trained.auditor is not None
    leaks = [f"{cell}: {series.leaks}" for cell, series in sorted(trained.auditor.series.items())]
    return [*leaks, trained.auditor.results("this run", ()).model_dump_json()] if leaks else []


def interrupted(
    job: Job, given: Any, folder: Path, progress: Observer | None = None, faults: Faults = no_faults
) -> None:
    """A run that must die of a `Crash`."""
    with pytest.raises(Crash):
        run(job, given, folder, key=KEY, progress=progress, faults=faults)
