"""Alignment by private set intersection gives the rows and the order of the plain join, and shows no more."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_bytes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cutlayer.alignment.buckets as buckets
from cutlayer.alignment.buckets import Buckets
from cutlayer.alignment.common_rows import CommonRows
from cutlayer.alignment.indices import common_ranks
from cutlayer.alignment.intersection import DUMMY_RANK, Alignment, Masker, Purpose
from cutlayer.alignment.ristretto255 import random_scalar
from cutlayer.channel import Kind, Message
from cutlayer.channel.codec import encode
from cutlayer.data.align import intersect
from cutlayer.errors import AlignmentError, ProtocolError
from cutlayer.workers import Workers
from tests.alignment.psi_runs import BANK, PSI, TELCO, aligned, table, two

ids = st.lists(st.integers(0, 60), min_size=1, max_size=40, unique=True)


@settings(deadline=None, max_examples=40)
@given(ids, ids)
def test_equal_to_set_intersection_and_to_the_plain_order(bank: list[int], telco: list[int]) -> None:
    common = set(bank) & set(telco)
    if not common:
        with pytest.raises(AlignmentError, match="rows that all parties have"):
            two(bank, telco)
        return
    result = two(bank, telco)
    mine, theirs = result[BANK].positions, result[TELCO].positions
    assert mine is not None
    assert theirs is not None
    assert [bank[row] for row in mine] == [telco[row] for row in theirs]
    assert {bank[row] for row in mine} == common
    plain = intersect({BANK: table(bank).digests, TELCO: table(telco).digests})
    assert (mine == plain[BANK]).all()
    assert (theirs == plain[TELCO]).all()


@pytest.mark.parametrize("bits", [0, 1, 3])
def test_three_parties_in_any_number_of_buckets(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    monkeypatch.setattr(buckets, "BUCKET_ROWS", 128 >> bits)
    draw = np.random.default_rng(bits)
    lists = {name: draw.permutation(150)[:100].tolist() for name in (BANK, TELCO, "shop")}
    tables = {name: table(rows, name) for name, rows in lists.items()}
    result = aligned(tables[BANK], {name: tables[name] for name in (TELCO, "shop")})
    plain = intersect({name: own.digests for name, own in tables.items()})
    for name in lists:
        positions = result[name].positions
        assert positions is not None
        assert (positions == plain[name]).all()
    assert result[BANK].sizes == {name: len({*lists[BANK]} & {*lists[name]}) for name in (TELCO, "shop")}


def test_worker_processes_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.workers.MIN_DIVIDED_ROWS", 40)
    monkeypatch.setattr("cutlayer.workers.TASK_ROWS", 32)
    own, scalar = Buckets(table(range(80)).digests, 0, 80, BANK), random_scalar()
    with Workers(1) as here, Workers(2) as processes:
        alone, divided = (Masker(own, workers, "run", token_bytes) for workers in (here, processes))
        points = alone.hash_bucket(0)
        assert (divided.hash_bucket(0) == points).all()
        assert (divided.remask(points, scalar) == alone.remask(points, scalar)).all()


def test_a_size_reveals_no_row() -> None:
    result = two(range(50), range(20, 90), Purpose.SIZE)
    assert result[BANK].positions is result[TELCO].positions is None
    assert result[BANK].sizes == {TELCO: 30}
    assert result[TELCO].sizes == {BANK: 30}
    assert two(range(5), range(10, 20), Purpose.SIZE)[BANK].sizes == {TELCO: 0}


def test_the_active_party_alone_may_learn_the_rows() -> None:
    result = two(range(50), range(20, 90), Purpose.ALIGN_ACTIVE)
    assert len(result[BANK].positions) == 30  # type: ignore[arg-type]
    assert result[TELCO].positions is None
    assert not result[TELCO].sizes


def test_the_passive_party_does_not_learn_that_no_row_is_common() -> None:
    """A table of one guessed id would otherwise tell whether the active party has it."""
    result = two(range(50), [50], Purpose.ALIGN_ACTIVE)
    assert len(result[BANK].positions) == 0  # type: ignore[arg-type]
    assert result[TELCO] == two(range(50), [49], Purpose.ALIGN_ACTIVE)[TELCO] == CommonRows(None)


def transcript(bank: Sequence[object], telco: Sequence[object], alignment: Alignment = PSI) -> list[Message]:
    seen: list[Message] = []
    aligned(table(bank), {TELCO: table(telco, TELCO)}, alignment, seen.append)
    return seen


def test_no_id_and_no_digest_of_one_crosses() -> None:
    names = [f"customer-{number:04d}" for number in range(80)]
    wire = b"".join(encode(message) for message in transcript(names[:60], names[30:]))
    digests = table(names).digests
    assert not any(name.encode() in wire for name in names)
    assert not any(digest.tobytes() in wire for digest in digests)
    assert not any(digest.tobytes()[:6] in wire for digest in digests)


@pytest.mark.usefixtures("quick_masks")
def test_masks_are_new_in_every_run_bucket_and_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "BUCKET_ROWS", 16)
    points: list[bytes] = []
    for _ in range(2):
        for message in transcript(range(60), range(30, 90)):
            if message.kind in (Kind.MASKED, Kind.REMASKED):
                points += [row.tobytes() for row in message.tensors["points"].numpy()]
    sent: list[Message] = []
    passives = {name: table(range(30, 90), name) for name in (TELCO, "shop")}
    aligned(table(range(60)), passives, spy=sent.append)
    for message in sent:  # partners with the same rows could else compare what they were sent of others
        if message.kind is Kind.MASKED:
            points += [row.tobytes() for row in message.tensors["points"].numpy()]
    assert len(set(points)) == len(points)


def test_a_row_is_another_point_in_another_run() -> None:
    """So that what was sent in one run, even under a scalar that leaked, is of no use in the next."""
    own = Buckets(table(range(20)).digests, 0, 20, BANK)
    with Workers(1) as workers:
        first, again, other = (Masker(own, workers, run, token_bytes).hash_bucket(0) for run in ("a", "a", "b"))
    assert (first == again).all()
    assert not {*map(bytes, first)} & {*map(bytes, other)}


@pytest.mark.usefixtures("quick_masks")
def test_order_and_counts_of_what_crosses_depend_on_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tables that differ in everything but their stated length: all messages are of the same sizes."""
    monkeypatch.setattr(buckets, "BUCKET_ROWS", 16)

    def shapes(bank: Sequence[object]) -> list[tuple[Kind, tuple[int, ...]]]:
        seen = transcript(bank, range(100))
        return [(m.kind, tuple(m.tensors["points"].shape)) for m in seen if m.kind in (Kind.MASKED, Kind.REMASKED)]

    assert shapes(range(60)) == shapes(range(99, 500)[:60])


