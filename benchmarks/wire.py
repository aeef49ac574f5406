"""One round trip between two processes over mutual TLS: a link of a training against a bare gRPC stream.

The link encodes and checks messages, numbers them, and can repeat them on another connection. The bare stream echoes
bytes: what gRPC and TLS cost by themselves. Two more times say what the link adds to it: a bare stream whose bytes pass
between as many threads as those of a link, and the link's own work on both messages, in a loop without a network.
"""

from __future__ import annotations

import queue
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import torch

from benchmarks import processes
from cutlayer.channel import Kind, Message
from cutlayer.channel.chunks import Assembler, split_frame
from cutlayer.channel.codec import DEFAULT_LIMITS, decode, encode_parts
from cutlayer.channel.grpc_client import ClientLink
from cutlayer.channel.grpc_server import ServerLinks
from cutlayer.channel.port import Port
from cutlayer.channel.security import Security
from cutlayer.channel.tls.authority import Authority, files_in, make_request
from cutlayer.channel.tls.files import Credentials
from cutlayer.errors import PeerLost
from cutlayer.training.process import keep_freed_memory

PARTIES = ("bank", "telco")
SIZES = {"32 KiB": (64, 128, 200), "4 MiB": (8192, 128, 12)}
"""Rows, columns and number of round trips of a block."""
Chunks = queue.SimpleQueue[bytes | None]
_MAX_BYTES = 64 * 2**20
_OPTIONS = (("grpc.max_send_message_length", _MAX_BYTES), ("grpc.max_receive_message_length", _MAX_BYTES))


@dataclass(frozen=True)
class RoundTrip:
    """Times of one size of message.

    Attributes:
        size: Size of the tensor, there and back.
        link_ms: Milliseconds of a round trip over a link, at the median block.
        stream_ms: The same over the bare stream.
        threads_ms: The same over a bare stream with the threads of a link.
        own_ms: Milliseconds in which both messages are made, checked, encoded and decoded in a loop.
        ratio: Median over the blocks of the link's time over that of the bare stream: 1 is no cost of our own.
        threads_ratio: The same of the stream with the threads of a link.
        lowest: Lowest ratio of a block.
        highest: Highest ratio of a block.
        blocks: Number of blocks, each with all sides in turn.
    """

    size: str
    link_ms: float
    stream_ms: float
    threads_ms: float
    own_ms: float
    ratio: float
    threads_ratio: float
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
    """Time all sides in turn, block by block."""
    keep_freed_memory()  # in all four processes, as the command line does
    with tempfile.TemporaryDirectory(prefix="cutlayer-bench-") as scratch:
        folder = Path(scratch)
        make_certificates(folder, *PARTIES)
        with _linked(folder) as link, _streamed(folder) as stream, _threaded(folder) as threads:
            return RoundTrips([_compared(size, (link, stream, threads, _own), repeats) for size in SIZES])


