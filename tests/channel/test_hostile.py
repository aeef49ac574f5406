"""Frames from an enemy: a `ProtocolError` and nothing else, and no memory beyond what the frame itself holds."""

import math
import zlib
from unittest.mock import patch

import msgpack
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cutlayer.channel import Kind, Message
from cutlayer.channel import codec as wire
from cutlayer.channel.codec import HEADER, MAGIC, WIRE_VERSION, FrameLimits, decode, encode
from cutlayer.errors import ProtocolError

GOOD = encode(
    Message(Kind.GRADIENT, "bank", "telco", "run", 0, 3, 7, bytes(16), {"gradient": torch.arange(6.0).reshape(2, 3)})
)
GOOD_TEXT = encode(Message(Kind.EVIDENCE, "telco", "bank", "run", -1, -1, 9, fields={"json": "{}"}))
FUZZ = settings(max_examples=150, deadline=None)

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS | st.binary(max_size=20) | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20)),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(SCALARS, inner, max_size=4),
    max_leaves=12,
)


def survives(frame, limits=wire.DEFAULT_LIMITS):
    """Decode; whatever happens, no tensor is larger than the frame."""
    empty = torch.empty

    def watched(shape, dtype):
        assert math.prod(shape) * dtype.itemsize <= len(frame)
        return empty(shape, dtype=dtype)

    with patch.object(wire.torch, "empty", watched):
        try:
            decode(frame, limits)
        except ProtocolError as caught:
            refusal = str(caught)
        else:
            return True
    assert len(refusal) < 1500
    return False


def envelope(frame=GOOD):
    return msgpack.unpackb(frame[HEADER.size : HEADER.size + HEADER.unpack_from(frame)[2]])


def framed(parts, numbers=bytes(24), **packing):
    packed = parts if isinstance(parts, bytes) else msgpack.packb(parts, **packing)
    return headed(len(packed), packed + numbers)


def headed(length, rest, version=WIRE_VERSION):
    """A frame with the right checksum, as an enemy sends it: the checks behind it must hold by themselves."""
    checksum = zlib.crc32(length.to_bytes(4, "little") + rest)
    return HEADER.pack(MAGIC, version, length, checksum) + rest


def resealed(frame):
    if len(frame) < HEADER.size:
        return frame
    checksum = zlib.crc32(frame[4:8] + frame[HEADER.size :])
    return bytes(frame[:8]) + checksum.to_bytes(4, "little") + bytes(frame[HEADER.size :])


def with_tensor(**changes):
    names = ("name", "dtype", "shape", "bytes")
    entry = dict(zip(names, envelope()["tensors"][0], strict=True)) | changes
    return framed(envelope() | {"tensors": [[entry[name] for name in names]]})


def test_the_rebuilt_frame_is_the_good_one():
    assert survives(GOOD)
    assert framed(envelope(), GOOD[-24:]) == GOOD


@FUZZ
@given(st.binary(max_size=400))
def test_random_bytes(frame):
    assert not survives(frame)


@FUZZ
@given(st.binary(max_size=400), st.integers(0, 500))
def test_random_bytes_behind_a_good_header(rest, length):
    assert not survives(headed(length, rest))


@pytest.mark.parametrize("frame", [GOOD, GOOD_TEXT])
def test_every_truncation_and_an_extra_byte(frame):
    for end in range(len(frame)):
        assert not survives(frame[:end])
        assert not survives(resealed(frame[:end]))
    assert not survives(frame + b"\0")
    assert not survives(resealed(frame + b"\0"))


@pytest.mark.parametrize("frame", [GOOD, GOOD_TEXT])
def test_every_flipped_bit_is_noticed(frame):
    """Without the checksum the flipped bits of the numbers, of the rows' digest and of the step are taken as sent."""
    for bit in range(len(frame) * 8):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not survives(damaged)
        survives(resealed(damaged))


@FUZZ
@given(st.integers(0, len(GOOD) * 8 - 32), st.integers(1, 2**32 - 1))
def test_every_burst_of_32_bits_is_noticed(start, pattern):
    flipped = int.from_bytes(GOOD, "little") ^ pattern << start
    assert not survives(flipped.to_bytes(len(GOOD), "little"))


@FUZZ
@given(st.binary(max_size=60), st.integers(0, len(GOOD)), st.integers(0, 60))
def test_spliced_frames(patch_bytes, place, removed):
    spliced = GOOD[:place] + patch_bytes + GOOD[place + removed :]
    survives(spliced)
    survives(resealed(spliced))


