"""A passive party that is lost in training: the run stops, or goes on as if the party were dropped for good."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.grpc_client import ClientLink
from cutlayer.channel.grpc_link import Links
from cutlayer.cli.report import write_report
from cutlayer.config import Job, validated
from cutlayer.errors import CheckpointError, ConfigError, PeerLost
from cutlayer.jobs.options import Progress
from cutlayer.parties.faults import FaultPoint, Faults
from cutlayer.parties.session.presence import Presence
from cutlayer.training.departures import departure_result
from cutlayer.training.folder import RunFolder
from tests.parties.interruptions import Crash, Dying, Fails, assert_equal, history, interrupted
from tests.parties.processes import fork, lay_out
from tests.parties.runs import ACTIVE, PASSIVES, UNAUDITED, Watched, raw_job, record, run, tables
from tests.parties.threads import run_apart

TELCO, SHOP = PASSIVES[:2]
GIVEN = tables(passives=2)
STEPS = 2
"""Steps of an epoch."""


def job(telco: str = "continue", **more: Any) -> Job:
    return validated(Job, raw(telco, **more), "")


def raw(telco: str = "continue", **more: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"passives": 2, "audit": UNAUDITED, "epochs": 3, "batch_size": 96, **more}
    whole = raw_job(**options)
    whole["parties"][TELCO]["on_absent"] = telco
    return whole


def losing(at: tuple[int, int]) -> Faults:
    """Have a party die right before the embedding of a step."""
    killed = PeerLost("lost telco: the process was killed")
    return Fails(
        FaultPoint.SENDING, TELCO, when=lambda m: (m.kind, m.epoch, m.step) == (Kind.EMBEDDING, *at), failure=killed
    )


def lost_at(folder: Path, at: tuple[int, int], wanted: Job) -> Watched:
    return run(wanted, GIVEN, folder, faults=losing(at))


@pytest.mark.parametrize("at", [(0, 0), (2, 1)])
def test_training_goes_on_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: tuple[int, int]) -> None:
    messages = record(monkeypatch)
    ended = lost_at(tmp_path, at, job(privacy={"marvell": {"sum_kl": 2.0}}))
    left = ended.active.lost[TELCO]
    assert (left.epoch, left.step) == at
    assert ended.active.epochs == 3
    assert ended.passives.keys() == {SHOP}
    assert [line["left"] for line in RunFolder(tmp_path).history()] == [[TELCO] if n >= at[0] else [] for n in range(3)]
    later = [m for m in messages if m.kind is Kind.GRADIENT and m.receiver == TELCO and (m.epoch, m.step) >= at]
    assert not later
    result = departure_result(ended.active, 0)
    assert [row.contributed for row in result.rows] == [(ACTIVE, SHOP), (ACTIVE,)]
    assert (result.left[0].party, result.left[0].epoch) == (TELCO, at[0] + 1)
    assert ended.active.selected_epoch >= at[0]
    assert {item.party for item in ended.active.evidence} == {ACTIVE}


def test_it_equals_a_permanent_dropout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost before the first step, it leaves the weights of a run in which only zeros came from it."""
    ended = lost_at(tmp_path / "lost", (0, 0), job(keep="last"))
    send = Port.send

    def zeros(self: Port, kind: Kind, **content: Any) -> Message:
        if self.me == TELCO and kind in (Kind.EMBEDDING, Kind.EVALUATION):
            content["tensors"] = {"embedding": torch.zeros_like(content["tensors"]["embedding"])}
        return send(self, kind, **content)

    monkeypatch.setattr(Port, "send", zeros)
    other = run(job(keep="last"), GIVEN, tmp_path / "zeros")
    assert ended.active.step_losses == other.active.step_losses
    assert torch.equal(ended.active.logits, other.active.logits)


@pytest.mark.parametrize("wanted", [job("stop"), job("continue", active_features=False, passives=1)])
def test_otherwise_the_run_stops(tmp_path: Path, wanted: Job) -> None:
    """By default, and where nobody with columns would be left; it can be resumed."""
    given = {name: GIVEN[name] for name in wanted.parties}
    with pytest.raises(PeerLost, match="lost telco"):
        run(wanted, given, tmp_path, faults=losing((1, 1)))
    assert not run(wanted, given, tmp_path, resume=True).active.lost


def test_a_party_that_comes_back_too_late_is_refused(tmp_path: Path) -> None:
    """The others are two epochs ahead of it: a resume of all says so."""
    lost_at(tmp_path, (0, 1), job(epochs=4))
    with pytest.raises(CheckpointError, match="at telco, got none"):
        run(job(epochs=4), GIVEN, tmp_path, resume=True)


