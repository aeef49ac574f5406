"""Numbers that are read later: in order, once for many steps, and always before anything is committed."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cutlayer.channel import Kind, Message
from cutlayer.config import Job, validated
from cutlayer.errors import Diverged, ProtocolError
from cutlayer.parties.active_step import ActiveStep, Batch
from cutlayer.parties.compute import readings as readings_module
from cutlayer.parties.compute.readings import READ_STEPS, Readings
from cutlayer.parties.guards.numbers import check_received
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.protections.contract.views import ActiveView
from cutlayer.training.folder import RunFolder
from tests.parties.mutants import tamper
from tests.parties.runs import ACTIVE, PASSIVES, UNAUDITED, raw_job, run, tables, unaudited_job
from tests.parties.test_numbers import with_entry
from tests.pretended import pretending

LIMIT = 10.0


def refusal(norm: float) -> Diverged:
    return Diverged(f"norm {norm:g}")


@pytest.fixture
def there() -> Iterator[torch.device]:
    """A device whose numbers are read later."""
    with pretending() as device:
        yield device


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets."""
    now = [0.0]
    monkeypatch.setattr(readings_module.time, "monotonic", lambda: now[0])
    return now


def test_numbers_come_in_their_order_whatever_their_type(there: torch.device) -> None:
    later, seen = Readings(READ_STEPS), list[float]()
    for number in (torch.tensor(1.5), torch.tensor([2.0, 7.0, 3.0]), None, torch.tensor(0.1, dtype=torch.float64)):
        later.read_later(None if number is None else number.to(there), seen.append)
    later.read_later(torch.tensor([[4.0], [5.0]]).to(there).requires_grad_().sum(), seen.append)
    assert not seen
    later.read()
    assert seen == [1.5, 7.0, 0.0, 0.1, 9.0]
    later.read()
    assert len(seen) == 5


def test_without_steps_every_number_is_read_at_once() -> None:
    now, seen = Readings(), list[float]()
    now.read_later(torch.tensor(1.5), seen.append)
    assert seen == [1.5]
    with pytest.raises(Diverged, match="norm 11"):
        now.check_rows(torch.full((2, 1), 11.0), LIMIT, refusal)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 10.1, 1e30])
def test_the_first_bad_number_is_the_one_that_is_reported(bad: float, there: torch.device) -> None:
    later, seen = Readings(READ_STEPS), list[float]()
    later.check_rows(torch.full((3, 1), 9.9).to(there), LIMIT, refusal)
    later.read_later(torch.tensor(1.0).to(there), seen.append)
    later.check_rows(torch.tensor([[1.0, 2.0], [0.0, bad]]).to(there), LIMIT, refusal)
    later.read_later(torch.tensor(2.0).to(there), seen.append)
    with pytest.raises(Diverged, match=r"norm (nan|inf|10\.1)"):
        later.read()
    assert seen == [1.0]
    later.read()  # what came after the bad number was computed from it


def test_steps_and_seconds_decide_when_to_read(clock: list[float], there: torch.device) -> None:
    later, seen = Readings(3), list[float]()
    for step in range(7):
        later.read_later(torch.tensor(float(step)).to(there), seen.append)
        later.end_step()
        assert len(seen) == (step + 1) // 3 * 3
    clock[0] += readings_module.READ_SECONDS
    later.end_step()
    assert len(seen) == 7


def test_numbers_on_the_cpu_are_read_at_once_unless_others_wait(there: torch.device) -> None:
    later, seen = Readings(READ_STEPS), list[float]()
    for number in (torch.tensor(1.0), None, torch.tensor(2.0)):
        later.read_later(number, seen.append)
    with pytest.raises(Diverged, match="norm 11"):
        later.check_rows(torch.full((2, 1), 11.0), LIMIT, refusal)
    assert seen == [1.0, 0.0, 2.0]
    later.read_later(torch.tensor(3.0).to(there), seen.append)
    later.read_later(torch.tensor(4.0), seen.append)
    later.check_rows(torch.full((2, 1), 11.0), LIMIT, refusal)
    assert len(seen) == 3
    with pytest.raises(Diverged, match="norm 11"):
        later.read()
    assert seen[3:] == [3.0, 4.0]