@FUZZ
@given(VALUES, st.binary(max_size=40))
def test_any_envelope(parts, numbers):
    assert not survives(framed(parts, numbers, strict_types=False))


@FUZZ
@given(st.sampled_from(sorted(envelope())), VALUES)
def test_any_value_in_any_place(name, value):
    frame = framed(envelope() | {name: value})
    survives(frame)
    survives(framed(envelope(GOOD_TEXT) | {name: value}, b""))


@FUZZ
@given(st.lists(VALUES, min_size=3, max_size=5))
def test_any_description_of_a_tensor(entry):
    assert not survives(framed(envelope() | {"tensors": [entry]}))


DIMENSION = st.integers(-(2**63), 2**64 - 1) | st.integers(-8, 8)


@FUZZ
@given(st.lists(DIMENSION, max_size=4), DIMENSION)
@example([2**62, 0], 0)
@example([2**63, 2], 0)
@example([2**32, 2**32], 0)
@example([-2, -3], 24)
@example([2**20, 2**20], 2**42)
@example([6], 24)
@example([1, 2, 3], 24)
@example([2, 4], 32)
@example([2, 2], 16)
def test_dimensions_that_lie(shape, size):
    assume((shape, size) not in [([n, 6 // n], 24) for n in (1, 2, 3, 6)])
    assert not survives(with_tensor(shape=shape, bytes=size))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "embedding"},
        {"dtype": "<f8"},
        {"dtype": ">f4"},
        {"dtype": "|O"},
        {"shape": [True, 6]},
        {"shape": [2.0, 3]},
        {"shape": "23"},
        {"bytes": "24"},
        {"bytes": True},
    ],
)
def test_a_tensor_of_another_description(changes):
    assert not survives(with_tensor(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "goodbye"},
        {"kind": "hello"},
        {"epoch": -2},
        {"step": -2},
        {"sequence": -1},
        {"sequence": 2**63},
        {"sequence": True},
        {"rows": bytes(15)},
        {"sender": "x" * 300},
        {"run": "run\n12:00:00 all is well"},
        {"receiver": "telco\x1b[2J"},
        {"tensors": []},
        {"fields": {"extra": 1}},
        {"extra": 1},
        {"kind": b"embedding"},
    ],
)
def test_an_envelope_of_another_content(changes):
    assert not survives(framed(envelope() | changes))


@pytest.mark.parametrize("name", ["note\n12:00:00 all is well", "\x1b[2J", "x" * 1000])
def test_an_error_holds_no_raw_name_of_a_peer(name):
    with pytest.raises(ProtocolError, match="Extra inputs") as refused:
        decode(framed(envelope() | {name: 1}))
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200


def test_a_kind_with_fields_of_another_type():
    text = envelope(GOOD_TEXT)
    for value in (None, 1, ["x"] * 10, {"x": "y" * 10_000}):
        assert not survives(framed(text | {"fields": {"json": value}}, b""))


def test_a_key_given_twice():
    packed = msgpack.packb(envelope())
    key = msgpack.packb("step") + msgpack.packb(3)
    assert not survives(framed(b"\x8b" + packed[1:] + key))
    assert key in packed


@pytest.mark.parametrize(
    "bomb",
    [
        b"\xdd\xff\xff\xff\xff",  # an array of 2**32 - 1
        b"\xdf\xff\xff\xff\xff",  # a map
        b"\xdb\xff\xff\xff\xff",  # a text
        b"\xc6\xff\xff\xff\xff",  # bytes
        b"\xc9\xff\xff\xff\xff\x01",  # an extension
        b"\xd6\xff\x00\x00\x00\x00",  # a timestamp
        b"\xc7\x00\x01",  # an empty extension
        b"\x91" * 200_000,
        b"\x81" * 200_000,
        b"\x81\xa0" * 100_000,
        b"\xc1",
        b"",
    ],
)
def test_bombs(bomb):
    assert not survives(framed(bomb))
    assert not survives(framed(b"\x8a\xa4kind" + bomb))


def test_limits_come_before_the_content():
    assert survives(GOOD, FrameLimits(frame_bytes=len(GOOD)))
    with pytest.raises(ProtocolError, match=f"a frame of at most {len(GOOD) - 1} bytes"):
        decode(GOOD, FrameLimits(frame_bytes=len(GOOD) - 1))
    with pytest.raises(ProtocolError, match="an envelope of at most 64 bytes"):
        decode(GOOD, FrameLimits(envelope_bytes=64))


def test_another_version_says_what_to_do():
    with pytest.raises(ProtocolError, match="expected wire format 3, got 1; install the same version"):
        decode(GOOD[:3] + b"\x01" + GOOD[4:])
