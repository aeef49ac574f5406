"""One round trip between two processes over mutual TLS: a link of a training against a bare gRPC stream.

The link encodes and checks messages, numbers them, and can repeat them on another connection. The bare stream echoes
bytes: what gRPC and TLS cost by themselves.
"""

from __future__ import annotations

import queue
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import torch

from benchmarks import processes
from cutlayer.certificates import Credentials
from cutlayer.certificates.authority import Authority, files_in, make_request
from cutlayer.channel import Kind
from cutlayer.channel.grpc_client import connect
from cutlayer.channel.grpc_server import serve
from cutlayer.channel.security import Security
from cutlayer.errors import PeerLost
from cutlayer.training.process import keep_freed_memory

PARTIES = ("bank", "telco")
SIZES = {"32 KiB": (64, 128, 200), "4 MiB": (8192, 128, 12)}
"""Rows, columns and number of round trips of a block."""
_MAX_BYTES = 64 * 2**20
_OPTIONS = (("grpc.max_send_message_length", _MAX_BYTES), ("grpc.max_receive_message_length", _MAX_BYTES))


@dataclass(frozen=True)
class RoundTrip:
    """Times of one size of message.

    Attributes:
        size: Size of the tensor, there and back.
        link_ms: Milliseconds of a round trip over a link, at the median block.
        stream_ms: The same over the bare stream.
        ratio: Median over the blocks of the link's time over that of the bare stream: 1 is no cost of our own.
        lowest: Lowest ratio of a block.
        highest: Highest ratio of a block.
        blocks: Number of blocks, each with both sides in turn.
    """

    size: str
    link_ms: float
    stream_ms: float
    ratio: float
    lowest: float
    highest: float
    blocks: int


@dataclass(frozen=True)
class RoundTrips:
    """Times of all sizes.

    Attributes:
        sizes: One entry for each size.
    """

    sizes: list[RoundTrip]


def wire(repeats: int) -> RoundTrips:
    """Time both sides in turn, block by block."""
    keep_freed_memory()  # in all four processes, as the command line does
    with tempfile.TemporaryDirectory(prefix="cutlayer-bench-") as scratch:
        folder = Path(scratch)
        make_certificates(folder, *PARTIES)
        with _linked(folder) as link, _streamed(folder) as stream:
            return RoundTrips([_compared(size, link, stream, repeats) for size in SIZES])


def _compared(size: str, link: Callable[[str], float], stream: Callable[[str], float], repeats: int) -> RoundTrip:
    link(size)
    stream(size)
    times = [(link(size), stream(size)) for _ in range(repeats)]
    ratios = [ours / bare for ours, bare in times]
    return RoundTrip(
        size=size,
        link_ms=round(statistics.median(ours for ours, _ in times) * 1000, 3),
        stream_ms=round(statistics.median(bare for _, bare in times) * 1000, 3),
        ratio=round(statistics.median(ratios), 3),
        lowest=round(min(ratios), 3),
        highest=round(max(ratios), 3),
        blocks=repeats,
    )


def make_certificates(folder: Path, active: str, passive: str) -> None:
    """Write the certificates of two parties of the federation `bench`, for a day."""
    authority = Authority.create(folder, "bench", active)
    authority.invite(passive)
    _, request = make_request(folder, "bench", passive)
    authority.sign(request, 1, folder / f"{passive}.pem")


def security_for(folder: Path, party: str, *parties: str) -> Security:
    """One party's certificate in a folder, and the identities of all parties."""
    return Security(Credentials(files_in(folder, party)), {name: f"spiffe://bench/{name}" for name in parties})


@contextmanager
def _served(target: Callable[..., None], folder: Path) -> Iterator[str]:
    """A server in a process of its own; yields its address."""
    pipe, other = processes.context.Pipe()
    process = processes.context.Process(target=target, args=(other, str(folder)), daemon=True)
    process.start()
    try:
        yield str(pipe.recv())
    finally:
        pipe.send("stop")
        process.join(10)


@contextmanager
def _linked(folder: Path) -> Iterator[Callable[[str], float]]:
    with (
        _served(_serve_link, folder) as address,
        connect(address, PARTIES[1], PARTIES[0], security=security_for(folder, PARTIES[1], *PARTIES)) as link,
    ):

        def block(size: str) -> float:
            rows, width, trips = SIZES[size]
            tensors = {"embedding": torch.randn(rows, width)}
            began = time.perf_counter()
            for step in range(trips):
                link.port.send(Kind.EMBEDDING, epoch=0, step=step, tensors=tensors)
                link.receive(link.port)
            return (time.perf_counter() - began) / trips

        yield block


def _serve_link(pipe: Connection, folder: str) -> None:
    keep_freed_memory()
    torch.set_num_threads(1)
    with serve(
        "127.0.0.1:0", *PARTIES[:1], PARTIES[1:], "run", security=security_for(Path(folder), PARTIES[0], *PARTIES)
    ) as links:
        pipe.send(links.address)
        port = links.ports[PARTIES[1]]
        while not pipe.poll():
            try:
                message = links.receive(port, 60)
            except PeerLost:
                return
            gradient = {"gradient": message.tensors["embedding"]}
            port.send(Kind.GRADIENT, epoch=0, step=message.step, tensors=gradient)


@contextmanager
def _streamed(folder: Path) -> Iterator[Callable[[str], float]]:
    with _served(_serve_stream, folder) as address:
        channel, _ = security_for(folder, PARTIES[1], *PARTIES).open_channel(address, PARTIES[0], _OPTIONS)
        waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        answers = channel.stream_stream("/bench/Echo")(iter(waiting.get, None))

        def block(size: str) -> float:
            rows, width, trips = SIZES[size]
            message = bytes(rows * width * 4)
            began = time.perf_counter()
            for _ in range(trips):
                waiting.put(message)
                next(answers)
            return (time.perf_counter() - began) / trips

        try:
            yield block
        finally:
            waiting.put(None)
            channel.close()


def _serve_stream(pipe: Connection, folder: str) -> None:
    keep_freed_memory()
    server = grpc.server(ThreadPoolExecutor(1), options=_OPTIONS)
    echo = grpc.stream_stream_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", {"Echo": echo}),))
    port = server.add_secure_port("127.0.0.1:0", security_for(Path(folder), PARTIES[0], *PARTIES).server_credentials())
    server.start()
    pipe.send(f"127.0.0.1:{port}")
    pipe.recv()
    server.stop(None).wait()


def _echo(requests: Iterator[bytes], _context: Any) -> Iterator[bytes]:
    yield from requests
