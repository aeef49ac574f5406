"""What was released stays counted: roll-backs, hang-ups, epochs beyond the job's and starts that came to no end."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from cutlayer.accounting import MARKER, Ledger
from cutlayer.alignment import common_rows
from cutlayer.channel import Kind, Message, Port
from cutlayer.config import Job
from cutlayer.errors import BudgetExceeded, CheckpointError, ProtocolError
from cutlayer.models import row_independence
from cutlayer.parties.faults import FaultPoint
from cutlayer.parties.session.observer import Observer
from cutlayer.parties.session.plan import plan_of
from cutlayer.parties.stopping import EarlyStopping
from cutlayer.training.folder import RunFolder
from cutlayer.training.run_ledger import chain_of, ledger_after, ledger_of
from cutlayer.training.together import TrainedRun
from tests.parties import releases
from tests.parties.interruptions import Crash, Dying, Fails, Killed, of_kind
from tests.parties.mutants import tamper, with_fields, with_stamp
from tests.parties.processes import forked
from tests.parties.releases import (
    BOTTOM,
    EMBEDDING,
    EPOCHS,
    STEPS,
    TELCO,
    Curious,
    curious,
    entries,
    evidence_of,
    logs,
    most_released,
    noisy_job,
    start,
    whole_run,
)
from tests.parties.runs import ACTIVE, record

__all__ = ["curious"]

JOB = noisy_job()
EMBEDDINGS = (Kind.EMBEDDING, Kind.EVALUATION)


@pytest.fixture(scope="module", autouse=True)
def _trusted_bottoms() -> Iterator[None]:
    """Whether bottom models mix rows takes as long as the rest of a start, and is tried in test_row_independence."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(row_independence, "check_row_independence", lambda *_, **__: None)
        yield


def dies(base: Path, steps: int, name: str = "run", job: Job = JOB, **options: Any) -> None:
    """A run, or its continuation, that ends after some steps."""
    with pytest.raises(Crash):
        start(job, base, name, Dying(steps), **options)


def fails(base: Path, name: str, job: Job = JOB) -> None:
    """A start as by `cutlayer run` that fails in its first epoch."""
    with pytest.raises(Crash):
        whole_run(job, base, name, Dying(2))


def embeddings(messages: list[Message]) -> list[torch.Tensor]:
    return [message.tensors["embedding"] for message in messages if message.kind in EMBEDDINGS]


def test_a_peer_that_lost_its_progress_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = record(monkeypatch)
    dies(tmp_path, 2 * STEPS + 1)
    shutil.rmtree(tmp_path / "run" / "checkpoint" / ACTIVE)
    sent = len(embeddings(messages))
    wanted = rf"{ACTIVE} to go on after the checkpoint of epoch 1.*got epoch 0, step 0.*--forget-peer-progr"
    with pytest.raises(CheckpointError, match=wanted):
        start(JOB, tmp_path, resume=True)
    assert len(embeddings(messages)) == sent


def test_forgetting_a_peers_progress_counts_what_is_released_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, curious: type[Curious]
) -> None:
    messages = record(monkeypatch)
    dies(tmp_path, 3 * STEPS - 1)
    shutil.rmtree(tmp_path / "run" / "checkpoint" / ACTIVE)
    curious.life = 1
    trained = start(JOB, tmp_path, resume=True, forget_peer_progress=True)
    metrics = evidence_of(trained).metrics
    assert EPOCHS < most_released(JOB, messages) <= metrics["releases"] <= metrics["releases_allowed"]
    (total,), (planned,) = ledger_after(JOB, trained.active).totals, ledger_of(JOB).totals
    assert total.releases == metrics["releases_allowed"]
    assert total.epsilon > planned.epsilon  # type: ignore[operator]


def test_the_same_messages_again_are_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys are there, so that the run repeats every number from its start, and the ledger stays the plan's."""
    messages = record(monkeypatch)
    dies(tmp_path, 2 * STEPS + 1)
    (tmp_path / "run" / "checkpoint" / ACTIVE / "committed.json").unlink()
    trained = start(JOB, tmp_path, resume=True, forget_peer_progress=True)
    assert most_released(JOB, messages) == evidence_of(trained).metrics["releases"] == EPOCHS
    assert ledger_after(JOB, trained.active).totals == ledger_of(JOB).totals


