"""A hostile side of a private set intersection: malformed messages, and attempts to learn more than is stated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import cutlayer.alignment.buckets as buckets
import cutlayer.alignment.points as psi_points
from cutlayer.alignment.buckets import sorted_points
from cutlayer.alignment.indices import common_ranks, receive_indices, send_indices
from cutlayer.alignment.intersection import (
    DUMMY_RANK,
    HASH_CONTEXT,
    Alignment,
    Purpose,
    check_points,
)
from cutlayer.alignment.ristretto255 import hash_to_group, multiply, random_points, random_scalar
from cutlayer.alignment.row_proof import prove_rows
from cutlayer.channel import Kind, Message, Port, link
from cutlayer.config import LimitsConfig
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import AlignmentError, ProtocolError
from cutlayer.parties.drive.drive import drive_together
from tests.alignment.psi_runs import BANK, PSI, TELCO, aligned, table, two

Change = Callable[[Tensor], Tensor]


def tamper(monkeypatch: pytest.MonkeyPatch, kind: Kind, sender: str, change: Callable[..., Any], nth: int = 0) -> None:
    """Change the n-th message of a kind from a party on its way out."""
    send, count = Port.send, [0]

    def changed(port: Port, sent: Kind, **parts: Any) -> Any:
        if sent is kind and port.me == sender:
            count[0] += 1
            if count[0] == nth + 1:
                parts = {**parts, **change(parts.get("tensors"), parts.get("fields"))}
        return send(port, sent, **parts)

    monkeypatch.setattr(Port, "send", changed)


def points(change: Change) -> Callable[..., Any]:
    return lambda tensors, _: {"tensors": {"points": change(tensors["points"].clone())}}


def row(value: bytes, where: int = 0) -> Change:
    def put(tensor: Tensor) -> Tensor:
        tensor[where] = torch.frombuffer(bytearray(value), dtype=torch.uint8)
        return tensor

    return put


# Encodings that RFC 9496, appendix A.3, lists as invalid: not canonical, negative, not a square, and small orders of
# the curve beneath, which have no encoding here.
INVALID = {
    "not canonical": "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "the prime itself": "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "negative": "0100000000000000000000000000000000000000000000000000000000000000",
    "not a square": "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
    "order 2 of the curve": "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "order 8 of the curve": "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
}


@pytest.mark.parametrize("sender", [BANK, TELCO])
@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_encoding(monkeypatch: pytest.MonkeyPatch, sender: str, name: str) -> None:
    value = bytes.fromhex(INVALID[name])

    def put(tensor: Tensor) -> Tensor:
        changed = row(value)(tensor).numpy()
        return torch.from_numpy(changed[sorted_points(changed)])

    tamper(monkeypatch, Kind.MASKED, sender, points(put))
    with pytest.raises(ProtocolError, match="points of ristretto255 other than the identity, got 32 other bytes"):
        two(range(20), range(10, 30))


@pytest.mark.parametrize("sender", [BANK, TELCO])
def test_the_identity(monkeypatch: pytest.MonkeyPatch, sender: str) -> None:
    tamper(monkeypatch, Kind.MASKED, sender, points(row(bytes(32))))
    with pytest.raises(ProtocolError, match="other than the identity"):
        two(range(20), range(10, 30))


@pytest.mark.parametrize("sender", [BANK, TELCO])
@pytest.mark.parametrize("change", [lambda t: t[torch.arange(len(t)).clamp(min=1)], lambda t: t.flip(0)])
def test_points_that_repeat_or_are_not_sorted(monkeypatch: pytest.MonkeyPatch, sender: str, change: Change) -> None:
    tamper(monkeypatch, Kind.MASKED, sender, points(change))
    with pytest.raises(ProtocolError, match="distinct points in ascending order"):
        two(range(20), range(10, 30))


@pytest.mark.parametrize(
    "change", [lambda t: t[:-1], lambda t: torch.cat([t, t[:1]]), lambda t: t[:, :31], lambda t: t[:0]]
)
@pytest.mark.parametrize(("kind", "sender"), [(Kind.MASKED, BANK), (Kind.MASKED, TELCO), (Kind.REMASKED, TELCO)])
def test_another_number_than_was_stated(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, sender: str, change: Change
) -> None:
    tamper(monkeypatch, kind, sender, points(change))
    with pytest.raises(ProtocolError, match="by the rows that it stated"):
        two(range(20), range(10, 30))


def test_one_answer_for_two_points(monkeypatch: pytest.MonkeyPatch) -> None:
    tamper(monkeypatch, Kind.REMASKED, TELCO, points(lambda t: t[torch.arange(len(t)).clamp(min=1)]))
    with pytest.raises(ProtocolError, match="got one twice"):
        two(range(20), range(10, 30))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: torch.cat([t, t[:1]]), "indices of distinct rows"),
        (lambda t: torch.cat([t, torch.tensor([1000])]), "indices 0 to"),
        (lambda t: torch.cat([t, torch.tensor([-1])]), "indices 0 to"),
        (lambda t: t[:0], "rows that bank and this party have"),
    ],
)
def test_places_that_are_none(monkeypatch: pytest.MonkeyPatch, change: Change, message: str) -> None:
    def moved(tensors: Mapping[str, Tensor], _: object) -> Any:
        return {"tensors": {"positions": change(tensors["positions"])}}

    tamper(monkeypatch, Kind.ORDER, BANK, moved)
    with pytest.raises((ProtocolError, AlignmentError), match=message):
        two(range(20), range(10, 30))


def test_rows_outside_of_the_intersection_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The active party names a row that it does not hold: without its id it cannot prove the common rows."""
    all_places = torch.arange(20)
    tamper(monkeypatch, Kind.ORDER, BANK, lambda *_: {"tensors": {"positions": all_places}})
    with pytest.raises(AlignmentError, match="the common rows at bank, got other rows than it named"):
        two(range(20), range(10, 30))


