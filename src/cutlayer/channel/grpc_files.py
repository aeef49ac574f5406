"""Files of an exchange over TLS: a partner brings its own to the label owner, and fetches those that are for it.

The label owner listens while its command runs, for the files of all its rounds: a partner that was killed before it
knew that a file had arrived learns it in any later start. What crosses are whole parcels, each signed by its sender.
A file has its name by the certificate of the caller and by its number: nobody chooses a path.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path
from typing import IO, Any, Protocol, Self

import grpc

from cutlayer.channel.grpc_client import MAX_ATTEMPT_SECONDS
from cutlayer.channel.grpc_connection import Connection, Dialler
from cutlayer.channel.grpc_link import FROM_KEY, SERVICE, TO_KEY, Transport, count_of, text_of
from cutlayer.channel.grpc_server import ServerLinks
from cutlayer.channel.parcel import parcel_name
from cutlayer.channel.stream import error_details
from cutlayer.errors import CutlayerError, NotApproved, PeerLost, ProtocolError, RunFolderError
from cutlayer.storage.durable import check_room, create, make_folder, replace_whole, write_whole

BRING_METHOD, FETCH_METHOD, END_METHOD = "Bring", "Fetch", "End"
ROUND_KEY, NUMBER_KEY = "cutlayer-round-bin", "cutlayer-number"
PIECE_BYTES = 1 << 16
CALL_SECONDS = 3600.0
"""Seconds that the transport of a file may take."""
_ROUND_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.~-]{0,99}")
_POLL_SECONDS = 0.1


class Courier(Protocol):
    """Carries the files of a round between this party's folder and those of the other parties."""

    def carry(self, folder: Path, wanted: Path | None = None) -> bool:
        """Carry what there is; returns whether all files of this party have arrived.

        Args:
            folder: Folder of the round.
            wanted: The file of another party that is waited for.
        """

    def missing_reason(self, peer: str) -> str:
        """Why there is no file of a party."""

    def finish(self, folder: Path, peers: Sequence[str], wait: float) -> None:
        """See that a round that has ended here can end at the other parties too."""


