"""What two parties agree on: the point to go on from, and the width of an embedding."""

import pytest

from cutlayer.errors import ProtocolError
from cutlayer.models.sections import MAX_WIDTH
from cutlayer.parties.handshake import ANY_STEP, Saved, _checked_width
from tests.parties.runs import PASSIVES, make_job

TELCO = PASSIVES[0]


def test_a_party_that_does_not_change_within_an_epoch_goes_on_at_any_step_of_it():
    saved = Saved(((1, 0), (2, 0)), (1, 0), idle_from=2)
    assert saved.latest == (2, ANY_STEP)
    assert saved.has((2, 7))
    assert saved.at((2, 7)) == (2, 0)
    assert not saved.has((1, 7))
    assert not saved.has((3, 0))
    assert not saved.has((2, -1))
    assert not saved.has((2, ANY_STEP))
    assert not Saved(((1, 0), (2, 0)), (1, 0)).has((2, 7))


def test_the_narrowest_and_the_widest_embedding_are_accepted():
    job = make_job(bottom={"kind": "python", "path": "tests.parties.runs:DropoutBottom"})
    for width in (1, MAX_WIDTH):
        assert _checked_width(width, TELCO, job) == width
    for width in (0, MAX_WIDTH + 1):
        with pytest.raises(ProtocolError, match=rf"an embedding width of 1 to 65,536 at {TELCO}, got {width}"):
            _checked_width(width, TELCO, job)