def test_a_place_of_padding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tamper(monkeypatch, Kind.ORDER, BANK, lambda *_: {"tensors": {"positions": torch.arange(64)}})
    with pytest.raises(ProtocolError, match="indices of distinct rows"):
        aligned(table(range(20)), {TELCO: table(range(10, 30), TELCO, pad_to=64)})


def test_no_place_of_padding_is_among_the_rows_that_are_named() -> None:
    """By itself, before the proof of the rows: with one such place all others may be distinct."""
    here, there = link(BANK, TELCO, "run")
    send_indices(here, np.array([0, 2]))
    received = receive_indices(there, np.array([DUMMY_RANK, 3, 5]))
    next(received)
    with pytest.raises(ProtocolError, match="expected indices of distinct rows from bank"):
        received.send(there.arrived.popleft())


def test_a_match_of_padding_is_refused_at_any_party() -> None:
    good, bad = (np.array([3, 5]), np.array([0, 1])), (np.array([5, DUMMY_RANK]), np.array([0, 1]))
    for matches in ({TELCO: good, "shop": bad}, {TELCO: bad, "shop": good}):
        with pytest.raises(ProtocolError, match="got one with a random point"):
            common_ranks(matches)


def test_swapped_answers_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The passive party has the active party take rows for common that are not: neither learns which they were."""
    tamper(monkeypatch, Kind.REMASKED, TELCO, points(lambda t: t.roll(1, 0)))
    with pytest.raises(AlignmentError, match="got other rows than it named"):
        two(range(20), range(10, 30))


def test_a_proof_can_be_neither_reflected_nor_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A passive party that answers with what it was sent, as its point and as its confirmation."""
    send = Port.send

    def reflected(port: Port, kind: Kind, **parts: Any) -> Any:
        if kind is Kind.PROOF and port.me == TELCO and port.arrived:
            parts["tensors"] = {"proof": port.arrived[0].tensors["proof"]}
        return send(port, kind, **parts)

    monkeypatch.setattr(Port, "send", reflected)
    with pytest.raises(AlignmentError, match="got other rows than it named"):
        two(range(20), range(10, 30))


def test_the_confirmation_that_was_sent_is_none_of_the_other_side() -> None:
    """A passive party without the rows sends back what the active party confirmed."""
    here, there = link(BANK, TELCO, "run")
    proof = prove_rows(here, bytes(16), active=True)
    next(proof)
    there.send(Kind.PROOF, tensors={"proof": torch.from_numpy(random_points(1)[0])})
    proof.send(here.arrived.popleft())
    there.send(Kind.PROOF, tensors={"proof": there.arrived[-1].tensors["proof"]})
    with pytest.raises(AlignmentError, match="got other rows than it named"):
        proof.send(here.arrived.popleft())


