"""Texts and numbers of a message's fields: bounded, and never more than a line of a terminal."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from cutlayer.channel import Kind
from cutlayer.channel.codec import HEADER, MAGIC, WIRE_VERSION, _checksum, decode
from cutlayer.channel.message import SHAPES, Message
from cutlayer.errors import ProtocolError

HONEST: dict[type, Any] = {int: 1, str: "done", bool: True}
FIELDS = {kind: {n: HONEST[t] for n, t in shape.fields.items()} for kind, shape in SHAPES.items() if shape.texts}
TEXTS = [(kind, name) for kind, fields in FIELDS.items() for name in fields if SHAPES[kind].fields[name] is str]


def frame(kind: Kind, **changes: Any) -> bytes:
    """A frame as a hostile program writes it, without the checks of a `Port`."""
    parts: dict[str, Any] = {"kind": str(kind), "sender": "telco", "receiver": "bank", "run": "run"}
    parts |= {"epoch": -1, "step": -1, "sequence": 0, "rows": b"", "tensors": [], "fields": {**FIELDS[kind], **changes}}
    envelope = msgpack.packb(parts)
    return HEADER.pack(MAGIC, WIRE_VERSION, len(envelope), _checksum(len(envelope), [envelope])) + envelope


def test_every_text_has_a_bound() -> None:
    texts = {(kind, name) for kind, shape in SHAPES.items() for name, wanted in shape.fields.items() if wanted is str}
    assert texts == {(kind, name) for kind, shape in SHAPES.items() for name in shape.texts}
    assert SHAPES[Kind.CLOSE].texts["reason"] <= 200


@pytest.mark.parametrize(("kind", "name"), TEXTS)
def test_a_text_within_its_bound_arrives_and_one_beyond_it_does_not(kind: Kind, name: str) -> None:
    longest = SHAPES[kind].texts[name]
    assert decode(frame(kind, **{name: "é" * longest})).fields[name] == "é" * longest
    with pytest.raises(ProtocolError, match=rf"{kind}\.{name} of at most {longest} characters, got {longest + 1}"):
        decode(frame(kind, **{name: "x" * (longest + 1)}))


@pytest.mark.parametrize("text", ["a\nerror x", "\r", "\x1b[2J", "\x1b]0;x\x07", "\u202eabc", "\x00", "a\u2028b", "\t"])
@pytest.mark.parametrize(("kind", "name"), TEXTS)
def test_a_text_that_could_forge_a_line_is_refused_and_shown_escaped(kind: Kind, name: str, text: str) -> None:
    with pytest.raises(ProtocolError, match=rf"{kind}\.{name} of printable characters") as refused:
        decode(frame(kind, **{name: text}))
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
@pytest.mark.parametrize(("kind", "name"), [(Kind.HELLO, "rows"), (Kind.HELLO, "resume"), (Kind.READY, "width")])
def test_a_number_beyond_64_bits_is_refused(kind: Kind, name: str, number: int) -> None:
    assert decode(frame(kind, **{name: 2**63 - 1})).fields[name] == 2**63 - 1
    with pytest.raises(ProtocolError, match=rf"{kind}\.{name} of 64 bits"):
        decode(frame(kind, **{name: number}))


def test_the_place_of_a_message_is_said() -> None:
    assert Message(Kind.HELLO, "a", "b", "run", -1, -1, 0).description == "hello"
    assert Message(Kind.EPOCH_END, "a", "b", "run", 2, -1, 0).description == "epoch_end of epoch 2"
    assert Message(Kind.EMBEDDING, "a", "b", "run", 2, 5, 0).description == "embedding of epoch 2, step 5"
