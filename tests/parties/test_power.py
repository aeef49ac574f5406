"""A machine that loses power at any moment: the run resumes from what was on its disk and ends with equal weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from cutlayer.channel import Message, Port
from cutlayer.config import Job
from cutlayer.config.phases import Phase
from cutlayer.consent import allowed
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.session.checkpoint import Checkpoints
from cutlayer.training.keys import Keys
from tests.parties.interruptions import halves, history
from tests.parties.power import Disk, Image, written_out
from tests.parties.runs import ACTIVE, DROPOUT, PASSIVES, make_job, tables

PROTECTED = {"label_dp": {"eps": 2.0}, "max_norm": {}}
RECORDED = {"rows": 64, "attacks": ["norm"], "layers": False}
TELCO = PASSIVES[0]


def job_of(**options: Any) -> Job:
    """A job that attacks labels alone: its columns would be attacked anew after every resume."""
    job = make_job(audit=RECORDED, epochs=2, **options)
    return job.with_parties({TELCO: {"audit": job.parties[TELCO].audit.model_copy(update={"attacks": ()})}})


JOBS = {
    "every step": job_of(bottom=DROPOUT, privacy=PROTECTED),
    "released once": job_of(privacy={"label_dp": {"eps": 2.0}}, release="once"),
}
GIVEN = tables()
Synced = dict[str, bytes | None]
SECRETS = [f"keys/{ACTIVE}.key", *(f"run/checkpoint/{name}/noise.key" for name in (ACTIVE, TELCO))]
LABEL_DRAWS = f"run/checkpoint/{ACTIVE}/label_draws.json"
"""Names the label memory, without which labels are drawn anew."""


def start(job: Job, disk: Path) -> Path:
    """What a user does after the machine is up again: resume the run if there is one, and start it otherwise."""
    folder = disk / "run"
    resume = (folder / "job.yaml").exists()
    options = Options(Keys(disk / "keys"), resume=resume, tables=GIVEN)
    with allowed("tests.parties.runs"):
        return execute(job, folder, options, Progress()).path


class Recorded(NamedTuple):
    """An uninterrupted run.

    Attributes:
        job: What it trained.
        root: Its disk.
        disk: With an image at every moment.
        sending: What was certain to survive when each message was sent.
        committing: What was, before and after each commit of the active party.
        ended: What was at the end.
    """

    job: Job
    root: Path
    disk: Disk
    sending: list[Synced]
    committing: list[tuple[Synced, Synced]]
    ended: Synced


@pytest.fixture(scope="module", params=JOBS)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to read what a descriptor names")
    job, root = JOBS[request.param], tmp_path_factory.mktemp("disk")
    disk, sending, committing = Disk(root), list[Synced](), list[tuple[Synced, Synced]]()
    send, commit = Port.send, Checkpoints.commit

    def watched_send(port: Port, *args: Any, **options: Any) -> Message:
        sending.append(dict(disk.synced()))
        return send(port, *args, **options)

    def watched_commit(checkpoints: Checkpoints, *args: Any, **options: Any) -> None:
        before = dict(disk.synced())
        commit(checkpoints, *args, **options)
        committing.append((before, dict(disk.synced())))

    with pytest.MonkeyPatch.context() as patched, disk.watched():
        patched.setattr(Port, "send", watched_send)
        patched.setattr(Checkpoints, "commit", watched_commit)
        start(job, root)
        ended = dict(disk.synced())
    return Recorded(job, root, disk, sending, committing, ended)


def assert_resumed(job: Job, whole: Path, image: Image, disk: Path) -> None:
    folder = start(job, written_out(image, disk))
    names = dict(image)
    if any(secret not in names for secret in SECRETS):
        assert not any(name.endswith(".safetensors") for name in names), "a half without its key"
        return  # nothing was sent before keys and draws were on disk, so that others are as good
    if LABEL_DRAWS not in names:
        # Partners that release once have done so before a label is drawn, and have a half of their own.
        owner = f"run/checkpoint/{ACTIVE}/epoch" if Phase.LEAVE in job.phases else "run/"
        early = [name for name in names if name.startswith(owner) and name.endswith(".safetensors")]
        assert not early, "a half without its draws"
        return
    mine, theirs = halves(folder, job), halves(whole / "run", job)
    for party, tensors in theirs.items():
        assert mine[party].keys() == tensors.keys()
        assert all(torch.equal(mine[party][name], tensor) for name, tensor in tensors.items()), party
    assert history(folder) == history(whole / "run")


def test_keys_are_on_disk_before_the_first_message(recorded: Recorded) -> None:
    assert recorded.sending
    assert all(synced.get(secret) for synced in recorded.sending for secret in SECRETS)


def test_halves_and_history_are_on_disk_before_a_commit_and_it_before_the_next_epoch(recorded: Recorded) -> None:
    assert len(recorded.committing) == 2
    for epoch, (before, after) in enumerate(recorded.committing):
        for party, saved in ((ACTIVE, epoch), (TELCO, 0 if Phase.LEAVE in recorded.job.phases else epoch)):
            assert before.get(f"run/checkpoint/{party}/epoch-{saved:04d}.safetensors")
        assert (before["run/history.jsonl"] or b"").count(b"\n") == epoch + 1
        committed = after[f"run/checkpoint/{ACTIVE}/committed.json"] or b""
        assert f'"epoch": {epoch + 1}, "step": 0, "best"'.encode() in committed


def test_results_are_on_disk_at_the_end(recorded: Recorded) -> None:
    assert all(recorded.ended.get(f"run/{file}") for file in ("job.yaml", "summary.json", "ledger.json", "audit.json"))


@pytest.mark.parametrize("turn", range(2))
def test_every_31st_image_resumes(recorded: Recorded, tmp_path: Path, turn: int) -> None:
    job, whole, disk, *_ = recorded
    images = [*disk.images.items()]
    assert len(images) > 60, "the run syncs less than it should"
    for number, (image, moment) in enumerate(images):
        if number % 62 == 31 * turn:
            try:
                assert_resumed(job, whole, image, tmp_path / "image")
            except Exception as failure:
                raise AssertionError(f"power lost at: {moment}; {sorted(dict(image))}") from failure
            shutil.rmtree(tmp_path / "image")
