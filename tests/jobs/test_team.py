"""Two workers per party in processes of their own: the losses, ledger, labels and noise of one worker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from cutlayer.channel.security import Security
from cutlayer.channel.trail import verify
from cutlayer.channel.transcript import read_epochs
from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.links import LinkOptions
from cutlayer.jobs.team import on_lane, team_of
from cutlayer.models import Inputs
from cutlayer.parties.active_model import TrainingLabels
from cutlayer.parties.compute.team import Team
from cutlayer.parties.team.leading import SharedLabels
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from tests.parties.interruptions import history, losses
from tests.parties.processes import Forked, Site, fork_workers, lay_out, wait_for
from tests.parties.runs import ACTIVE, KEY, MLP, PASSIVES, Watched, make_job, raw_job, run, tables

NOISY, PLAIN = PASSIVES[:2]
WIDTH = 4
LOST = 3
SGD = {"kind": "sgd", "lr": 0.02}
"""Adam divides by the size of a gradient, and so would magnify the rounding of one that is almost zero."""


class ZeroBottom(nn.Module):
    """Embeds every row as zeros, so that what is released of it is the noise alone."""

    def __init__(self, inputs: Inputs, width: int = WIDTH) -> None:
        super().__init__()
        self.width = width
        self.layer = nn.Linear(inputs.numbers, width)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        return torch.relu(self.layer(numbers)) * 0.0


def raw(**train: Any) -> dict[str, Any]:
    """A job whose last batch of an epoch has one row, so that the second worker has none of it.

    The default form of max norm draws a sign, which rounding alone can change.
    """
    bottom = {ACTIVE: MLP, NOISY: {"kind": "python", "path": f"{__name__}:ZeroBottom"}, PLAIN: MLP}
    job = raw_job(
        passives=2,
        bottom=bottom,
        privacy={"label_dp": {"eps": 2.0}, "max_norm": {"form": "once"}},
        audit={"rows": 10_000, "attacks": ["norm"]},
        **{"epochs": 3, "batch_size": 45, "workers": 2, "optimizer": SGD, **train},
    )
    job["parties"][NOISY]["privacy"] = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 2.0}}
    return job


def released(folder: Path, party: str) -> list[Tensor]:
    """What a passive party sent in each recorded step, by the active party's transcript."""
    return [step.embeddings[party] for _, steps in read_epochs(folder / "transcript" / ACTIVE) for step in steps]


def ended(started: dict[str, list[Forked]]) -> dict[str, list[int]]:
    return {name: [worker.wait() for worker in workers] for name, workers in started.items()}


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Watched]:
    """The same job with one worker per party, all parties in this process."""
    folder = tmp_path_factory.mktemp("one")
    return folder, run(validated(Job, raw(), ""), tables(passives=2), folder, key=KEY)


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Site]:
    """The job with two workers per party, each in a process of its own."""
    placed = lay_out(tmp_path_factory.mktemp("two"), raw(), tables(passives=2))
    codes = ended({name: fork_workers(site, 2) for name, site in placed.items()})
    result = [path.read_text()[-1000:] for site in placed.values() for path in site.folder.glob("output-*.json")]
    assert codes == {name: [0, 0] for name in placed}, result
    return placed


def test_two_workers_equal_one(two_workers: dict[str, Site], one_worker: tuple[Path, Watched]) -> None:
    folder, alone = one_worker
    ours, theirs = losses(two_workers[ACTIVE].run), losses(folder)
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5), "rounding grows with the epochs"
    crossed = [[line["bytes"] for line in history(run)] for run in (two_workers[ACTIVE].run, folder)]
    assert crossed[0] == crossed[1], "bytes of all lanes together"
    assert all(line["learned"] for line in history(two_workers[ACTIVE].run)), "its gradients are of all workers"
    # Labels and account: one for the party, whatever the number of its workers.
    output = json.loads((two_workers[ACTIVE].folder / "output-0.json").read_text())
    assert (two_workers[ACTIVE].folder / "output-1.json").read_text() == ""
    facts = {fact["name"]: fact for fact in output["protections"]}
    expected = {fact.protection: fact for fact in alone.active.evidence}
    assert facts["label_dp"]["changed"] == expected["label_dp"].changed > 0
    assert {name: fact["sent"] for name, fact in facts.items()} == {
        "label_dp": output["data"]["train"],
        "max_norm": 2 * 3 * (2 * 4 + 1),  # peers, epochs, and parts of the batches, the last of which has one row
        "dp_embedding": 3 * (2 * 4 + 1) + 3 + 1,  # with evaluations
    }
    assert all(fact["covered"] == fact["sent"] for fact in facts.values())
    outcome = json.loads((two_workers[NOISY].run / "outcome.json").read_text())
    assert outcome["protections"][0]["metrics"] == expected["dp_embedding"].metrics


