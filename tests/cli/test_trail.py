"""`cutlayer trail`: a page for a reader who does not know the protocol."""

from __future__ import annotations

import os

import pytest

from cutlayer.channel.kinds import Kind, meaning_of
from cutlayer.channel.message import Message
from cutlayer.channel.trail import Trail
from tests.channel.test_trail import TAMPERINGS, write


def test_every_kind_of_message_is_explained():
    assert all(kind.meaning and meaning_of(kind.value) == kind.meaning for kind in Kind)
    assert meaning_of("hail") == "unknown to this version"


def test_an_intact_trail(place):
    write(place.folder / "telco.key.trail")
    result = place.call("trail", "show", "telco.key.trail")
    assert result.code == 0
    assert "guarantee: dp_embedding: epsilon 1.8" in result.out
    assert "to bank:" in result.out
    assert "5 x embedding " in result.out
    assert "numbers computed from the columns of training rows" in result.out
    assert "the record is intact: 7 lines of 1 start, last hash" in result.out
    assert place.call("trail", "verify", "telco.key.trail").code == 0
    document = place.call("trail", "verify", "telco.key.trail", "--json").document()
    assert (document["intact"], document["lines"], document["problems"]) == (True, 7, [])
    (start,) = place.call("trail", "show", "telco.key.trail", "--json").document()["starts"]
    assert start["sent"][0] == {"to": "bank", "kind": "embedding", "messages": 5, "bytes": 160}


def test_what_a_start_promises_is_written_out_where_it_changes(place):
    for _ in range(2):
        write(place.folder / "telco.key.trail")
    result = place.call("trail", "show", "telco.key.trail")
    assert (result.out.count("  guarantee: "), result.out.count("  guarantees and limits: as above")) == (1, 1)


@pytest.mark.parametrize("verb", ["show", "verify"])
def test_a_trail_that_was_changed(place, verb):
    TAMPERINGS["a removed line"](write(place.folder / "telco.key.trail"))
    result = place.call("trail", verb, "telco.key.trail")
    assert result.code == 2
    assert "changed: 000001.jsonl, line 4: it was changed, or a line before it was removed" in result.out
    assert "the record was changed" in result.out


def test_a_run_id_of_another_party_cannot_write_lines(place):
    run = "x\n  guarantee: dp_embedding: epsilon 0\x1b[2J\u2028  to nobody"
    trail = Trail(place.folder / "telco.key.trail", {"party": "telco", "job": "loans"})
    trail.record(Message(Kind.CLOSE, "telco", "bank", run, -1, -1, 0, fields={"reason": "done"}))
    trail.close()
    lines = place.call("trail", "show", "telco.key.trail").out.splitlines()
    (line,) = [line for line in lines if "epsilon 0" in line or "to nobody" in line]
    assert line.startswith("  job loans, digest")
    assert "\x1b" not in line


@pytest.mark.parametrize("verb", ["show", "verify"])
def test_no_trail(place, verb):
    result = place.call("trail", verb, "nowhere")
    assert (result.code, result.out) == (2, "")
    assert "expected the files of an egress trail in nowhere, got none" in result.error


@pytest.mark.parametrize("verb", ["show", "verify"])
def test_a_trail_of_somebody_else_leads_nowhere_and_ends(place, verb):
    folder = place.folder / "telco.key.trail"
    write(folder).rename(place.folder / "other.jsonl")
    (folder / "000001.jsonl").symlink_to(place.folder / "other.jsonl")
    assert "000001.jsonl: expected consent before it leads to" in place.call("trail", verb, folder).error
    (folder / "000001.jsonl").unlink()
    os.mkfifo(folder / "000001.jsonl")
    assert "a device or pipe at" in place.call("trail", verb, folder).error
    (folder / "000001.jsonl").unlink()
    with (folder / "000001.jsonl").open("wb") as file:  # a line that takes a gigabyte of memory, and no disk
        file.truncate(1 << 30)
    result = place.call("trail", verb, folder)
    assert (result.code, "000001.jsonl, line 1: it was changed" in result.out) == (2, True)
