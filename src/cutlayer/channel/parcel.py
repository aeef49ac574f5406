"""A file with messages of one party to another, for parties between which no connection is open.

parcel  = magic, length and content of the head, then length and content of each frame, a length of 0, and the seal
lengths = uint32, little-endian
head    = a msgpack map: see `Head`
frame   = a message as it crosses a connection: see `codec`
seal    = a msgpack map: SHA-256 of all before it, the sender's certificates in PEM, and its signature of both; the last
          two are empty where the parties have no certificates
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Self, TypeVar

import msgpack
from pydantic import AfterValidator, ConfigDict, Field, StrictBytes, StrictInt, StrictStr, TypeAdapter

from cutlayer.channel.codec import DEFAULT_LIMITS, decode, encode, printable_name
from cutlayer.channel.message import Message
from cutlayer.channel.security import Security
from cutlayer.channel.tls.signing import check_signature, sign
from cutlayer.errors import ProtocolError, RunFolderError, TrustError
from cutlayer.storage.durable import check_output, create, make_folder, sync_file, sync_folder
from cutlayer.version import __version__

MAGIC = b"CUTPARC1"
_SIGNED = b"cutlayer parcel 1\n"
_LENGTH = struct.Struct("<I")
MAX_TEXT_LENGTH = 64
"""Maximum length of each text of the head, in characters."""
_MAX_MAP_BYTES = 2**16
"""Maximum size of the head and of the seal, in bytes."""
_GROUP_BYTES = 2**20
"""Size from which on frames that follow each other are checked, and then decoded, in bytes."""
_Text = Annotated[StrictStr, Field(min_length=1, max_length=MAX_TEXT_LENGTH), AfterValidator(printable_name)]
T = TypeVar("T")


def parcel_name(sender: str, receiver: str, number: int) -> str:
    """Name of the file of a parcel in a folder that parties exchange."""
    return f"{sender}~{receiver}~{number}.cutlayer"


@dataclass(frozen=True)
class Head:
    """Who sent a parcel to whom.

    Attributes:
        sender: Name of the party that wrote it.
        receiver: Name of the party that it is for.
        run: Id of the run of its messages.
        number: Number of the parcel among those of the sender to the receiver in the run, from 0.
        made: Day and time at which it was begun, UTC.
        version: Version of this package that wrote it.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    sender: _Text
    receiver: _Text
    run: _Text
    number: Annotated[StrictInt, Field(ge=0)] = 0
    made: _Text = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}")
    version: _Text = field(default=__version__)


