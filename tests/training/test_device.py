"""A real file system that loses power: copies of its device during a run are mounted, and the run resumes from each."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from cutlayer.config import Job
from cutlayer.consent import allowed
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.keys import Keys
from tests.parties.interruptions import halves, history
from tests.parties.processes import PATIENCE, forked
from tests.parties.runs import DROPOUT, KEY, make_job, tables

JOB = make_job(bottom=DROPOUT, privacy={"max_norm": {}}, audit={"rows": 64, "attacks": ["norm"]}, epochs=6)
GIVEN = tables()
COPIES = 2
MEGABYTES = 48


def start(job: Job, folder: Path, resume: bool) -> None:
    with allowed("tests.parties.runs"):
        execute(job, folder, Options(Keys(folder, KEY), resume=resume, tables=GIVEN), Progress())


def command(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


@contextmanager
def mounted(device: Path, at: Path) -> Iterator[Path]:
    at.mkdir(exist_ok=True)
    command("mount", "-o", "loop", device, at)
    try:
        yield at
    finally:
        command("umount", at)


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """An empty ext4 file system in a file."""
    missing = [name for name in ("mkfs.ext4", "mount", "umount") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing) or 'loop devices'} to mount a file system")
    image = tmp_path / "device"
    with image.open("wb") as file:
        file.truncate(MEGABYTES * 2**20)
    command("mkfs.ext4", "-q", "-F", image)
    try:
        with mounted(image, tmp_path / "live"):
            pass
    except subprocess.CalledProcessError as refused:
        pytest.skip(f"no loop device can be mounted here: {refused.stderr.decode().strip()}")
    return image


def test_a_run_resumes_from_copies_of_its_device(device: Path, tmp_path: Path) -> None:
    copies = []
    with mounted(device, tmp_path / "live") as live:
        running = forked(start, JOB, live / "run", False)
        epochs = live / "run" / "history.jsonl"
        for number in range(COPIES):
            deadline = time.monotonic() + PATIENCE
            while running.alive and not (epochs.exists() and epochs.read_bytes().count(b"\n") > 3 * number):
                assert time.monotonic() < deadline, "the run makes no progress"
                time.sleep(0.001)
            # Stopped, so that the copy is of one moment; the system's own writes lag behind by seconds anyway.
            running.signal(signal.SIGSTOP)
            copies.append(Path(shutil.copy(device, tmp_path / f"copy-{number}")))
            running.signal(signal.SIGCONT)
        assert running.wait() == 0
        whole = Path(shutil.copytree(live / "run", tmp_path / "whole"))
    resumed = 0
    for copy in copies:
        again = copy.with_suffix(".run")
        with mounted(copy, tmp_path / "after") as after:
            there = (after / "run" / "job.yaml").exists()
            assert forked(start, JOB, after / "run", there).wait() == 0
            shutil.copytree(after / "run", again)
        assert history(again) == history(whole)
        mine, theirs = halves(again, JOB), halves(whole, JOB)
        assert all(torch.equal(mine[party][name], theirs[party][name]) for party in theirs for name in theirs[party])
        resumed += there
    assert resumed == COPIES, "what was synced is not on the device"