@pytest.mark.parametrize("epsilon", [None, 2.4])
def test_a_peer_that_crashes_again_and_again_gets_no_more_than_is_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, curious: type[Curious], epsilon: float | None
) -> None:
    """Other gradients in each life make other embeddings, whose noise is fresh: the mean over lives tells the row."""
    job = noisy_job(EMBEDDING if epsilon is None else {**EMBEDDING, "budget": {"epsilon": epsilon}})
    allowed = chain_of(job, TELCO).account(plan_of(job, TELCO)).allowed
    messages = record(monkeypatch)
    dies(tmp_path, STEPS + 2, job=job)
    for curious.life in range(1, 6):
        with pytest.raises((Crash, BudgetExceeded)):
            start(job, tmp_path, progress=Dying(3), resume=True)
    with pytest.raises(BudgetExceeded, match=f"release {allowed + 1} of a row was asked for.*nothing was sent"):
        start(job, tmp_path, resume=True)
    assert most_released(job, messages) == allowed >= EPOCHS + (epsilon is not None)


def test_steps_of_private_training_are_counted_across_crashes(tmp_path: Path, curious: type[Curious]) -> None:
    """Without noise in the embeddings the steps are all that is counted."""
    job = noisy_job(BOTTOM)
    dies(tmp_path, STEPS + 2, job=job)
    for curious.life in range(1, 9):
        with pytest.raises((Crash, BudgetExceeded)) as end:
            start(job, tmp_path, progress=Dying(3), resume=True)
        if end.type is BudgetExceeded:  # sooner or later: a party may die before the other has counted its step
            break
    (log,) = logs(tmp_path)
    assert {entry["kind"] for entry in entries(log)} == {"update"}
    again = [entry["number"] for entry in entries(log) if entry["epoch"] == 1]
    assert max(again) == EPOCHS - 1, "one was taken in epoch 0, and three are planned"
    with pytest.raises(BudgetExceeded, match="private step 4 of a row"):
        start(job, tmp_path, resume=True)


def test_the_account_of_both_covers_embeddings_and_steps(tmp_path: Path) -> None:
    job = noisy_job(BOTTOM | EMBEDDING)
    trained = start(job, tmp_path)
    assert evidence_of(trained).metrics["releases"] == EPOCHS
    metrics = evidence_of(trained, "dp_bottom").metrics
    assert metrics["row_steps"] == metrics["row_steps_planned"] == metrics["row_steps_allowed"] == EPOCHS
    assert ledger_after(job, trained.active).totals == ledger_of(job).totals


def test_a_batch_before_the_first_is_refused_though_its_rows_are_the_last_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python would count it from the end, and its noise would be another's."""
    before_first = with_stamp(step=-1)
    tamper(monkeypatch, Kind.REQUEST, lambda message: before_first(with_fields(batch=-1)(message)[0]))
    with pytest.raises(ProtocolError, match=f"{ACTIVE} asked for batch -1 of validation, which holds other rows here"):
        start(JOB, tmp_path)


@pytest.mark.parametrize("stamp", [{"step": 7}, {"step": -1}, {"epoch": 5}, {"epoch": -1}])
def test_a_request_off_the_own_schedule_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamp: dict[str, int]
) -> None:
    tamper(monkeypatch, Kind.REQUEST, with_stamp(**stamp))
    with pytest.raises(ProtocolError, match=f"a request for validation rows of epoch 0, step 0 from {ACTIVE}"):
        start(JOB, tmp_path)
    (log,) = logs(tmp_path)
    assert {entry["reason"] for entry in entries(log)} == {"train"}


def test_hanging_up_after_an_answer_brings_no_fresh_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = record(monkeypatch)
    for life in range(2):
        with pytest.raises(Crash):
            start(JOB, tmp_path, resume=life > 0, faults=Fails(FaultPoint.RECEIVED, when=of_kind(Kind.EVALUATION)))
    answers = [message.tensors["embedding"] for message in messages if message.kind == Kind.EVALUATION]
    first, second = answers
    assert torch.equal(first, second)
    assert evidence_of(start(JOB, tmp_path, resume=True)).metrics["releases"] == EPOCHS