def test_a_confirmation_is_of_both_points() -> None:
    """Who multiplies the points of two others by one number proves no rows that it does not hold."""
    factor = random_scalar()

    def proved(between: bool) -> None:
        here, there = link(BANK, TELCO, "run")
        for port in (here, there) if between else ():
            port.transmit = _multiplying(port, factor)
        bank, telco = (prove_rows(port, bytes(16), active=port is here) for port in (here, there))
        drive_together({BANK: bank, TELCO: telco})

    proved(between=False)
    with pytest.raises(AlignmentError, match="got other rows than it named"):
        proved(between=True)


def _multiplying(port: Port, factor: bytes) -> Callable[[Message], None]:
    transmit = port.transmit

    def changed(message: Message) -> None:
        if not message.sequence:
            point = multiply(message.tensors["proof"].numpy().reshape(1, -1), factor)
            message = replace(message, tensors={"proof": torch.from_numpy(point[0])})
        transmit(message)

    return changed


def test_a_proof_is_of_the_rows_and_of_the_run() -> None:
    """Under one scalar: neither other rows nor another run have the same point."""
    points = set()
    for order, run in ((bytes(16), "a"), (bytes([1] * 16), "a"), (bytes(16), "b")):
        here, there = link(BANK, TELCO, run)
        next(prove_rows(here, order, active=True, random=lambda count: bytes([7] * count)))
        points.add(there.arrived[0].tensors["proof"].numpy().tobytes())
    assert len(points) == 3


@pytest.mark.usefixtures("quick_masks")
def test_buckets_so_small_that_they_would_show_hashes_are_filled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large table at the active party makes many buckets; those of a small one all have the same size."""
    monkeypatch.setattr(buckets, "BUCKET_ROWS", 8)
    sizes: list[int] = []

    def spy(message: Any) -> None:
        if message.kind is Kind.MASKED and message.sender == TELCO:
            sizes.append(len(message.tensors["points"]))

    aligned(table(range(250)), {TELCO: table(range(240, 280), TELCO)}, spy=spy)
    assert len(sizes) == 32
    assert set(sizes) == {buckets.bucket_capacity(40, 5)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bits": 11}, "buckets of ids"),
        ({"bits": -1}, "buckets of ids"),
        ({"bits": 2**40}, "buckets of ids"),
        ({"first": 1}, "a start of the alignment that this party has"),
        ({"first": -1}, "a start of the alignment that this party has"),
    ],
)
def test_another_start_or_number_of_buckets(
    monkeypatch: pytest.MonkeyPatch, fields: Mapping[str, int], message: str
) -> None:
    tamper(monkeypatch, Kind.ALIGN, BANK, lambda _, old: {"fields": {**old, **fields}})
    with pytest.raises(ProtocolError, match=message):
        two(range(20), range(10, 30))


def one_id_in_each_bucket(bits: int, party: str) -> PartyTable:
    """A table that states one row and has one for each of 2^bits buckets: ids that its party guesses."""
    ids = np.arange(5000)
    digests = table(ids).digests
    _, first = np.unique(digests[:, 0].astype(int) >> (8 - bits), return_index=True)
    guesses = table(ids[first], party)
    assert len(first) == 2**bits
    guesses.stated_rows = 1
    return guesses


def test_more_buckets_than_the_tables_need_are_no_more_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bucket is filled up to a row at least: with 128 of them one stated row would test 128 ids."""
    monkeypatch.setattr(psi_points, "bucket_bits", lambda rows: 7)
    guesses, telco = one_id_in_each_bucket(7, BANK), table(range(200), TELCO)
    with pytest.raises(ProtocolError, match=r"expected 2\^0 buckets of ids, got 2\^7"):
        aligned(guesses, {TELCO: telco})


