"""A load generator for the HTTP service: as many connections as asked, each with one request after the other."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

IDS = range(1, 40_000)
WARM_UP = 0.5
"""Seconds whose answers are not counted: all connections are made in them, at once."""


@dataclass
class Load:
    """What a load generator saw.

    Attributes:
        seconds: Time of each answer after the warm-up.
        degraded: Whether each answer was without a party.
        failures: Answers that were no 200, and broken connections.
        took: Seconds of the load, without the warm-up.
    """

    seconds: list[float] = field(default_factory=list)
    degraded: list[bool] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    took: float = 0.0


def generate(url: str, connections: int, rows: int, stop: Callable[[], bool], ids: range = IDS) -> Load:
    """Ask until `stop` says so.

    Args:
        url: Address of the service, `http://HOST:PORT`.
        connections: Number of requests that are under way at once.
        rows: Number of ids of a request, drawn at random; several are answered as columns.
        stop: Asked before every request.
        ids: Ids to draw from.
    """
    load, draw = Load(), random.Random(1)
    shape = {"answer": "columns"} if rows > 1 else {}
    bodies = [json.dumps({"ids": draw.sample(ids, rows), **shape}).encode() for _ in range(512)]
    began = time.monotonic()
    asyncio.run(_all(url, connections, bodies, stop, load))
    load.took = time.monotonic() - began - WARM_UP
    return load


def generate_for(url: str, connections: int, rows: int, seconds: float, answer: Any) -> None:
    """`generate` for some time, in a process of its own; the result goes to a queue."""
    until: list[float] = []

    def stop() -> bool:
        # From the first request on: to draw the bodies takes seconds on a busy machine.
        until[:] = until or [time.monotonic() + seconds]
        return time.monotonic() > until[0]

    answer.put(generate(url, connections, rows, stop))


def generate_until(url: str, connections: int, rows: int, event: Any, answer: Any, ids: range) -> None:
    """`generate` until an event is set, in a process of its own; the result goes to a queue."""
    answer.put(generate(url, connections, rows, event.is_set, ids))


async def _all(url: str, connections: int, bodies: list[bytes], stop: Callable[[], bool], load: Load) -> None:
    host, _, port = url.removeprefix("http://").rpartition(":")
    shares = [bodies[number::connections] or bodies for number in range(connections)]
    await asyncio.gather(*(_one(host, int(port), share, stop, load) for share in shares))


async def _one(host: str, port: int, bodies: list[bytes], stop: Callable[[], bool], load: Load) -> None:
    turn, began = 0, time.monotonic()
    reader, writer = await asyncio.open_connection(host, port)
    while not stop():
        body = bodies[turn % len(bodies)]
        turn += 1
        sent = time.monotonic()
        head = f"POST /v1/predict HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        try:
            status, answer = await _response(reader)
        except (OSError, asyncio.IncompleteReadError) as failure:
            load.failures.append(repr(failure))
            reader, writer = await asyncio.open_connection(host, port)
            continue
        if sent - began > WARM_UP:
            load.seconds.append(time.monotonic() - sent)
            load.degraded.append(b'"degraded":true' in answer[:80])
        if status != 200:
            load.failures.append(f"{status}: {answer[:200].decode(errors='replace')}")
    writer.close()


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length"))
    return int(lines[0].split()[1]), await reader.readexactly(length)
