"""What two parties agree on: the point to go on from, and the width of an embedding."""

from __future__ import annotations

import pytest

from cutlayer.alignment.intersection import Alignment
from cutlayer.channel import Kind, link
from cutlayer.config import LimitsConfig
from cutlayer.errors import CheckpointError, ProtocolError
from cutlayer.models.sections import MAX_WIDTH
from cutlayer.parties.agreement.handshake import ANY_STEP, Agreement, SavedPoints, agree_passive
from cutlayer.parties.agreement.order import _checked_width
from tests.alignment.psi_runs import BANK, TELCO, table
from tests.parties.runs import make_job


def test_a_party_that_does_not_change_within_an_epoch_goes_on_at_any_step_of_it():
    saved = SavedPoints(((1, 0), (2, 0)), (1, 0), idle_from=2)
    assert saved.latest == (2, ANY_STEP)
    assert saved.has((2, 7))
    assert saved.checkpoint_of((2, 7)) == (2, 0)
    assert not saved.has((1, 7))
    assert not saved.has((3, 0))
    assert not saved.has((2, -1))
    assert not saved.has((2, ANY_STEP))
    assert not SavedPoints(((1, 0), (2, 0)), (1, 0)).has((2, 7))


def test_the_narrowest_and_the_widest_embedding_are_accepted():
    job = make_job(bottom={"kind": "python", "path": "tests.parties.runs:DropoutBottom"})
    for width in (1, MAX_WIDTH):
        assert _checked_width(width, TELCO, job) == width
    for width in (0, MAX_WIDTH + 1):
        with pytest.raises(ProtocolError, match=rf"an embedding width of 1 to 65,536 at {TELCO}, got {width}"):
            _checked_width(width, TELCO, job)


def answered(saved: SavedPoints, *, forget: bool = False, **changed: int | str) -> Agreement:
    """What a passive party agrees to where the active party's first message differs from its own in some fields."""
    here, there = link(BANK, TELCO, "run")
    side = agree_passive(
        make_job(), table(range(5), TELCO), there, saved, LimitsConfig(), Alignment("agreed"), forget=forget
    )
    next(side)
    here.send(Kind.HELLO, fields={**here.arrived.popleft().fields, "resume": 0, "step": 0, **changed})
    try:
        side.send(there.arrived.popleft())
    except StopIteration as done:
        agreement: Agreement = done.value
        return agreement
    raise AssertionError("it waits for more")


def test_a_partner_that_lost_its_progress_is_refused_unless_its_owner_accepts_that() -> None:
    """What is released again would have other noise, which no account states."""
    saved = SavedPoints(((1, 0), (2, 0), (3, 0)), previous=(2, 0))
    for start in ((3, 0), (2, 0)):
        assert answered(saved, resume=start[0]).start == start
    for start in ((1, 0), (0, 0)):
        with pytest.raises(CheckpointError, match=r"it has lost its progress; .*--forget-peer-progress"):
            answered(saved, resume=start[0])
        assert answered(saved, resume=start[0], forget=True).start == start
    for changed in ({"resume": 4}, {"resume": 3, "step": 1}, {"resume": -1}):
        with pytest.raises(CheckpointError, match=r"expected a checkpoint of .* here, as at bank"):
            answered(saved, forget=True, **changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"job": "00"}, "bank holds another job than telco"),
        ({"name": "cards"}, "job 'job' at bank, as at telco, got 'cards'"),
        ({"name": "cards\x1b"}, "name"),
        ({"purpose": "size"}, "the same command at bank, to train, got to size"),
        ({"version": "3"}, "protocol version"),
        ({"rows": 10**12}, "limits.peer_rows"),
        ({"rows": -1}, "limits.peer_rows"),
    ],
)
def test_parties_with_other_jobs_commands_or_tables_do_not_go_on(changed: dict[str, int | str], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        answered(SavedPoints(), **changed)