@dataclass(frozen=True)
class _Seal:
    """The seal at the end of a parcel."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    digest: StrictBytes
    signature: StrictBytes
    chain: StrictBytes


class ParcelWriter:
    """Writes a parcel, in a `with` block; the file has its name only once the block ends without an error.

    Args:
        path: Path of the file.
        head: Who sends it to whom.
        security: Certificates of the sender; `None` for a file without a signature.

    Raises:
        RunFolderError: The file exists.
    """

    def __init__(self, path: Path, head: Head, security: Security | None) -> None:
        check_output(path)
        self.path, self._head, self._security = path, head, security
        self._partial = path.with_name(f"{path.name}.partial")
        self._hasher = hashlib.sha256()
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        make_folder(self.path.parent)
        self._partial.unlink(missing_ok=True)
        self._file = create(self._partial)
        self._write(MAGIC)
        self._write_block(msgpack.packb(asdict(self._head)))
        return self

    def add(self, message: Message) -> None:
        """Append a message."""
        self._write_block(encode(message))

    def __exit__(self, kind: object, *_: object) -> None:
        if self._file is None:
            return
        if kind is None:
            self._write(_LENGTH.pack(0))
            digest = self._hasher.digest()
            signature = b""
            chain = b""
            if self._security is not None:
                loaded = self._security.credentials.current()
                chain = loaded.chain_pem
                signature = sign(loaded, _SIGNED + digest + chain)
            self._write(msgpack.packb({"digest": digest, "signature": signature, "chain": chain}))
        self._file.close()
        if kind is not None:
            self._partial.unlink(missing_ok=True)
            return
        sync_file(self._partial)
        self._partial.replace(self.path)
        sync_folder(self.path.parent)

    def _write_block(self, content: bytes) -> None:
        self._write(_LENGTH.pack(len(content)))
        self._write(content)

    def _write(self, content: bytes) -> None:
        assert self._file is not None  # noqa: S101 - within the `with` block
        self._hasher.update(content)
        self._file.write(content)


class Parcel:
    """A parcel that was checked as a whole: by its digest, and by the signature of its sender.

    What is read later on is compared with what was checked, some frames at a time and before any of them is decoded: a
    file in a shared folder may be replaced.

    Args:
        path: Path of the file.
        receiver: Name of the party that reads it.
        security: Certificates of the receiver, and the identities of all parties; `None` to take a file that nobody
            signed, which only its digest protects.

    Attributes:
        head: Who sent it to whom.
        digest: SHA-256 of its content.

    Raises:
        RunFolderError: It cannot be read.
        ProtocolError: It is no parcel, damaged or cut off, or for another party.
        TrustError: It is not signed by the party that it names as its sender.
    """

    def __init__(self, path: Path, receiver: str, security: Security | None) -> None:
        self.path = path
        self._marks: list[bytes] = []
        with self._opened() as file:
            self.head, self.digest, seal = self._scanned(file)
        if self.head.receiver != receiver:
            raise ProtocolError.expected(f"{path}: messages to {receiver}", f"messages to {self.head.receiver}")
        if security is not None:
            self._check_seal(seal, security)

    def _check_seal(self, seal: _Seal, security: Security) -> None:
        sender = self.head.sender
        if not seal.signature:
            remedy = "have it written without --plaintext"
            raise TrustError.expected(f"{self.path}: the signature of {sender}", "none", remedy)
        if sender not in security.identities:
            raise TrustError.expected(f"{self.path}: messages of a party of the job", f"messages of {sender}")
        loaded = security.credentials.current()
        signed = _SIGNED + self.digest + seal.chain
        check_signature(seal.chain, seal.signature, signed, loaded, security.identities[sender], str(self.path))

    def messages(self) -> Iterator[Message]:
        """The messages, one at a time in memory.

        Raises:
            ProtocolError: A frame is no message, or the file was changed since it was checked.
            RunFolderError: The file cannot be read any more.
        """
        with self._opened() as file:
            hasher = hashlib.sha256()
            self._beginning(file, hasher)
            for mark, group in zip(self._marks, self._groups(file, hasher), strict=False):
                if hasher.digest() != mark:
                    raise self._damaged()
                for block in group:
                    yield decode(block)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """The file, which must be a regular one: reading a pipe might never end."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise ProtocolError.expected(f"{self.path}: a file", "a folder or a device")
                yield file
        except OSError as failure:
            raise RunFolderError(f"{self.path} cannot be read: {failure.strerror}") from None

    def _scanned(self, file: BinaryIO) -> tuple[Head, bytes, _Seal]:
        """Head, digest and seal, after a check of the digest."""
        hasher = hashlib.sha256()
        raw = self._beginning(file, hasher)
        for _ in self._groups(file, hasher):
            self._marks.append(hasher.digest())
        heads, seals = _adapters()
        read, seal = self._map(raw, heads), self._map(file.read(_MAX_MAP_BYTES + 1), seals)
        if seal.digest != hasher.digest():
            raise self._damaged()
        if read.version != __version__:
            wanted = f"{self.path}: a file of cutlayer {__version__}"
            raise ProtocolError.expected(wanted, ascii(read.version)[:20], "install the same version at all parties")
        return read, seal.digest, seal

    def _beginning(self, file: BinaryIO, hasher: Any) -> bytes:
        """The head, packed."""
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            raise ProtocolError.expected(f"{self.path}: a file of cutlayer release or align --exchange", "another file")
        hasher.update(magic)
        return self._block(file, _MAX_MAP_BYTES, hasher)

    def _groups(self, file: BinaryIO, hasher: Any) -> Iterator[list[bytes]]:
        """All frames, some at a time; `hasher` has then read all up to the last of them, or the end."""
        group: list[bytes] = []
        size = 0
        while block := self._block(file, DEFAULT_LIMITS.frame_bytes, hasher):
            group.append(block)
            size += _LENGTH.size + len(block)
            if size >= _GROUP_BYTES:
                yield group
                group = []
                size = 0
        yield group

    def _block(self, file: BinaryIO, most: int, hasher: Any) -> bytes:
        raw = file.read(_LENGTH.size)
        if len(raw) < _LENGTH.size:
            raise self._damaged()
        (length,) = _LENGTH.unpack(raw)
        if length > most:
            raise self._damaged()
        content = file.read(length)
        if len(content) < length:
            raise self._damaged()
        hasher.update(raw)
        hasher.update(content)
        return content

    def _map(self, raw: bytes, adapter: TypeAdapter[T]) -> T:
        try:
            read = msgpack.unpackb(raw, strict_map_key=True, max_ext_len=0, max_map_len=8)
            return adapter.validate_python(read)
        except (ValueError, msgpack.UnpackException):
            raise self._damaged() from None

    def _damaged(self) -> ProtocolError:
        return ProtocolError(f"{self.path}: it is cut off or was changed on the way; ask for it again")


@cache  # to make them takes longer than to read a file
def _adapters() -> tuple[TypeAdapter[Head], TypeAdapter[_Seal]]:
    return TypeAdapter(Head), TypeAdapter(_Seal)