def _compared(size: str, sides: Sequence[Callable[[str], float]], repeats: int) -> RoundTrip:
    for side in sides:
        side(size)
    times = [[side(size) for side in sides] for _ in range(repeats)]
    link_ms, stream_ms, threads_ms, own_ms = (
        round(statistics.median(each) * 1000, 3) for each in zip(*times, strict=True)
    )
    ratios = [ours / bare for ours, bare, *_ in times]
    return RoundTrip(
        size=size,
        link_ms=link_ms,
        stream_ms=stream_ms,
        threads_ms=threads_ms,
        own_ms=own_ms,
        ratio=round(statistics.median(ratios), 3),
        threads_ratio=round(statistics.median(threads / bare for _, bare, threads, _ in times), 3),
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
        ClientLink(address, PARTIES[1], PARTIES[0], security=security_for(folder, PARTIES[1], *PARTIES)) as link,
    ):
        link.open(60.0)

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
    with ServerLinks(
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


def _own(size: str) -> float:
    """Seconds in which the messages of a round trip are made, checked, encoded and decoded, without a network."""
    rows, width, trips = SIZES[size]
    tensors = {"embedding": torch.randn(rows, width)}
    assembler = Assembler(DEFAULT_LIMITS)

    def cross(message: Message) -> None:
        for chunk in split_frame(encode_parts(message, checksum=False)):
            frame = assembler.add(chunk)
            if isinstance(frame, tuple):
                there.deliver(decode(frame, checksum=False))

    here, there = Port(PARTIES[1], PARTIES[0], "run", cross), Port(PARTIES[0], PARTIES[1], "run", cross)
    began = time.perf_counter()
    for step in range(2 * trips):
        here.send(Kind.EMBEDDING, epoch=0, step=step, tensors=tensors)
        there.arrived.popleft()
    return (time.perf_counter() - began) / trips


@contextmanager
def _streamed(folder: Path) -> Iterator[Callable[[str], float]]:
    with _served(_serve_stream, folder) as address:
        channel, _ = security_for(folder, PARTIES[1], *PARTIES).open_channel(address, PARTIES[0], _OPTIONS)
        waiting: Chunks = queue.SimpleQueue()
        answers = channel.stream_stream("/bench/Echo")(iter(waiting.get, None))
        try:
            yield lambda size: _timed(size, waiting, partial(next, answers))
        finally:
            waiting.put(None)
            channel.close()


@contextmanager
def _threaded(folder: Path) -> Iterator[Callable[[str], float]]:
    with _served(_serve_threads, folder) as address:
        channel, _ = security_for(folder, PARTIES[1], *PARTIES).open_channel(address, PARTIES[0], _OPTIONS)
        waiting: Chunks = queue.SimpleQueue()
        arrived: Chunks = queue.SimpleQueue()
        method = channel.stream_stream("/bench/Echo", response_deserializer=partial(_arrive, arrived))
        threading.Thread(target=_pump, args=(method(iter(waiting.get, None)), arrived), daemon=True).start()
        try:
            yield lambda size: _timed(size, waiting, arrived.get)
        finally:
            waiting.put(None)
            channel.close()


def _timed(size: str, waiting: Chunks, answer: Callable[[], object]) -> float:
    rows, width, trips = SIZES[size]
    message = bytes(rows * width * 4)
    began = time.perf_counter()
    for _ in range(trips):
        waiting.put(message)
        answer()
    return (time.perf_counter() - began) / trips


def _serve_stream(pipe: Connection, folder: str) -> None:
    echo = grpc.stream_stream_rpc_method_handler(_echo)
    _serve_bare(pipe, folder, grpc.method_handlers_generic_handler("bench", {"Echo": echo}))


def _serve_threads(pipe: Connection, folder: str) -> None:
    _serve_bare(pipe, folder, _Threaded())


def _serve_bare(pipe: Connection, folder: str, handler: grpc.GenericRpcHandler) -> None:
    keep_freed_memory()
    server = grpc.server(ThreadPoolExecutor(1), options=_OPTIONS)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_secure_port("127.0.0.1:0", security_for(Path(folder), PARTIES[0], *PARTIES).server_credentials())
    server.start()
    pipe.send(f"127.0.0.1:{port}")
    pipe.recv()
    server.stop(None).wait()


def _echo(requests: Iterator[bytes], _context: Any) -> Iterator[bytes]:
    yield from requests


class _Threaded(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Echoes as a link would: the thread that reads wakes that of the party, and this one that of the call."""

    def service(self, handler_call_details: Any) -> Any:
        """A handler with a queue of its own."""
        arrived: Chunks = queue.SimpleQueue()
        return grpc.stream_stream_rpc_method_handler(partial(_echo_by_threads, arrived), partial(_arrive, arrived))


def _echo_by_threads(arrived: Chunks, requests: Iterator[bool], _context: Any) -> Iterator[bytes]:
    leaving: Chunks = queue.SimpleQueue()

    def party() -> None:
        for message in iter(arrived.get, None):
            leaving.put(message)
        leaving.put(None)

    threading.Thread(target=party, daemon=True).start()
    threading.Thread(target=_pump, args=(requests, arrived), daemon=True).start()
    yield from iter(leaving.get, None)


def _arrive(arrived: Chunks, message: bytes) -> bool:
    arrived.put(message)
    return True  # gRPC takes `None` for a failure


def _pump(call: Iterator[bool], arrived: Chunks) -> None:
    """Read from a call until it ends; its deserialiser stores what comes."""
    with suppress(grpc.RpcError):
        for _ in call:
            pass
    arrived.put(None)
