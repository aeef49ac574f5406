"""A port: what it stamps, what it drops, what it refuses."""

from dataclasses import replace

import pytest
import torch

from cutlayer.channel import Kind, Port, link
from cutlayer.errors import ProtocolError


@pytest.fixture
def ends():
    return link("bank", "telco", "run")


def end(port, **stamp):
    return port.send(Kind.EPOCH_END, fields={"stop": False, "best": True}, **stamp)


def test_messages_are_counted_from_zero_in_each_direction(ends):
    bank, telco = ends
    assert [end(bank).sequence, end(bank).sequence, end(telco).sequence] == [0, 1, 0]
    assert [message.sequence for message in telco.arrived] == [0, 1]
    assert bank.sent[Kind.EPOCH_END] == 2


def test_a_repeated_message_is_dropped(ends):
    bank, telco = ends
    first = end(bank, epoch=0)
    end(bank, epoch=1)
    telco.deliver(first)
    assert [message.epoch for message in telco.arrived] == [0, 1]


def test_a_message_of_a_file_is_the_next_one_or_refused():
    telco = Port("telco", "bank", "run", lambda message: None)
    sent = []
    bank = Port("bank", "telco", "run", sent.append)
    for epoch in range(3):
        end(bank, epoch=epoch)
    assert [telco.take(message).epoch for message in sent[:2]] == [0, 1]
    for again, got in (
        (sent[1], "message 1 again"),
        (replace(sent[2], run="x"), "'x'"),
        (replace(sent[2], sequence=3), "message 3"),
    ):
        with pytest.raises(ProtocolError, match=got):
            telco.take(again)
    assert telco.take(sent[2]).epoch == 2


def test_a_missing_message_is_an_error(ends):
    bank, telco = ends
    first = end(bank)
    with pytest.raises(ProtocolError, match="expected message 1 from bank, got message 2; a message was lost"):
        telco.deliver(replace(first, sequence=2))


@pytest.mark.parametrize("stamp", [{"run": "another"}, {"sender": "telco"}, {"receiver": "bank"}, {"sender": "eve"}])
def test_a_message_of_another_run_or_party_is_an_error(ends, stamp):
    bank, telco = ends
    first = end(bank)
    with pytest.raises(ProtocolError, match="expected a message bank -> telco of run run"):
        telco.deliver(replace(first, sequence=1, **stamp))
    assert len(telco.arrived) == 1


def test_what_is_sent_fits_its_kind(ends):
    bank, _ = ends
    with pytest.raises(ProtocolError, match="gradient"):
        bank.send(Kind.GRADIENT)
    with pytest.raises(ProtocolError, match=r"float32 with 2 axes, got torch.float64 \(2, 2\)"):
        bank.send(Kind.GRADIENT, tensors={"gradient": torch.zeros(2, 2, dtype=torch.float64)})
    with pytest.raises(ProtocolError, match="stop of type bool"):
        bank.send(Kind.EPOCH_END, fields={"stop": 1, "best": True})


def test_a_sent_tensor_is_detached_contiguous_and_counted(ends):
    bank, telco = ends
    weight = torch.ones(3, 4, requires_grad=True)
    bank.send(Kind.GRADIENT, tensors={"gradient": weight.t()})
    arrived = telco.arrived[0].tensors["gradient"]
    assert arrived.is_contiguous()
    assert not arrived.requires_grad
    assert bank.traffic[0].total() == telco.traffic[1].total() == 48