@pytest.mark.parametrize("privacy", [{}, BOTTOM | EMBEDDING | {"budget": {"epsilon": 60.0}}])
def test_epochs_beyond_the_jobs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, privacy: dict[str, Any]
) -> None:
    real = EarlyStopping.update

    def never_stops(self: EarlyStopping, *args: Any) -> bool:
        best = real(self, *args)
        self.stop = False
        return best

    monkeypatch.setattr(EarlyStopping, "update", never_stops)
    messages = record(monkeypatch)
    with pytest.raises(ProtocolError, match=f"{ACTIVE} to stop after {EPOCHS} epochs.*got a start of epoch {EPOCHS}"):
        start(noisy_job(privacy), tmp_path)
    assert {message.epoch for message in messages if message.kind == Kind.EMBEDDING} == set(range(EPOCHS))
    with pytest.raises(ProtocolError, match=f"{ACTIVE} to stop after"):
        start(noisy_job(privacy), tmp_path, resume=True)


def test_starts_that_come_to_no_end_are_paid_from_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is malicious: each start fails in its first epoch, and the next one is made in another folder."""
    budget = ledger_of(JOB).totals[0].epsilon
    job = noisy_job({**EMBEDDING, "budget": {"epsilon": budget}})
    messages = record(monkeypatch)
    fails(tmp_path, "0", job)
    for number in (1, 2):
        with pytest.raises(BudgetExceeded, match=rf"got .* 1 of them by runs of this job .*resume {tmp_path / '0'}"):
            whole_run(job, tmp_path, str(number))
        assert not (tmp_path / str(number)).exists(), "nothing was released in it"
    assert most_released(job, messages) == 1
    whole_run(job, tmp_path, "0", resume=True)
    assert most_released(job, messages) == EPOCHS


def test_without_a_budget_the_ledger_states_starts_that_came_to_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = record(monkeypatch)
    for number in range(2):
        fails(tmp_path, str(number))
    folder = whole_run(JOB, tmp_path, "last")
    assert most_released(JOB, messages) == EPOCHS + 2
    (total,) = Ledger.from_json(folder.read_json("ledger.json")).totals
    assert total.releases == EPOCHS + 2
    (entry,) = Ledger.from_json(folder.read_json("ledger.json")).entries
    assert "any row 2 times by runs that did not end or by repetitions" in entry.statement


def test_what_other_noise_released_is_carried_at_its_own_cost(tmp_path: Path) -> None:
    """A release with half the noise counts as four."""
    loud = noisy_job({"dp_embedding": {"clip": 1.0, "noise_multiplier": 2.0}})
    fails(tmp_path, "loud", loud)
    assert evidence_of(start(JOB, tmp_path)).metrics["releases_carried"] == 4


class Ended(NamedTuple):
    """Two runs of one job that have ended, one after the other; not to be changed.

    Attributes:
        base: Folder of both and of their secrets.
        trained: What they returned.
        counted: As often as the first one sent an embedding: the number of them by then, and of entries of its log.
    """

    base: Path
    trained: list[TrainedRun]
    counted: list[tuple[int, int]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    base, pairs, real = tmp_path_factory.mktemp("ended"), list[tuple[int, int]](), Port.send

    def send(port: Port, kind: Kind, **content: Any) -> Message:
        if kind in EMBEDDINGS:
            pairs.append((len(pairs) + 1, len(entries(logs(base)[0]))))
        return real(port, kind, **content)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Port, "send", send)
        first = start(JOB, base, "first")
    return Ended(base, [first, start(JOB, base, "second")], pairs)


def test_a_run_that_ended_is_not_carried(ended: Ended) -> None:
    for trained in ended.trained:
        metrics = evidence_of(trained).metrics
        assert metrics["releases"] == EPOCHS
        assert "releases_carried" not in metrics


def test_a_start_on_rows_of_another_job_is_not_carried(tmp_path: Path) -> None:
    fails(tmp_path, "other", noisy_job(seed=4))
    assert evidence_of(start(JOB, tmp_path)).metrics["releases"] == EPOCHS


def test_an_error_in_the_first_epoch_keeps_noise_and_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = record(monkeypatch)
    with pytest.raises(Crash) as failed:
        whole_run(JOB, tmp_path, "run", Dying(STEPS - 1))
    assert failed.value.__notes__ == [
        f"rows were released before any epoch was saved; {tmp_path / 'run'} holds their noise and privacy account: "
        "continue it with --resume, a new run would pay for both"
    ]
    before = embeddings(messages)
    assert len(before) == STEPS
    folder = whole_run(JOB, tmp_path, "run", resume=True)
    again = embeddings(messages)[STEPS : 2 * STEPS]
    assert all(torch.equal(first, second) for first, second in zip(before, again, strict=True))
    assert Ledger.from_json(folder.read_json("ledger.json")).totals == ledger_of(JOB).totals


def test_nothing_is_left_of_a_start_that_released_nothing_countable(tmp_path: Path) -> None:
    fails(tmp_path, "run", noisy_job({"nopeek": {"alpha": 0.1}}))
    assert not (tmp_path / "run").exists()
    assert not logs(tmp_path)


def test_every_release_is_on_disk_before_it_is_sent(ended: Ended) -> None:
    """Looked at from where messages leave the party: its log has as many entries as there are messages by then."""
    assert len(ended.counted) == EPOCHS * STEPS + EPOCHS + 1
    assert all(sent == counted for sent, counted in ended.counted)


def test_an_older_copy_of_the_folder_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, curious: type[Curious]
) -> None:
    messages = record(monkeypatch)
    dies(tmp_path, 1)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    for curious.life in range(1, EPOCHS + 1):
        shutil.rmtree(tmp_path / "run")
        shutil.copytree(tmp_path / "copy", tmp_path / "run")
        with pytest.raises((Crash, BudgetExceeded)):
            start(JOB, tmp_path, progress=Dying(3), resume=True)
    assert most_released(JOB, messages) == EPOCHS


def test_a_log_that_is_lost_rolled_back_or_damaged_is_refused(tmp_path: Path) -> None:
    dies(tmp_path, 1)
    (log,) = logs(tmp_path)
    early = log.read_bytes()
    dies(tmp_path, STEPS, resume=True)
    whole = log.read_bytes()
    log.write_bytes(early)
    with pytest.raises(CheckpointError, match=r"lines or more in .* as the checkpoint says.*restore the latest one"):
        start(JOB, tmp_path, resume=True)
    log.unlink()
    with pytest.raises(CheckpointError, match=f"expected the release log {log}.*move both together"):
        start(JOB, tmp_path, resume=True)
    middle = len(whole) // 2
    log.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    with pytest.raises(CheckpointError, match=r"is damaged at byte .*restore it from a backup"):
        start(JOB, tmp_path, resume=True)
    with pytest.raises(CheckpointError, match="is damaged at byte"):
        start(JOB, tmp_path, "other")
    log.write_bytes(whole)
    assert evidence_of(start(JOB, tmp_path, resume=True)).metrics["releases"] == EPOCHS


@pytest.fixture(scope="module")
def died_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run that died in its second epoch, and a copy of it."""
    base = tmp_path_factory.mktemp("died")
    dies(base, STEPS + 1)
    return base, shutil.copytree(base, tmp_path_factory.mktemp("copy") / "died")


