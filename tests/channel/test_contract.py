"""What parties compare before a link opens: differences are named, and a hostile greeting is only refused."""

from __future__ import annotations

import json
from contextlib import suppress

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlayer.channel.chunks import Assembler
from cutlayer.channel.codec import FrameLimits
from cutlayer.channel.contract import Contract, decode_contract, differences
from cutlayer.errors import ProtocolError

FUZZ = settings(max_examples=200, deadline=None)
JOB = {"task": "binary", "train": {"batch_size": 64, "seed": 1, "optimizer": {"lr": 0.01}}}


def test_equal_contracts_have_no_problem():
    theirs, wire, more = decode_contract(Contract(JOB).encode(3, sender="telco"))
    assert (theirs, wire, more) == (Contract(JOB), 3, {"sender": "telco"})
    assert Contract(JOB).mismatch(theirs, (3, 3), "telco") == ""


@pytest.mark.parametrize(
    ("mine", "theirs", "message"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b: 1 here, 2 there"]),
        ({"a": 1}, {}, ["a: 1 here, nothing there"]),
        ({}, {"a": [1, 2]}, ["a: nothing here, [1, 2] there"]),
        ({"a": 1}, {"a": 1.0}, ["a: 1 here, 1.0 there"]),
        ({"a": True}, {"a": 1}, ["a: True here, 1 there"]),
        ({"a": {"b": 1}}, {"a": 5}, ["a: {'b': 1} here, 5 there"]),
        ({"a": 1, "b": 2}, {"b": 3, "a": 4}, ["a: 1 here, 4 there", "b: 2 here, 3 there"]),
        ({"a": {"b": None}}, {"a": {"b": None}}, []),
    ],
)
def test_differing_keys_are_named_with_both_values(mine, theirs, message):
    assert list(differences(mine, theirs)) == message


def test_what_a_peer_writes_cannot_fill_or_confuse_a_terminal():
    evil = {"train\x1b[2J\n": "x" * 10**5, **{f"key{number}": "\x1b]0;owned\x07\n" * 100 for number in range(2000)}}
    problem = Contract(JOB).mismatch(Contract(evil), (3, 3), "telco")
    assert problem.isprintable()
    assert len(problem) < 3000
    assert "more (telco)" in problem
    version = Contract(JOB).mismatch(Contract(JOB, version="\x1b[31m" + "9" * 9999), (3, 4), "telco")
    assert version.isprintable()
    assert len(version) < 300


GREETING = {"wire": 3, "version": "1", "shared": json.dumps(JOB), "sender": "telco"}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"\x91" * 5000,
        msgpack.packb([1]),
        msgpack.packb({}),
        msgpack.packb({**GREETING, "wire": "3"}),
        msgpack.packb({**GREETING, "wire": True}),
        msgpack.packb({**GREETING, "version": 1}),
        msgpack.packb({**GREETING, "sender": 1}),
        msgpack.packb({**GREETING, "shared": "[]"}),
        msgpack.packb({**GREETING, "shared": "{"}),
        msgpack.packb({**GREETING, "shared": 5}),
        msgpack.packb({**GREETING, "shared": "[" * 100_000}),
        msgpack.packb({**GREETING, "shared": '{"a":' * 50_000}),
        msgpack.packb({**GREETING, "shared": '{"a":' + "9" * 5000 + "}"}),
        msgpack.packb({**GREETING, "sender": b"telco"}),
        msgpack.packb({1: 2}),
    ],
)
def test_a_greeting_that_is_none_is_refused(raw):
    with pytest.raises(ProtocolError, match="expected a greeting of cutlayer"):
        decode_contract(raw)


@FUZZ
@given(st.binary(max_size=300))
def test_random_bytes_are_no_greeting(raw):
    with pytest.raises(ProtocolError):
        decode_contract(raw)


@FUZZ
@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"\1\3\0\0\0abc", b"\1\0\0\0\0", b"\4", b"\3" + bytes(8)])))
def test_random_chunks_give_frames_or_an_error(chunks):
    assembler = Assembler(FrameLimits(frame_bytes=2**16))
    sent = sum(map(len, chunks))
    with suppress(ProtocolError):
        found = [assembler.add(chunk) for chunk in chunks]
        assert sum(len(part) for frame in found if isinstance(frame, tuple) for part in frame) <= sent
