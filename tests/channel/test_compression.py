"""Compressed links: what crosses, what a receiver reads, and peers that send another form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from cutlayer.channel import Kind, Message, Port, link
from cutlayer.channel.codec import decode, encode
from cutlayer.channel.compression import Compression
from cutlayer.errors import ProtocolError
from cutlayer.kernels.rows.packed_rows import Form

FORMS: tuple[Form, ...] = ("float16", "bfloat16", "int8")
KEY = bytes(range(32))
X = torch.randn(5, 3, generator=torch.Generator().manual_seed(3))


def pair(form: Form | None, other: Form | None = None) -> tuple[Port, Port]:
    here, there = link("telco", "bank", "run")
    for port, own in ((here, form), (there, other or form)):
        port.compression = None if own is None else Compression(own, KEY)
    return here, there


def over_the_wire(message: Message) -> Message:
    return decode(encode(message))


@pytest.mark.parametrize("form", FORMS)
def test_sender_receiver_and_wire_agree_on_every_bit(form: Form) -> None:
    here, there = pair(form)
    crossed: list[Message] = []
    here.record = crossed.append
    sent = here.send(Kind.EMBEDDING, epoch=0, step=1, rows=bytes(16), tensors={"embedding": X})
    read = there.arrived.popleft()
    assert torch.equal(sent.tensors["embedding"], read.tensors["embedding"])
    assert read.tensors["embedding"].dtype == torch.float32
    (packed,) = crossed
    assert packed.tensors["embedding"].dtype == torch.uint8
    assert here.traffic[0].total() == there.traffic[1].total() == packed.nbytes < X.nbytes
    again = pair(form)[1]
    again.deliver(over_the_wire(packed))
    assert torch.equal(again.arrived.popleft().tensors["embedding"], read.tensors["embedding"])


def test_what_crosses_is_a_function_of_what_the_protections_returned() -> None:
    """Post-processing: the inspection sees the released numbers, and nothing else goes into the packed ones."""
    seen: list[Message] = []
    packed: list[Message] = []
    for _ in range(2):
        here, _ = pair("int8")
        here.inspect, here.record = seen.append, packed.append
        here.send(Kind.GRADIENT, epoch=0, step=1, tensors={"gradient": X.clone()})
    assert all(torch.equal(message.tensors["gradient"], X) for message in seen)
    assert torch.equal(packed[0].tensors["gradient"], packed[1].tensors["gradient"])
    other, _ = pair("int8")
    other.compression = Compression("int8", bytes(32))
    other.record = packed.append
    other.send(Kind.GRADIENT, epoch=0, step=1, tensors={"gradient": X})
    assert not torch.equal(packed[0].tensors["gradient"], packed[2].tensors["gradient"])


def test_other_messages_cross_as_they_are() -> None:
    here, there = pair("int8")
    here.send(Kind.IDS, tensors={"digests": torch.zeros(2, 16, dtype=torch.uint8)}, fields={"last": True})
    here.send(Kind.LOOKED_UP, tensors={"embedding": X, "status": torch.zeros(5, dtype=torch.uint8)})
    assert torch.equal(there.arrived[1].tensors["embedding"], X)


@pytest.mark.parametrize(
    ("tensor", "form"),
    [
        (X, "int8"),
        (torch.zeros(5, 3, dtype=torch.uint8), "int8"),
        (torch.zeros(5, 5, dtype=torch.uint8), "float16"),
        (torch.zeros(5, 7, dtype=torch.uint8), None),
    ],
)
def test_a_peer_that_sends_another_form_is_refused(tensor: torch.Tensor, form: Form | None) -> None:
    _, there = pair(form)
    message = Message(Kind.EMBEDDING, "telco", "bank", "run", 0, 0, 0, b"", {"embedding": tensor})
    with pytest.raises(ProtocolError, match=r"embedding(\.embedding)? from telco as (int8 rows|float16 rows|float32)"):
        there.deliver(over_the_wire(message))
    assert not there.arrived


def test_packed_rows_of_other_kinds_or_types_are_no_message() -> None:
    packed: dict[str, Any] = {"embedding": torch.zeros(5, 7, dtype=torch.uint8), "status": torch.zeros(5).byte()}
    with pytest.raises(ProtocolError, match=r"looked_up\.embedding"):
        Message(Kind.LOOKED_UP, "telco", "bank", "run", 0, 0, 0, b"", packed).checked()
    flat = {"embedding": torch.zeros(5, dtype=torch.uint8)}
    with pytest.raises(ProtocolError, match="2 axes"):
        replace(Message(Kind.EMBEDDING, "telco", "bank", "run", 0, 0, 0), tensors=flat).checked()