def test_what_waits_holds_no_message(there: torch.device) -> None:
    later, rows = Readings(READ_STEPS), torch.full((4, 3), math.nan).to(there)
    message = Message(Kind.GRADIENT, ACTIVE, PASSIVES[0], "run", 0, 1, 0, tensors={"gradient": rows})
    check_received(message, LIMIT, "limits.gradient_norm", later)
    held = weakref.ref(rows)
    del message, rows
    assert held() is None
    with pytest.raises(ProtocolError, match=rf"gradient of {ACTIVE} for epoch 0, step 1"):
        later.read()


@pytest.mark.parametrize("nth", [0, 2])
def test_no_checkpoint_within_an_epoch_is_committed_after_a_bad_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    tamper(monkeypatch, Kind.GRADIENT, with_entry(math.nan), nth=nth)
    job = unaudited_job(epochs=1, checkpoint_every=1)
    with pytest.raises(ProtocolError, match=rf"finite numbers in the gradient of bank for epoch 0, step {nth}, got"):
        run(job, tables(), tmp_path)
    commits = RunFolder(tmp_path).path / "checkpoint" / "bank" / "committed.json"
    assert commits.exists() == (nth > 0)
    if nth:
        assert f'"step": {nth}' in commits.read_text()


@pytest.mark.parametrize(
    ("site", "privacy"),
    [
        ("embedding", {"dp_embedding": {"clip": 1.0, "noise_multiplier": 0.2}}),
        ("loss", {"dp_bottom": {"clip": 1.0, "noise_multiplier": 1.0}}),
    ],
)
def test_steps_that_a_bad_number_makes_vain_do_not_use_up_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, privacy: dict[str, dict[str, float]], site: str
) -> None:
    """The run that resumes releases what the schedule allows, and ends as one that nothing happened to."""
    raw = raw_job(audit=UNAUDITED, keep="best", epochs=2)
    raw["parties"][PASSIVES[0]]["privacy"] = privacy
    job = validated(Job, raw, "")
    whole = run(job, tables(), tmp_path / "whole")
    with monkeypatch.context() as patched:
        _break(patched, site, at=(1, 0))
        with pytest.raises(Diverged, match="epoch 1, step 0"):
            run(job, tables(), tmp_path / "broken")
    resumed = run(job, tables(), tmp_path / "broken", resume=True)
    assert resumed.active.logits.equal(whole.active.logits)
    assert resumed.active.evidence == whole.active.evidence


@pytest.mark.parametrize(
    ("privacy", "value"), [({"ppdl": {"theta": 0.2}}, math.nan), ({"iso_noise": {"ratio": 1.0}}, 1e30)]
)
def test_no_protection_hides_a_bad_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, privacy: dict[str, dict[str, float]], value: float
) -> None:
    job = validated(Job, raw_job(audit=UNAUDITED, epochs=2, privacy=privacy), "")
    with monkeypatch.context() as patched:
        _break(patched, "gradient", at=(1, 1), value=value)
        with pytest.raises(Diverged, match=r"cut gradient for \w+ in epoch 1, step 1 "):
            run(job, tables(), tmp_path)


def _break(patched: pytest.MonkeyPatch, site: str, at: tuple[int, int], value: float = math.nan) -> None:
    """Make one number of a step bad: of an embedding of the first passive party, of the loss, or of a cut gradient."""
    check_own, loss, gradients = PassiveSetup.check_own, ActiveStep._loss, ActiveStep._with_task_gradients

    def broken_embedding(
        self: PassiveSetup, embedding: Tensor, epoch: int, step: int, readings: Readings | None = None
    ) -> None:
        if (epoch, step) == at and self._local.name == PASSIVES[0]:
            embedding.data[0] = value
        check_own(self, embedding, epoch, step, readings)

    def broken_loss(self: ActiveStep, batch: Batch) -> Tensor:
        found = loss(self, batch)
        return found * value if (batch.view.epoch, batch.step) == at else found

    def broken_gradients(self: ActiveStep, view: ActiveView) -> ActiveView:
        if self.passives.presence.position == at:
            for embedding in view.embeddings.values():
                if embedding.grad is not None:
                    embedding.grad[0] = value
        return gradients(self, view)

    if site == "embedding":
        patched.setattr(PassiveSetup, "check_own", broken_embedding)
    elif site == "loss":
        patched.setattr(ActiveStep, "_loss", broken_loss)
    else:
        patched.setattr(ActiveStep, "_with_task_gradients", broken_gradients)