@pytest.mark.usefixtures("quick_masks")
@pytest.mark.parametrize("sender", [BANK, TELCO])
def test_the_limit_of_rows_counts_what_fills_the_buckets(monkeypatch: pytest.MonkeyPatch, sender: str) -> None:
    """The other table is so large that there are 64 buckets, however few rows this one states."""
    monkeypatch.setattr(buckets, "BUCKET_ROWS", 32)
    guesses, other = one_id_in_each_bucket(6, sender), TELCO if sender == BANK else BANK
    large = table(range(2000), other)
    own, passives = (guesses, {TELCO: large}) if sender == BANK else (large, {TELCO: guesses})
    wanted = f"at most 30 points of ids from {sender}, by limits.peer_rows, got 64, to fill 64 buckets with the 1 rows"
    with pytest.raises(ProtocolError, match=wanted):
        aligned(own, passives, limits={other: LimitsConfig(peer_rows=30)})
    assert len(aligned(own, passives)[BANK].positions) > 10  # the limit is what bounds the guesses


def test_a_table_of_the_largest_allowed_size_is_not_refused() -> None:
    for rows in (1, 131_072, 131_073, 1_000_000, 100_000_000):
        check_points(rows, buckets.bucket_bits(rows), rows, BANK)


def test_a_replayed_session_learns_nothing_without_the_new_scalar() -> None:
    """Masked ids of an earlier run do not match those of a new one, with the same ids and a known scalar."""
    digests = table(range(10)).digests
    earlier, later = (hash_to_group(digests, HASH_CONTEXT + run) for run in (b"one", b"two"))
    assert not {*map(bytes, earlier)} & {*map(bytes, later)}
    known = random_scalar()
    assert not {*map(bytes, multiply(earlier, known))} & {*map(bytes, multiply(later, known))}


def test_a_chosen_scalar_gives_the_set_that_was_stated_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party whose scalar is 1 sees the other's points under their own mask, which it cannot remove."""
    one = (1).to_bytes(32, "little")
    seen: list[np.ndarray[Any, Any]] = []

    def spy(message: Any) -> None:
        if message.kind is Kind.MASKED and message.sender == TELCO:
            seen.append(message.tensors["points"].numpy())

    aligned(table(range(20)), {TELCO: table(range(10, 30), TELCO)}, spy=spy)
    hashed = hash_to_group(table(range(30)).digests, HASH_CONTEXT + b"run")
    assert not {*map(bytes, seen[0])} & {*map(bytes, multiply(hashed, one))}


def test_answers_of_random_points_match_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tamper(monkeypatch, Kind.REMASKED, TELCO, points(lambda t: torch.from_numpy(random_points(len(t)))))
    with pytest.raises(AlignmentError, match="rows that all parties have"):
        two(range(20), range(10, 30))


def test_for_a_size_the_answers_cannot_be_linked_to_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come sorted, and so not in the order of what they answer."""
    orders: list[list[bytes]] = []

    def spy(message: Any) -> None:
        if message.kind is Kind.REMASKED:
            orders.append([bytes(point) for point in message.tensors["points"].numpy()])

    aligned(table(range(40)), {TELCO: table(range(20, 60), TELCO)}, Alignment("psi", Purpose.SIZE, processes=1), spy)
    assert orders[0] == sorted(orders[0])
    aligned(table(range(40)), {TELCO: table(range(20, 60), TELCO)}, PSI, spy)
    assert orders[1] != sorted(orders[1])


@pytest.mark.parametrize("rows", [-5, 21, 10**15])
def test_a_number_of_common_rows_that_cannot_be(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    tamper(monkeypatch, Kind.COMMON, BANK, lambda *_: {"fields": {"rows": rows}})
    with pytest.raises(ProtocolError, match=f"expected 0 to 20 rows in common, as bank states, got {rows:,}"):
        two(range(30), range(10, 30), Purpose.SIZE)


def test_a_dry_run_does_not_hide_rows_from_an_active_party_that_sends_related_points() -> None:
    """A limit that the page of guarantees states: the double of a point is recognised among the sorted answers."""
    hashed = hash_to_group(table(range(6)).digests, HASH_CONTEXT + b"run")
    mine, theirs, two = random_scalar(), random_scalar(), (2).to_bytes(32, "little")
    asked = np.concatenate([multiply(hashed, mine), multiply(multiply(hashed[3:4], mine), two)])
    answers = multiply(asked, theirs)
    answers = answers[sorted_points(answers)]
    doubled = {*map(bytes, multiply(answers, two))} & {*map(bytes, answers)}
    (linked,) = [answer for answer in answers if bytes(multiply(answer.reshape(1, -1), two)) in doubled]
    assert bytes(linked) == bytes(multiply(multiply(hashed[3:4], mine), theirs))