def dies_after_a_loss(wanted: Job, folder: Path, steps: int) -> None:
    """The party is lost in the second epoch; the others die a few steps later."""
    interrupted(wanted, GIVEN, folder, Dying(steps), losing((1, 0)))
    assert [line["left"] for line in history(folder)] == [[], [TELCO]][: steps // STEPS]


def test_a_run_that_dies_in_the_same_epoch_resumes_with_everybody(tmp_path: Path) -> None:
    """Nothing is committed without the party: all repeat the epoch with it, as if nothing had happened."""
    audit = {"rows": 96, "attacks": ["norm"]}
    wanted = job(privacy={"label_dp": {"eps": 2.0}, "marvell": {"sum_kl": 2.0}}, audit=audit)
    quiet = run(wanted, GIVEN, tmp_path / "quiet")
    dies_after_a_loss(wanted, tmp_path / "lost", steps=STEPS + 1)
    ended = run(wanted, GIVEN, tmp_path / "lost", resume=True)
    assert not ended.active.lost
    assert_equal(tmp_path / "lost", ended, tmp_path / "quiet", quiet, wanted)


def test_an_epoch_later_the_best_weights_of_before_are_gone(tmp_path: Path) -> None:
    """The epoch without the party was the best; it is said before any training, and no matter to the last weights."""
    wanted = job()
    dies_after_a_loss(wanted, tmp_path / "best", steps=2 * STEPS + 1)
    with pytest.raises(CheckpointError, match="end of epoch 1 with every party, got one without telco"):
        run(wanted, GIVEN, tmp_path / "best", resume=True)
    quiet = run(job(keep="last"), GIVEN, tmp_path / "quiet")
    dies_after_a_loss(job(keep="last"), tmp_path / "last", steps=2 * STEPS + 1)
    ended = run(job(keep="last"), GIVEN, tmp_path / "last", resume=True)
    assert ended.active.step_losses == quiet.active.step_losses[STEPS:]  # of the last two epochs
    assert torch.equal(ended.active.logits, quiet.active.logits)


def test_a_party_may_leave_in_training_unless_it_is_the_last_that_must_stay() -> None:
    def presence(*, needs_one: bool, on_absent: str = "continue") -> tuple[Presence, list[str]]:
        lost: list[str] = []
        job: Any = SimpleNamespace(parties={name: SimpleNamespace(on_absent=on_absent) for name in ("telco", "shop")})
        ports: Any = {name: SimpleNamespace(peer=name) for name in job.parties}
        made = Presence(job, ports, lost.append)
        made.must_keep_one = needs_one
        return made, lost

    for needs_one in (True, False):
        made, lost = presence(needs_one=needs_one)
        with pytest.raises(PeerLost):
            made.go_on_without("telco", PeerLost("before the training"))
        made.position = (2, 3)
        for _ in range(2):
            made.go_on_without("telco", PeerLost("gone"))
        assert (made.lost, [*made.ports], lost) == ({"telco": (2, 3, "gone")}, ["shop"], ["telco"])
        if needs_one:
            with pytest.raises(PeerLost):
                made.go_on_without("shop", PeerLost("gone too"))
        else:
            made.go_on_without("shop", PeerLost("gone too"))
        assert lost == ["telco", "shop"][: 2 - needs_one]
    made, _ = presence(needs_one=False, on_absent="stop")
    made.position = (0, 0)
    with pytest.raises(PeerLost):
        made.go_on_without("telco", PeerLost("gone"))


def test_the_key_is_checked() -> None:
    whole = raw()
    whole["parties"][ACTIVE]["on_absent"] = "continue"
    with pytest.raises(ConfigError, match="no on_absent at bank, the active party"):
        validated(Job, whole, "")
    with pytest.raises(ConfigError, match="on_absent"):
        job("perhaps")
    assert "on_absent" not in job("stop").shared()
    assert job().digest() != job("stop").digest()


def test_kill_9_of_a_process(tmp_path: Path) -> None:
    """Two other organisations finish, and the report of the active one says who was lost and when."""
    sites = lay_out(tmp_path, raw(epochs=5), GIVEN)
    telco = fork(sites.pop(TELCO))

    class Killing(Progress):
        steps = 0

        def stepped(self, epoch: int, rows: int, loss: float) -> None:
            self.steps += 1
            if self.steps == 2 * STEPS + 1:
                telco.kill()
                assert telco.wait() == -signal.SIGKILL

    run_apart(sites, progress={ACTIVE: Killing()})
    run_folder = RunFolder(sites[ACTIVE].run)
    (left,) = run_folder.summary.departures.left
    assert left.party == TELCO
    assert 1 < left.epoch <= 4
    write_report(run_folder.path)
    assert f"{TELCO} was lost in epoch {left.epoch}" in (sites[ACTIVE].run / "report.html").read_text()


def test_all_wait_for_a_party_that_died_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are started once, and end with the numbers of a quiet run."""
    whole = raw("wait", epochs=4, checkpoint_every=2)
    run(validated(Job, whole, ""), GIVEN, tmp_path / "quiet")
    gradients = itertools.count()

    def dying(links: ClientLink, port: Port, timeout: float | None = None) -> Message:
        message = Links.receive(links, port, timeout)
        if (message.kind, port.me) == (Kind.GRADIENT, TELCO) and next(gradients) == 2 * STEPS:
            raise Crash
        return message

    monkeypatch.setattr(ClientLink, "receive", dying)
    sites = lay_out(tmp_path / "sites", whole, GIVEN)
    run_apart(sites)
    assert next(gradients) > 4 * STEPS
    assert "until all have resumed" in capsys.readouterr().err
    losses, quiet = ([line["loss"] for line in history(folder)] for folder in (sites[ACTIVE].run, tmp_path / "quiet"))
    assert losses == quiet
    assert len(losses) == 4
