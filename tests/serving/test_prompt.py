"""A connection without a request is closed, so that none keeps callers away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cutlayer.serving.online import prompt
from cutlayer.serving.online.process import _uvicorn
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