class FileServer(ServerLinks):
    """The label owner's end: takes and gives the files of its rounds, to partners of the job alone.

    Args:
        address: As in `ServerLinks`.
        me: Name of the label owner.
        peers: Names of the partners.
        folder: Folder with a folder of files for each round.
        before: Called before a file leaves; raises `NotApproved` where none may.
        options: Fields of `Transport`.
    """

    def __init__(
        self, address: str, me: str, peers: Collection[str], folder: Path, before: Callable[[], None], **options: Any
    ) -> None:
        self._folder, self._before = folder, before
        super().__init__(address, me, peers, "", greet_only=True, **options)

    def service(self, handler_call_details: Any) -> Any:
        """See `ServerLinks.service`."""
        handlers = {
            f"/{SERVICE}/{BRING_METHOD}": self._take,
            f"/{SERVICE}/{FETCH_METHOD}": self._give,
            f"/{SERVICE}/{END_METHOD}": self._end,
        }
        handler = handlers.get(handler_call_details.method)
        if handler is None:
            return super().service(handler_call_details)
        return grpc.stream_stream_rpc_method_handler(handler)

    def carry(self, folder: Path, wanted: Path | None = None) -> bool:
        """Nothing to do: partners call, and their next file shows that they have this party's."""
        return True

    def missing_reason(self, peer: str) -> str:
        """See `Courier.missing_reason`."""
        problem = self.join_problems.get(peer)
        return f"it was refused: {problem}" if problem else "it has not brought it"

    def finish(self, folder: Path, peers: Sequence[str], wait: float) -> None:
        """Listen until each partner has said that the round has ended there too, or the time is over.

        A partner that was killed, or whose answer was lost, does not know that its last file has arrived.
        """
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline and not all(_end_marker(folder, peer).exists() for peer in peers):
            time.sleep(_POLL_SECONDS)

    def _take(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        with self._one_greeting(context):
            name, own = self._asked(context)
            path = own.with_name(parcel_name(name, self._me, int(own.stem.rpartition("~")[2])))
            if not path.exists():  # the first one counts; its sender brings it again if the answer was lost
                try:
                    write_pieces(path, requests)
                except ProtocolError as problem:
                    self._refuse(context, "FAILED_PRECONDITION", str(problem))
                except RunFolderError as problem:  # which names a folder of this machine
                    self._log(str(problem))
                    context.abort(grpc.StatusCode.UNAVAILABLE, f"{self._me} has no room for the file")
        yield from ()

    def _give(self, _: Iterator[bytes], context: Any) -> Iterator[bytes]:
        with self._one_greeting(context):
            path = self._asked(context)[1]
            try:
                self._before()
            except NotApproved as problem:
                context.abort(grpc.StatusCode.UNAVAILABLE, str(problem))
            yield from _read_pieces(path)

    def _end(self, _: Iterator[bytes], context: Any) -> Iterator[bytes]:
        name, own = self._asked(context)
        write_whole(_end_marker(own.parent, name), "")
        yield from ()

    def _asked(self, context: Any) -> tuple[str, Path]:
        """Name of the caller, and the label owner's file that it asks for, or whose answer it brings.

        A partner answers a file by one at most: where there is none, nothing is taken.
        """
        stated = dict(context.invocation_metadata())
        name = self._caller_name(context, text_of(stated.get(FROM_KEY)), text_of(stated.get(TO_KEY)))
        round_, number = text_of(stated.get(ROUND_KEY)) or "", count_of(stated.get(NUMBER_KEY))
        if not _ROUND_PATTERN.fullmatch(round_):
            self._refuse(context, "FAILED_PRECONDITION", "expected the name of a round")
        path = self._folder / round_ / parcel_name(self._me, name, number)
        if not path.exists():
            context.abort(grpc.StatusCode.NOT_FOUND, f"{self._me} has not written file {number} of {round_}")
        return name, path


class FileClient:
    """A partner's end: all of its calls can be repeated.

    Args:
        address: Address where the label owner listens.
        me: Name of this party.
        peer: Name of the label owner.
        before: Called before a file leaves; raises `NotApproved` where none may.
        options: Fields of `Transport`.
    """

    def __init__(self, address: str, me: str, peer: str, before: Callable[[], None], **options: Any) -> None:
        transport = Transport(**options)
        self._me, self._peer, self._before = me, peer, before
        self._dialler = Dialler(address, me, peer, transport)
        self._connection: Connection | None = None
        self._arrived: set[Path] = set()
        self._why = ""

    def carry(self, folder: Path, wanted: Path | None = None) -> bool:
        """See `Courier.carry`.

        Raises:
            TrustError: A certificate is refused.
            ProtocolError: The label owner has another job, or refuses.
            NotApproved: No file may leave.
        """
        files = [*takewhile(Path.exists, (folder / parcel_name(self._me, self._peer, n) for n in count()))]
        try:
            for number, path in enumerate(files):
                if path not in self._arrived:
                    self._before()
                    deque(self._call(BRING_METHOD, folder, number, _read_pieces(path)), 0)
                    self._arrived.add(path)
            if wanted is not None:
                write_pieces(wanted, self._call(FETCH_METHOD, folder, int(wanted.stem.rpartition("~")[2])))
        except PeerLost as problem:
            self._why = str(problem)
        return self._arrived.issuperset(files)

    def missing_reason(self, peer: str) -> str:
        """See `Courier.missing_reason`."""
        return self._why or f"{peer} has not written it"

    def finish(self, folder: Path, peers: Sequence[str], wait: float) -> None:
        """Say once that the round has ended here; where the label owner does not answer, a later start does."""
        with suppress(CutlayerError):
            deque(self._call(END_METHOD, folder, 0), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(self, method: str, folder: Path, number: int, requests: Iterable[bytes] = ()) -> Iterator[bytes]:
        """Call the label owner.

        Raises:
            PeerLost: It does not answer, or has not begun or written that.
        """
        stated = (
            (FROM_KEY, self._me.encode()),
            (TO_KEY, self._peer.encode()),
            (ROUND_KEY, folder.name.encode()),
            (NUMBER_KEY, str(number)),
        )
        if self._connection is None:
            self._connection = self._dialler.dial(MAX_ATTEMPT_SECONDS)
        try:
            method_of = self._connection.channel.stream_stream(f"/{SERVICE}/{method}")
            yield from method_of(iter(requests), metadata=stated, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.NOT_FOUND:
                raise PeerLost(error_details(error)) from None
            self._hang_up()
            raise self._dialler.failure(error) from None


def _end_marker(folder: Path, peer: str) -> Path:
    return folder / f"{peer}~ended"


def _read_pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from pieces_of(file)


def pieces_of(file: IO[bytes]) -> Iterator[bytes]:
    """The pieces of a file; the last one is empty: a file that was cut off has none."""
    while piece := file.read(PIECE_BYTES):
        yield piece
    yield b""


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that another party sends, which has its name once it is whole.

    Raises:
        ProtocolError: It ends before its last piece.
        RunFolderError: The disk is full.
    """

    def write(partial: Path) -> None:
        last = b"?"
        with create(partial) as file:
            for number, piece in enumerate(pieces):
                if number % 64 == 0:
                    check_room(path.parent)
                file.write(piece)
                last = piece
        if last:
            raise ProtocolError.expected(f"the whole of {path.name}", "a part")

    make_folder(path.parent)
    replace_whole(path, write)
