"""An alignment by files in a folder: each start of the command goes as far as the files of the other parties allow.

Every start repeats the protocol from its beginning on the messages that have come, with the same random numbers, and
writes the messages that are new. So nothing is held open between two starts, however long they are apart. What has
come once is recorded in a private folder: a peer that replaced a file could otherwise have more than one answer under
the same secret scalar.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from filecmp import cmp
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, TypeVar

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from pydantic import AwareDatetime, BaseModel, Field

from cutlayer.channel import Message, Port
from cutlayer.channel.grpc_files import Courier
from cutlayer.channel.parcel import Head, Parcel, ParcelWriter, parcel_name
from cutlayer.channel.security import Security
from cutlayer.channel.trail import Trail, content_digest
from cutlayer.config import Job
from cutlayer.errors import ProtocolError, RunFolderError, TrustError
from cutlayer.parties.drive.drive import drive
from cutlayer.storage.durable import check_output, create, locked, make_folder, replace_whole, write_whole

R = TypeVar("R")
RECORD_FILE = "exchange.json"
_LOCK, _HOLDER = "exchange.lock", "another start of this command"
_POLL_SECONDS = 0.5


class WaitingForFile(Exception):
    """The next file has not come yet.

    Attributes:
        path: The file.
        sender: The party that it is from, or that has to take it.
        written: Files that this start wrote, to be brought to the other parties.
        why: Why it has not come by TLS; empty in a folder that all parties see.
    """

    def __init__(self, path: Path, sender: str, written: tuple[Path, ...], why: str = "") -> None:
        super().__init__(f"waiting for {path}")
        self.path, self.sender, self.written, self.why = path, sender, written, why


def exchange_result(private: Path, inputs: str | None = None) -> dict[str, Any] | None:
    """The result of an exchange that has ended; `None` where it goes on, or is one of other inputs.

    Args:
        private: Folder of a party's record of the exchange.
        inputs: As of `Exchange`; `None` for any.
    """
    try:
        record = RoundRecord.read(private)
    except (OSError, ValueError):
        return None
    return record.result if record.ended and inputs in (None, record.inputs) else None


class RoundRecord(BaseModel):
    """A party's record of an exchange, in a file.

    Attributes:
        run: Name of the run that the files are of; empty where it was closed without the other parties.
        key: Key of this party's random numbers, in hexadecimal; empty where it has ended.
        inputs: As of `Exchange`; empty where it was closed without the other parties.
        sent: Digests of the messages that were sent, by receiver.
        parcels: Number of files that were written, by receiver: every party that takes part.
        received: Digests of the files that came, by sender.
        begun: When it began.
        ended: Whether it has ended.
        result: As of `Exchange.end`; `None` where it goes on.
    """

    run: str = ""
    key: str = ""
    inputs: str = ""
    sent: dict[str, list[str]] = {}
    parcels: dict[str, int] = {}
    received: dict[str, list[str]] = {}
    begun: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    ended: bool = False
    result: dict[str, Any] | None = None

    @classmethod
    def read(cls, private: Path) -> Self:
        """Read it.

        Args:
            private: Folder of a party's record of the exchange.

        Raises:
            OSError, ValueError: There is none, or it is damaged.
        """
        return cls.model_validate_json((private / RECORD_FILE).read_bytes(), strict=True)

    def write(self, private: Path) -> None:
        """Write it, whole or not at all."""
        make_folder(private)
        write_whole(private / RECORD_FILE, self.model_dump_json(indent=1))


def end_alone(private: Path, result: dict[str, Any]) -> None:
    """End an exchange without the other parties, begun or not: no file of theirs is read any more.

    Args:
        private: As of `Exchange`.
        result: As of `Exchange.end`.
    """
    make_folder(private)
    with locked(private / _LOCK, _HOLDER):
        closed = RoundRecord(ended=True, result=result)
        with suppress(OSError, ValueError):  # of a round that others had begun to answer
            closed.begun = RoundRecord.read(private).begun
        closed.write(private)


class Exchange:
    """A party's end of an exchange of files, to be used in a `with` block: one process at a time has its record.

    Args:
        job: The shared job.
        name: Name of the party.
        folder: Folder of the files that go from party to party.
        private: Folder of this party's record of the exchange and of its key; nobody else may read it.
        inputs: Everything that the messages depend on besides those of the peers; other inputs are refused later on.
        security: Certificates; `None` for files without signatures.
        trail: Egress trail of the party.
        wait: Seconds to wait for each file.
        peers: Parties that take part; by default all at the other ends of this party's links.
        courier: Carries the files by TLS; `None` for a folder that all parties see.
        round_: Name of the round, the same at all parties; files of another one are none of it.

    Attributes:
        ports: Ports to the peers, by name.
        written: Files that were written so far.

    Raises:
        WaitingForFile: The label owner has not begun.
        RunFolderError: The record is of other inputs, or of an exchange that has ended.
        LockHeld: Another process works on the exchange.
    """

    def __init__(
        self,
        job: Job,
        name: str,
        folder: Path,
        private: Path,
        inputs: str,
        security: Security | None,
        trail: Trail | None,
        wait: float,
        peers: tuple[str, ...] | None = None,
        courier: Courier | None = None,
        round_: str = "",
    ) -> None:
        self._job, self._name, self._folder, self._security, self._wait = job, name, folder, security, wait
        self.written: tuple[Path, ...] = ()
        self._courier, self._round = courier, round_
        self._run_suffix = f"-{sha256(round_.encode()).hexdigest()[:8]}" if round_ else ""
        peers = job.peers_of(name) if peers is None else peers
        self._private, self._outbox = private, private / "outbox"
        self._resources = ExitStack()
        make_folder(private)
        if folder.is_symlink():
            raise RunFolderError.expected(f"a folder {folder}", "a link, which another party may lead anywhere")
        if folder.exists() and not folder.is_dir():
            raise RunFolderError.expected(f"a folder {folder}", "a file", "name that of the files between the parties")
        # Two processes could answer two files of one name under one scalar.
        self._resources.enter_context(locked(private / _LOCK, _HOLDER))
        try:
            self._state = self._load_or_begin(peers, inputs)
            make_folder(self._outbox)
            self._publish_rest()
        except BaseException:
            self._resources.close()
            raise
        self._key = bytes.fromhex(self._state.key)
        self._cipher = Cipher(algorithms.AES(self._key), modes.CTR(bytes(16))).encryptor()
        self.ports = {peer: Port(name, peer, self._state.run, self._keep_message) for peer in peers}
        self._unsent: dict[str, list[Message]] = {peer: [] for peer in peers}
        self._repeated = dict.fromkeys(peers, 0)
        self._incoming = {peer: self._messages(peer) for peer in peers}
        if trail is not None:
            self._resources.callback(trail.close)
            for port in self.ports.values():
                port.record = self._recorder(trail)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def random(self, count: int) -> bytes:
        """Secret bytes that are the same in every start of this exchange."""
        return self._cipher.update(bytes(count))

    def drive(self, party: Generator[Port, Message, R]) -> R:
        """Run the party as far as the files allow.

        Raises:
            WaitingForFile: A file has not come.
            ProtocolError, TrustError: A file is damaged, not signed by its sender, or another than in an earlier start.
        """
        try:
            result = drive(party, lambda port: port.take(next(self._incoming[port.peer])))
        except (ProtocolError, TrustError) as failure:
            if self._name != self._job.active and not any(self._state.parcels.values()):
                # Nothing has left under this key: the next start may begin by another file, with another key.
                (self._private / RECORD_FILE).unlink(missing_ok=True)
                failure.add_note(
                    f"nothing was sent; bring the file of this job to {self._folder}, and repeat the command"
                )
            raise
        self._flush()
        return result

    def end(self, result: dict[str, Any] | None) -> None:
        """End the exchange: the same command then gives its result again, and answers nothing.

        Args:
            result: What the command has found, as JSON has it; `None` where it found nothing.

        Raises:
            WaitingForFile: A file of this party has not arrived at its receiver.
        """
        if self._courier is not None:
            end = time.monotonic() + self._wait
            while not self._courier.carry(self._folder):
                self._pause(end, self._folder, next(iter(self.ports)))
        # The key goes, the record stays: another start would answer the same files under new scalars.
        self._state.key, self._state.ended, self._state.result = "", True, result
        self._state.write(self._private)

    def _load_or_begin(self, peers: tuple[str, ...], inputs: str) -> RoundRecord:
        try:
            state = RoundRecord.read(self._private)
        except FileNotFoundError:
            return self._begin(peers, inputs)
        except (OSError, ValueError):
            raise RunFolderError(f"{self._private / RECORD_FILE} is damaged; begin again in an empty folder") from None
        if state.ended:
            remedy = f"to align again, remove {self._private} and begin in an empty folder"
            raise RunFolderError.expected("an exchange that goes on", f"one that has ended in {self._folder}", remedy)
        if state.inputs != inputs:
            wanted = f"the job, table and options that the exchange in {self._folder} began with"
            remedy = f"restore them, or remove {self._private} and begin again in an empty folder"
            raise RunFolderError.expected(wanted, "others", remedy)
        return state

    def _begin(self, peers: tuple[str, ...], inputs: str) -> RoundRecord:
        """The label owner begins, by a file without messages to each partner that names the run."""
        run = secrets.token_hex(8) + self._run_suffix
        if self._name != self._job.active:
            first = self._folder / parcel_name(peers[0], self._name, 0)
            self._await(first, peers[0])
            head = Parcel(first, self._name, self._security).head
            if (head.sender, head.number) != (peers[0], 0):
                raise ProtocolError.expected(
                    f"{first}: number 0 of {peers[0]}", f"number {head.number} of {head.sender}"
                )
            run = head.run
            if not run.endswith(self._run_suffix):
                raise ProtocolError.expected(f"{first}: a file of {self._round}", "one of another round")
        sent, received = ({peer: list[str]() for peer in peers} for _ in range(2))
        state = RoundRecord(
            run=run,
            key=secrets.token_hex(32),
            inputs=inputs,
            sent=sent,
            parcels=dict.fromkeys(peers, 0),
            received=received,
        )
        if self._name == self._job.active:
            _make_shared(self._folder)
            if any(self._folder.iterdir()):
                raise RunFolderError.expected(f"an empty folder {self._folder}, to begin", "files in it")
        state.write(self._private)
        return state

    def _recorder(self, trail: Trail) -> Callable[[Message], None]:
        """Records a message that has not been sent in an earlier start."""

        def record(message: Message) -> None:
            if self._repeated[message.receiver] >= len(self._state.sent[message.receiver]):
                trail.record(message)

        return record

    def _keep_message(self, message: Message) -> None:
        """Keep a new message for the next file; one of an earlier start must be what it was then."""
        peer = message.receiver
        known = self._state.sent[message.receiver]
        if self._repeated[peer] < len(known):
            if content_digest(message) != known[self._repeated[peer]]:
                raise ProtocolError(f"{self._folder}: this start differs from an earlier one; begin again")
            self._repeated[peer] += 1
            return
        self._unsent[peer].append(message)

    def _flush(self) -> None:
        """Write what is new, in a file for each peer; the label owner begins with a file in any case."""
        for peer, messages in self._unsent.items():
            number = self._state.parcels[peer]
            opening = self._name == self._job.active and number == 0
            if not messages and not opening:
                continue
            made = self._outbox / parcel_name(self._name, peer, number)
            made.unlink(missing_ok=True)  # of a start that was killed before it noted the file
            head = Head(self._name, peer, self._state.run, number)
            with ParcelWriter(made, head, self._security) as parcel:
                for message in messages:
                    parcel.add(message)
            self._state.sent[peer] += map(content_digest, messages)
            self._repeated[peer] += len(messages)
            self._state.parcels[peer] += 1
            self._state.write(self._private)
            messages.clear()
            self._publish(made)

    def _publish(self, made: Path) -> None:
        """Give the other parties a file that is noted here: whenever this is repeated, it is the same to the byte."""
        path, mode = self._folder / made.name, self._folder.stat().st_mode & 0o666
        # What stands there may be another party's, of any size.
        same = path.is_file() and path.stat().st_size == made.stat().st_size and cmp(path, made, shallow=False)
        if not same or path.is_symlink():
            check_output(path, remedy="remove it; only this party writes it")

        def write(partial: Path) -> None:
            with made.open("rb") as source, create(partial) as file:
                shutil.copyfileobj(source, file)
                os.fchmod(file.fileno(), mode)

        replace_whole(path, write)
        made.unlink()
        self.written += (path,)

    def _publish_rest(self) -> None:
        """Publish what a start that was killed had noted; what it had not is written again."""
        for made in sorted(self._outbox.glob("*.cutlayer")):
            _, peer, number = made.stem.split("~")
            if int(number) < self._state.parcels.get(peer, 0):
                self._publish(made)

    def _messages(self, peer: str) -> Iterator[Message]:
        number = 0
        while True:
            path = self._folder / parcel_name(peer, self._name, number)
            known = self._state.received[peer]
            if not path.exists():
                self._flush()  # before the wait: the peer may wait for it
                self._await(path, peer)
            parcel = Parcel(path, self._name, self._security)
            wanted = (peer, self._state.run, number)
            if (parcel.head.sender, parcel.head.run, parcel.head.number) != wanted:
                got = f"number {parcel.head.number} of {parcel.head.sender}, run {parcel.head.run}"
                again = (
                    f"it is of another training or round: bring what {peer} wrote for this one; if {peer} says that it "
                    f"began again, remove {self._private} and repeat the command"
                )
                remedy = again if parcel.head.run != wanted[1] else "bring the file of this name again"
                raise ProtocolError.expected(f"{path}: number {number} of {peer}, run {wanted[1]}", got, remedy)
            if number == len(known):
                known.append(parcel.digest.hex())
                self._state.write(self._private)
            elif known[number] != parcel.digest.hex():
                raise ProtocolError.expected(f"{path} as it was when it came", "another file", "restore it")
            yield from parcel.messages()
            number += 1

    def _await(self, path: Path, peer: str) -> None:
        end = time.monotonic() + self._wait
        while not path.exists():
            if self._courier is not None:
                self._courier.carry(self._folder, path)
            if not path.exists():
                self._pause(end, path, peer)

    def _pause(self, end: float, path: Path, peer: str) -> None:
        """Sleep before the next look at what has come; raises `WaitingForFile` once the time is over."""
        if time.monotonic() >= end:
            why = "" if self._courier is None else self._courier.missing_reason(peer)
            raise WaitingForFile(path, peer, self.written, why)
        time.sleep(_POLL_SECONDS)


def _make_shared(folder: Path) -> None:
    """Make a folder of files for other parties, whom the permissions of the folder above it let read them."""
    if not folder.exists():
        make_folder(folder)
        folder.chmod(stat.S_IMODE(folder.parent.stat().st_mode))