@pytest.fixture
def died(died_once: tuple[Path, Path]) -> Path:
    """The same for each test, in the same folder, since a run knows where its log lies."""
    base, copy = died_once
    shutil.rmtree(base)
    return shutil.copytree(copy, base)


@pytest.mark.parametrize("cut", [1, 2, 60, "garbage"])
def test_a_line_that_was_torn_when_the_machine_went_down_is_no_obstacle(died: Path, cut: int | str) -> None:
    (log,) = logs(died)
    whole = log.read_bytes()
    log.write_bytes(whole + bytes(40) if isinstance(cut, str) else whole[:-cut])
    trained = start(JOB, died, resume=True)
    assert evidence_of(trained).metrics["releases"] == EPOCHS
    lines = log.read_bytes().splitlines()
    assert len(lines) == len(set(lines)) == 2 + EPOCHS * STEPS + EPOCHS + 1


def test_other_rows_are_named_as_such(died: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = {name: table.slice(0, 200) for name, table in releases.GIVEN.items()}
    monkeypatch.setattr(releases, "GIVEN", fewer)
    with pytest.raises(CheckpointError, match="other common rows"):
        start(JOB, died, resume=True)


def test_log_and_folder_are_the_owners_alone(ended: Ended) -> None:
    for log in logs(ended.base):
        assert log.stat().st_mode & 0o777 == 0o600
        assert log.parent.stat().st_mode & 0o777 == log.parent.parent.stat().st_mode & 0o777 == 0o700
    assert (ended.base / "first" / "checkpoint" / TELCO / MARKER).exists()
    assert not logs(ended.base, ACTIVE), "nothing of the active party is counted"


def test_digests_are_keyed_by_the_run(ended: Ended) -> None:
    """Whoever guesses what was released cannot check it against the log."""
    first, second = ({entry.get("digest") for entry in entries(log)} - {None} for log in logs(ended.base))
    assert len(first) == len(second) == EPOCHS * STEPS + EPOCHS + 1
    assert not first & second


def run_and_die(base: Path, steps: int, resume: bool) -> None:
    """What the child does."""
    start(JOB, base, progress=Killed(steps), resume=resume)


def test_a_killed_run_ends_with_the_ledger_of_its_plan(tmp_path: Path) -> None:
    for turn, steps in enumerate((6, 3)):
        assert forked(run_and_die, tmp_path, steps, turn > 0).wait() == -signal.SIGKILL
    trained = start(JOB, tmp_path, resume=True)
    assert evidence_of(trained).metrics["releases"] == EPOCHS
    assert ledger_after(JOB, trained.active).totals == ledger_of(JOB).totals


def test_two_processes_on_copies_of_a_folder_do_not_share_a_log(tmp_path: Path) -> None:
    """Each would count its own releases alone."""

    class Appending(Observer):
        def stepped(self, epoch: int, rows: int, loss: float) -> None:
            (log,) = logs(tmp_path)
            log.write_bytes(log.read_bytes() + log.read_bytes().splitlines(keepends=True)[-1])

    with pytest.raises(CheckpointError, match="another process runs from a copy"):
        start(JOB, tmp_path, progress=Appending())


def test_compared_runs_leave_no_trace_beside_the_secret(tmp_path: Path) -> None:
    job = noisy_job(EMBEDDING | {"nopeek": {"alpha": 0.1}}, epochs=1).model_copy(update={"compare": ("each",)})
    folder = whole_run(job, tmp_path)
    (log,) = logs(tmp_path)
    assert log.exists()
    compared = folder.path / "compare"
    assert list(compared.glob("*/checkpoint/telco/releases/*/*.jsonl"))
    assert not list(compared.glob(f"*/checkpoint/*/{MARKER}"))
    assert RunFolder(folder.path).has_release


def test_a_peer_that_orders_the_rows_anew_hides_no_unfinished_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which rows are common, and in which order, is the active party's word."""
    fails(tmp_path, "first")
    real = common_rows.intersect

    def backwards(digests: Any) -> Any:
        return {name: positions[::-1].copy() for name, positions in real(digests).items()}

    monkeypatch.setattr(common_rows, "intersect", backwards)
    metrics = evidence_of(start(JOB, tmp_path, "second")).metrics
    assert metrics["releases_carried"] == 1
    assert metrics["releases"] == EPOCHS + 1


def test_a_polite_end_before_the_schedule_allows_one_does_not_close_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every start could be ended after one epoch, and no later run would count it."""
    with monkeypatch.context() as patched:
        tamper(patched, Kind.EPOCH_END, with_fields(stop=True))
        with pytest.raises(ProtocolError, match=f"{ACTIVE} to go on to epoch 1.*got an end after epoch 0"):
            start(JOB, tmp_path, "first")
    assert evidence_of(start(JOB, tmp_path, "second")).metrics["releases_carried"] >= 1


@pytest.mark.parametrize(("patience", "ends"), [(1, True), (2, False)])
def test_an_early_stop_needs_the_patience_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: int, ends: bool
) -> None:
    job = noisy_job(early_stop={"patience": patience})
    tamper(monkeypatch, Kind.EPOCH_END, with_fields(stop=True))
    with pytest.raises(ProtocolError) as refused:
        start(job, tmp_path)
    assert ("to go on to epoch 1" not in str(refused.value)) is ends