def test_a_padded_table_states_and_sends_another_number_of_rows() -> None:
    seen: list[Message] = []
    bank, telco = table(range(50)), table(range(40, 70), TELCO, pad_to=200)
    result = aligned(bank, {TELCO: telco}, spy=seen.append)
    assert len(result[BANK].positions) == 10  # type: ignore[arg-type]
    (masked,) = [m for m in seen if m.kind is Kind.MASKED and m.sender == TELCO]
    assert len(masked.tensors["points"]) == telco.stated_rows == 200


def test_row_numbers_cross_as_nothing() -> None:
    from cutlayer.data.party_data import PartyTable

    seen: list[Message] = []
    tables = {name: PartyTable(name, {"x": [1, 2, 3]}) for name in (BANK, TELCO)}
    result = aligned(tables[BANK], {TELCO: tables[TELCO]}, spy=seen.append)
    assert not seen
    plain = intersect({name: own.digests for name, own in tables.items()})
    assert all((result[name].positions == plain[name]).all() for name in plain)  # type: ignore[union-attr]


def test_equal_to_another_implementation() -> None:
    """The elliptic-curve protocol of OpenMined's library, with raw points, on another curve."""
    psi = pytest.importorskip("private_set_intersection.python", reason="openmined-psi is not installed (extra psi)")
    draw = np.random.default_rng(5)
    for _ in range(5):
        bank, telco = (draw.permutation(400)[: draw.integers(1, 300)].tolist() for _ in range(2))
        server, client = psi.server.CreateWithNewKey(True), psi.client.CreateWithNewKey(True)
        setup = server.CreateSetupMessage(0.0, len(bank), [str(item) for item in telco], psi.DataStructure.RAW)
        response = server.ProcessRequest(client.CreateRequest([str(each) for each in bank]))
        theirs = client.GetIntersection(setup, response)
        positions = two(bank, telco)[BANK].positions
        assert positions is not None
        assert sorted(positions.tolist()) == sorted(theirs)


def test_a_match_with_a_point_that_no_row_has_is_refused() -> None:
    matched, slots = np.array([4, 0, 2]), np.array([1, 0, 2])
    ranks, indices = common_ranks({TELCO: (matched, slots)})
    assert ranks.tolist() == [0, 2, 4]
    assert indices[TELCO].tolist() == [0, 2, 1]
    with pytest.raises(ProtocolError, match="matches with rows alone, got one with a random point"):
        common_ranks({TELCO: (np.array([4, DUMMY_RANK]), slots[:2])})
