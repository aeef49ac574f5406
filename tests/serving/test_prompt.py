"""A connection without a request is closed, so that none keeps callers away; an answer is sent at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cutlayer_serve import prompt
from cutlayer_serve.process import _uvicorn
from tests.serving.world import private

HEAD = b"GET / HTTP/1.1\r\nHost: here\r\n"
BEGINNINGS = {
    "nothing": [],
    "half a head": [HEAD],
    "line breaks after an answer": [HEAD + b"\r\n", b"\r\n"],
    "half a head after an answer": [HEAD + b"\r\n", HEAD],
}


async def app(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to the HTTP server as `serve` runs it, with another application."""
    server = _uvicorn(app, private(http={"address": "127.0.0.1:0"}).serve)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield reader, writer
    writer.close()
    server.should_exit = True
    await task


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_connection_that_sends_no_whole_head_is_closed(beginning: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with connected() as (reader, writer):
            for number, part in enumerate(BEGINNINGS[beginning], start=1):
                if number == len(BEGINNINGS[beginning]):
                    monkeypatch.setattr(prompt, "HEAD_SECONDS", 0.01)
                writer.write(part)
                if part.endswith(b"\r\n\r\n"):
                    await reader.readuntil(b"ok")
            async with asyncio.timeout(20):  # shorter than keep-alive, which closes an idle connection
                assert not await reader.read()

    if len(BEGINNINGS[beginning]) < 2:
        monkeypatch.setattr(prompt, "HEAD_SECONDS", 0.01)
    asyncio.run(check())


def test_a_head_that_comes_stops_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with connected() as (reader, writer):
            for _ in range(2):
                writer.write(HEAD)
                writer.write(b"\r\n")
                assert b"ok" in await reader.readuntil(b"ok")

    asyncio.run(check())


class Recorded:
    """A transport that records what is done with it."""

    def __init__(self) -> None:
        self.done: list[bytes | str] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("closed")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing


def test_what_is_written_in_one_turn_is_sent_at_once_and_before_the_end() -> None:
    async def check() -> None:
        recorded = Recorded()
        joined = prompt.JoinedWrites(recorded, asyncio.get_running_loop())
        for turn in ((b"head, ", b"body"), (b"next",)):
            for part in turn:
                joined.write(part)
            await asyncio.sleep(0)
        assert recorded.done == [b"head, body", b"next"]
        assert not joined.is_closing()
        joined.write(b"last")
        joined.close()
        joined.write(b"too late")
        await asyncio.sleep(0)
        assert recorded.done == [b"head, body", b"next", b"last", "closed"]

    asyncio.run(check())


def test_head_and_body_of_an_answer_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    send = prompt.JoinedWrites._send

    def recorded(self: prompt.JoinedWrites) -> None:
        writes.append(b"".join(self._waiting))
        send(self)

    async def check() -> None:
        async with connected() as (reader, writer):
            writer.write(HEAD + b"\r\n")
            await reader.readuntil(b"ok")

    monkeypatch.setattr(prompt.JoinedWrites, "_send", recorded)
    asyncio.run(check())
    answers = [*filter(None, writes)]
    assert len(answers) == 1
    assert answers[0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert answers[0].endswith(b"\r\n\r\nok")