def test_two_workers_train_and_record_an_unprotected_job_as_one(tmp_path: Path) -> None:
    """The bottom model's updates show in what is released after them; the record is whole without a protection."""
    train = {"epochs": 2, "batch_size": 45, "workers": 2, "optimizer": SGD | {"lr": 0.5}}
    job = raw_job(passives=1, audit={"rows": 10_000, "attacks": ["norm"]}, **train)
    placed = lay_out(tmp_path / "two", job, tables(passives=1))
    codes = ended({name: fork_workers(site, 2) for name, site in placed.items()})
    assert codes == {name: [0, 0] for name in placed}
    run(validated(Job, job, ""), tables(passives=1), tmp_path / "one", key=KEY)
    ours, theirs = (released(folder, NOISY) for folder in (placed[ACTIVE].run, tmp_path / "one"))
    assert len(ours) == len(theirs) == 2 * 5, "epochs, and batches"
    for mine, yours in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, yours, rtol=1e-3, atol=1e-5)


def test_no_noise_is_drawn_twice(two_workers: dict[str, Site], one_worker: tuple[Path, Watched]) -> None:
    """Rows of both workers embed as zeros: what was sent is noise alone. A worker with a key of its own would show."""
    ours, theirs = (released(folder, NOISY) for folder in (two_workers[ACTIVE].run, one_worker[0]))
    assert len(ours) == len(theirs) > 0
    assert all(torch.equal(mine, yours) for mine, yours in zip(ours, theirs, strict=True))
    rows = torch.cat(ours)
    assert bool(rows.abs().sum(1).gt(0).all())
    assert len({tuple(row) for row in rows.tolist()}) == len(rows)


def test_each_worker_has_a_trail_of_its_own(two_workers: dict[str, Site]) -> None:
    for site in two_workers.values():
        trails = sorted(path.name for path in site.folder.glob(".cutlayer/*.trail*"))
        assert trails == [f"{site.name}.key.trail", f"{site.name}.key.trail.worker1"]
        assert not verify(site.folder / ".cutlayer" / trails[1]).problems


def test_a_killed_worker_stops_all_and_all_resume(tmp_path: Path, two_workers: dict[str, Site]) -> None:
    placed = lay_out(tmp_path, raw(), tables(passives=2))
    started = {name: fork_workers(site, 2) for name, site in placed.items()}
    wait_for(lambda: len(history(placed[ACTIVE].run)) >= 1, "the first epoch")
    started[PLAIN][1].kill()
    codes = ended(started)
    assert codes[PLAIN] == [LOST, -9]
    assert all(codes[name] == [LOST, LOST] for name in (ACTIVE, NOISY)), codes
    result = json.loads((placed[PLAIN].folder / "output-0.json").read_text())["error"]
    assert "lost a worker of this party" in result
    again = {name: fork_workers(site, 2, "--resume") for name, site in placed.items()}
    assert ended(again) == {name: [0, 0] for name in placed}
    assert history(placed[ACTIVE].run) == history(two_workers[ACTIVE].run)


