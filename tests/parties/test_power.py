"""A machine that loses power at any moment: the run resumes from what was on its disk and ends with equal weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="module", params=JOBS)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path, Disk]:
    """An uninterrupted run, with an image of its disk at every moment."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to read what a descriptor names")
    job, root = JOBS[request.param], tmp_path_factory.mktemp("disk")
    disk = Disk(root)
    with disk.watched():
        start(job, root)
    return job, root, disk


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


@pytest.mark.parametrize("name", JOBS)
def test_what_a_party_relies_on_is_on_disk_before(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys before the first message, halves and history before the commit, the commit before the next epoch."""
    disk, moments = Disk(tmp_path), list[str]()
    send, commit = Port.send, Checkpoints.commit

    def sending(port: Port, *args: Any, **options: Any) -> Message:
        moments.append("send")
        assert all(dict(disk.synced()).get(secret) for secret in SECRETS)
        return send(port, *args, **options)

    def committing(checkpoints: Checkpoints, epoch: int, progress: Any, *args: Any, **options: Any) -> None:
        before = dict(disk.synced())
        for party, saved in ((ACTIVE, epoch), (TELCO, 0 if Phase.LEAVE in JOBS[name].phases else epoch)):
            assert before.get(f"run/checkpoint/{party}/epoch-{saved:04d}.safetensors")
        assert (before["run/history.jsonl"] or b"").count(b"\n") == epoch + 1
        commit(checkpoints, epoch, progress, *args, **options)
        assert f'"epoch": {epoch + 1}, "step": 0, "best"'.encode() in (
            dict(disk.synced())[f"run/checkpoint/{ACTIVE}/committed.json"] or b""
        )
        moments.append("commit")

    monkeypatch.setattr(Port, "send", sending)
    monkeypatch.setattr(Checkpoints, "commit", committing)
    with disk.watched():
        start(JOBS[name], tmp_path)
        after = dict(disk.synced())
    assert moments.count("commit") == 2
    assert "send" in moments
    assert all(after.get(f"run/{file}") for file in ("job.yaml", "summary.json", "ledger.json", "audit.json"))


@pytest.mark.parametrize("turn", range(2))
def test_every_23rd_image_resumes(recorded: tuple[Job, Path, Disk], tmp_path: Path, turn: int) -> None:
    job, whole, disk = recorded
    images = [*disk.images.items()]
    assert len(images) > 60, "the run syncs less than it should"
    for number, (image, moment) in enumerate(images):
        if number % 46 == 23 * turn:
            try:
                assert_resumed(job, whole, image, tmp_path / "image")
            except Exception as failure:
                raise AssertionError(f"power lost at: {moment}; {sorted(dict(image))}") from failure
            shutil.rmtree(tmp_path / "image")
