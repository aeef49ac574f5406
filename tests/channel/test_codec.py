"""The wire format: what is written comes back to the bit, and never changes unnoticed."""

import math
import struct
import zlib

import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlayer.channel import Kind, Message
from cutlayer.channel.codec import DTYPES, HEADER, WIRE_VERSION, FrameLimits, decode, encode
from cutlayer.channel.message import SHAPES
from cutlayer.errors import ConfigError, ProtocolError

TEXT = st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" "), max_size=20)
SHORT = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=16)
FIELDS = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    str: SHORT,
    bool: st.booleans(),
}


def raw(tensor):
    return tensor.numpy().tobytes()


@st.composite
def tensors(draw, dtype, rank):
    shape = draw(st.lists(st.integers(0, 9), min_size=rank, max_size=rank))
    size = math.prod(shape) * dtype.itemsize
    numbers = bytearray(draw(st.binary(min_size=size, max_size=size)))
    return torch.frombuffer(numbers, dtype=dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)


@st.composite
def messages(draw):
    kind = draw(st.sampled_from(Kind))
    shape = SHAPES[kind]
    return Message(
        kind,
        draw(TEXT),
        draw(TEXT),
        draw(TEXT),
        draw(st.integers(-1, 2**63 - 1)),
        draw(st.integers(-1, 2**63 - 1)),
        draw(st.integers(0, 2**63 - 1)),
        draw(st.sampled_from([b"", bytes(range(16))])),
        {name: draw(tensors(dtype, rank)) for name, (dtype, rank) in shape.tensors.items()},
        {name: draw(FIELDS[wanted]) for name, wanted in shape.fields.items()},
    ).checked()


def embedding(*shape):
    numbers = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
    return Message(Kind.EMBEDDING, "telco", "bank", "run", 0, 3, 7, bytes(16), {"embedding": numbers})


@settings(max_examples=100, deadline=None)
@given(messages(), st.sampled_from([bytes, bytearray, memoryview]))
def test_a_message_comes_back_to_the_bit(message, kind):
    back = decode(kind(encode(message)))
    for name in Message.__slots__:
        if name != "tensors":
            assert getattr(back, name) == getattr(message, name)
    assert back.tensors.keys() == message.tensors.keys()
    for name, tensor in message.tensors.items():
        assert back.tensors[name].shape == tensor.shape
        assert back.tensors[name].dtype == tensor.dtype
        assert raw(back.tensors[name]) == raw(tensor)


def test_every_dtype_of_the_protocol_has_a_place_on_the_wire():
    assert {dtype for shape in SHAPES.values() for dtype, _ in shape.tensors.values()} <= DTYPES.keys()


@pytest.mark.parametrize("bits", [0x7FC00001, 0xFFC12345, 0x7F800001, 0x80000000, 0xFF800000, 0x00000001])
def test_nan_payloads_and_negative_zero_survive(bits):
    numbers = torch.frombuffer(bytearray(struct.pack("<I", bits)), dtype=torch.float32).reshape(1, 1)
    message = Message(Kind.GRADIENT, "bank", "telco", "run", 0, 0, 0, b"", {"gradient": numbers})
    assert raw(decode(encode(message)).tensors["gradient"]) == struct.pack("<I", bits)


@pytest.mark.parametrize("shape", [(0, 128), (8, 0), (0, 0)])
def test_an_empty_tensor_keeps_its_shape(shape):
    assert decode(encode(embedding(*shape))).tensors["embedding"].shape == shape


def test_arrived_numbers_are_aligned_and_their_own():
    frame = bytearray(encode(embedding(33, 7)))
    numbers = decode(frame).tensors["embedding"]
    frame[-4:] = bytes(4)
    assert numbers.data_ptr() % 64 == 0
    assert numbers[-1, -1] == 33 * 7 - 1


def test_the_wire_format_does_not_change_unnoticed():
    golden = (
        "43555403" "85000000" "0cf33e0a"
        "8a" "a46b696e64" "a9656d62656464696e67"
        "a673656e646572" "a574656c636f"
        "a87265636569766572" "a462616e6b"
        "a372756e" "a372756e"
        "a565706f6368" "00"
        "a473746570" "03"
        "a873657175656e6365" "07"
        "a4726f7773" "c41000000000000000000000000000000000"
        "a774656e736f7273" "91" "94" "a9656d62656464696e67" "a33c6634" "92" "01" "02" "08"
        "a66669656c6473" "80"
        "00000000" "0000803f"
    )  # fmt: skip
    assert encode(embedding(1, 2)).hex() == golden


def test_a_sender_learns_that_its_frame_is_too_large():
    with pytest.raises(ProtocolError, match="a frame of at most 1000 bytes"):
        encode(embedding(100, 100), FrameLimits(frame_bytes=1000))
    evidence = Message(Kind.EVIDENCE, "telco", "bank", "run", -1, -1, 0, fields={"json": "x" * 200})
    with pytest.raises(ProtocolError, match="an envelope of at most 100 bytes"):
        encode(evidence, FrameLimits(envelope_bytes=100))


@pytest.mark.parametrize(("field", "value"), [("rows", 2**64), ("job", "\ud800")])
def test_what_msgpack_cannot_hold_is_refused(field, value):
    fields = {"job": "", "version": "", "rows": 0, "ids": "", "resume": 0, field: value}
    with pytest.raises(ProtocolError, match="cannot be written"):
        encode(Message(Kind.HELLO, "telco", "bank", "run", -1, -1, 0, fields=fields))


@pytest.mark.parametrize("name", ["frame_bytes", "envelope_bytes", "queued_bytes"])
@pytest.mark.parametrize("value", [0, -1, 2**31])
def test_limits_have_limits(name, value):
    with pytest.raises(ConfigError, match=name):
        FrameLimits(**{name: value})


def test_the_envelope_is_plain_msgpack():
    frame = encode(embedding(2, 3))
    magic, version, length, checksum = HEADER.unpack_from(frame)
    envelope = msgpack.unpackb(frame[HEADER.size : HEADER.size + length])
    assert (magic, version) == (b"CUT", WIRE_VERSION)
    assert checksum == zlib.crc32(frame[4:8] + frame[HEADER.size :])
    assert envelope["tensors"] == [["embedding", "<f4", [2, 3], 24]]
    assert len(frame) == HEADER.size + length + 24