def test_parts_cover_a_batch_once() -> None:
    for size, rows in ((2, 47), (3, 4), (4, 2), (2, 1)):
        parts = [Team(rank, size).part(torch.arange(rows)) for rank in range(size)]
        assert torch.equal(torch.cat(parts), torch.arange(rows))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"release": "once"}, "release: once"),
        ({"micro_batches": 2}, "workers or micro_batches"),
        ({"batch_size": 1}, "workers up to the 1 rows"),
    ],
)
def test_what_workers_cannot_do_is_refused(change: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        check_job(make_job(**{"workers": 2, **change}))


def test_a_protection_of_single_rows_gradients_is_refused() -> None:
    job = raw_job(workers=2)
    job["parties"][PASSIVES[0]]["privacy"] = {"dp_bottom": {"clip": 1.0, "noise_multiplier": 1.0}}
    with pytest.raises(ConfigError, match="dp_bottom, which updates the weights row by row"):
        check_job(validated(Job, job, ""))


def test_workers_are_part_of_the_contract() -> None:
    assert make_job().digest() == make_job(workers=1).digest() != make_job(workers=2).digest()


@pytest.mark.parametrize(
    ("size", "rank", "workers", "wrong"),
    [("2", "0", 1, "without torchrun"), ("1", "0", 2, "torchrun --nproc-per-node 2"), ("two", "0", 2, "WORLD_SIZE")],
)
def test_the_environment_must_fit_the_job(
    monkeypatch: pytest.MonkeyPatch, size: str, rank: str, workers: int, wrong: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("RANK", rank)
    with pytest.raises(ConfigError, match=wrong), team_of(make_job(workers=workers), 1.0):
        pass


def test_each_worker_has_its_address() -> None:
    job = raw_job(workers=3)
    job["parties"][ACTIVE]["address"] = "127.0.0.1:7070"
    links = LinkOptions(listen="127.0.0.1:8080", trail=Path("a.trail"))
    moved, own = on_lane(validated(Job, job, ""), links, 2)
    assert (moved.parties[ACTIVE].address, own.listen, own.trail) == (
        "127.0.0.1:7072",
        "127.0.0.1:8082",
        Path("a.trail.worker2"),
    )
    job["parties"][ACTIVE]["lanes"] = ["127.0.0.1:1", "127.0.0.1:2"]
    moved, _ = on_lane(validated(Job, job, ""), links, 2)
    assert moved.parties[ACTIVE].address == "127.0.0.1:2"
    job["parties"][ACTIVE]["lanes"] = ["127.0.0.1:1"]
    with pytest.raises(ConfigError, match=r"2 parties\.bank\.lanes"):
        check_job(validated(Job, job, ""))
    job["parties"][ACTIVE]["lanes"] = ["10.0.0.1:7", "10.0.0.2:7"]
    away, trusted = validated(Job, job, ""), cast("Security", object())
    with pytest.raises(ConfigError, match="links without TLS stay on this machine"):
        on_lane(away, links, 1)
    moved, own = on_lane(away, replace(links, security=trusted), 1)
    assert (moved.parties[ACTIVE].address, own.security) == ("10.0.0.1:7", trusted), "no lane without certificates"
    for lanes, wrong in (
        (["127.0.0.1:7071", "bank-2"], "HOST:PORT or .*, got 'bank-2'"),
        (["127.0.0.1:0", "127.0.0.1:7071"], "a port from 1 to 65535, got '127.0.0.1:0'"),
        (["127.0.0.1:7071", "127.0.0.1:7071"], "an address of its own for each of the lanes .*, got 127.0.0.1:7071"),
        (["127.0.0.1:7070", "127.0.0.1:7071"], "an address of its own for each of the lanes .*, got 127.0.0.1:7070"),
    ):
        job["parties"][ACTIVE]["lanes"] = lanes
        with pytest.raises(ConfigError, match=wrong):
            check_job(validated(Job, job, ""))
    job["parties"][ACTIVE] |= {"lanes": [], "address": "127.0.0.1:65534"}
    with pytest.raises(ConfigError, match="below 65536"):
        on_lane(validated(Job, job, ""), links, 2)


def test_labels_arrive_as_they_were_shared() -> None:
    task = Task("multiclass", ("a", "b"))
    loss = TrainingLoss(task, transition=torch.eye(2).double(), class_weights=torch.ones(2))
    shared = SharedLabels.of(TrainingLabels(torch.tensor([0, 1, -1]), loss, torch.ones(3)))
    labels = SharedLabels(shared.tensors, json.loads(json.dumps(shared.plain))).labels()
    values, of_batch = labels.of(torch.tensor([1]))
    assert values.tolist() == [1]
    assert labels.loss.task == task
    assert None not in (of_batch.row_weights, of_batch.transition, of_batch.class_weights)
