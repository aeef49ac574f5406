"""Rounds of an exchange by files: a training, or a prediction of new rows, in two files each way.

    active -> passive   its points
    passive -> active   its points, and the active party's masked again
    active -> passive   which rows are common, its half of the proof; in a training with grades, the drawn labels
    passive -> active   its half of the proof, and its release, sealed under the key that both halves give

That is the minimum. What is released depends on the common rows, which the active party knows by the passive party's
points; the passive party masks the active party's before it can be asked for them. With several keys each further one
takes three more files of each side, and the proofs cross before anything is sealed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from cutlayer.alignment.intersection import Alignment, Purpose
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.grpc_files import Courier
from cutlayer.channel.receiving import receive
from cutlayer.config import Job, LimitsConfig
from cutlayer.config.phases import reads_labels
from cutlayer.data.align import no_common_row_error
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ProtocolError
from cutlayer.jobs.align import AlignmentResult, alignment_result, has_no_common_row, inputs_of
from cutlayer.jobs.exchange import Exchange
from cutlayer.jobs.links import LinkOptions, trail_of
from cutlayer.parties.agreement.handshake import Agreement, SavedPoints, agree_active, agree_passive
from cutlayer.storage.durable import check_room, sync_file, sync_folder

PIECE_BYTES = 1 << 20
"""Bytes of a file in one message."""


@dataclass(frozen=True)
class Round:
    """A party's side of a round.

    Attributes:
        job: Job with the party's private part as it is now.
        name: Name of the party.
        table: Its rows.
        limits: Bounds on the numbers that it sends and accepts.
        purpose: What the rows are aligned for.
        folder: Folder of the files that go from party to party.
        private: Folder of this party's record of the round, of its common rows and of the files that it was sent.
        peers: Parties that take part.
        run: Run folder of the trained model that predicts; `None` in a training.
        courier: As of `Exchange`.
    """

    job: Job
    name: str
    table: PartyTable
    limits: LimitsConfig
    purpose: Purpose
    folder: Path
    private: Path
    peers: Sequence[str]
    run: Path | None = None
    courier: Courier | None = None

    @property
    def rows(self) -> Path:
        """File of the common rows, as `cutlayer align` writes it."""
        return self.private / "rows.csv"

    def release_of(self, party: str) -> Path:
        """File of a passive party's release."""
        return self.private / f"{party}.release"

    def labels_for(self, party: str) -> Path:
        """File of the drawn labels for a passive party."""
        return self.private / f"{party}.labels"

    def open(self, links: LinkOptions, wait: float) -> Exchange:
        """The exchange of the round's files, begun or continued.

        Args:
            links: Certificates and trail.
            wait: Seconds to wait for each file.

        Raises:
            WaitingForFile: The label owner has not begun.
            RunFolderError: It was begun with another job or table, or has ended.
        """
        trail = trail_of(self.job, self.name, links, self.run)
        inputs = " ".join((inputs_of(self.job, self.table, self._alignment), self.private.name, *self.peers))
        return Exchange(
            self.job,
            self.name,
            self.folder,
            self.private,
            inputs,
            links.security,
            trail,
            wait,
            tuple(self.peers),
            self.courier,
            self.private.name,
        )

    def lead(self, files: Exchange, labels: Callable[[], None] | None = None) -> AlignmentResult:
        """The label owner's side, up to the files of all partners' releases; returns what it learned.

        Args:
            files: The exchange.
            labels: Writes the files of drawn labels, unless they are there; `None` where none are drawn.

        Raises:
            WaitingForFile: A file has not come.
            CutlayerError: A file is not what it says.
        """
        return files.drive(self._lead(files, labels))

    def follow(self, files: Exchange, release: Callable[[Path | None], None]) -> AlignmentResult:
        """A partner's side: its release is in the last of its files; returns what it learned.

        Args:
            files: The exchange.
            release: Writes the file of the release, unless it is there, by the file of drawn labels if there is one.

        Raises:
            WaitingForFile: A file has not come.
            CutlayerError: A file is not what it says.
        """
        return files.drive(self._follow(files, release))

    @property
    def _alignment(self) -> Alignment:
        return Alignment(self.job.alignment, self.purpose, sends_ahead=True, seals_proof=True)

    def _write_rows(self, agreement: Agreement) -> AlignmentResult:
        if has_no_common_row(agreement):
            raise no_common_row_error({self.name: self.table.rows, **agreement.peer_rows})
        return alignment_result(self.name, self.table, agreement, self.rows)

    def _lead(self, files: Exchange, labels: Callable[[], None] | None) -> Generator[Port, Message, AlignmentResult]:
        alignment = replace(self._alignment, random=files.random)
        agreement = yield from agree_active(self.job, self.table, self.name, files.ports, [], self.limits, alignment)
        found, proofs = self._write_rows(agreement), agreement.aligned.proofs
        if labels is not None:
            labels()
            for peer, port in files.ports.items():
                if reads_labels(self.job, peer):
                    send_file(port, self.labels_for(peer), None)
        for peer, port in files.ports.items():
            key = (yield from proofs[peer].end()) if peer in proofs else None
            yield from receive_file(port, self.release_of(peer), key)
        return found

    def _follow(
        self, files: Exchange, release: Callable[[Path | None], None]
    ) -> Generator[Port, Message, AlignmentResult]:
        [port] = files.ports.values()
        alignment = replace(self._alignment, random=files.random)
        agreement = yield from agree_passive(self.job, self.table, port, SavedPoints(), self.limits, alignment)
        found, proofs = self._write_rows(agreement), agreement.aligned.proofs
        labels = None
        if self.purpose is Purpose.ALIGN and reads_labels(self.job, self.name):
            labels = self.labels_for(self.name)
            yield from receive_file(port, labels, None)
        release(labels)
        key = (yield from proofs[port.peer].end()) if proofs else None
        send_file(port, self.release_of(self.name), key)
        return found


def send_file(port: Port, path: Path, key: bytes | None) -> None:
    """Send a file in messages.

    Args:
        port: Port to the receiver.
        path: The file, which is not empty.
        key: Key that seals it, 64 bytes, of this exchange and file alone; `None` to leave it open.
    """
    cipher = None if key is None else AESSIV(key)
    size = path.stat().st_size
    with path.open("rb") as file:
        for number in range(-(-size // PIECE_BYTES)):
            piece, last = file.read(PIECE_BYTES), (number + 1) * PIECE_BYTES >= size
            # The same piece gives the same message, as every start of an exchange must: no nonce is drawn.
            sealed = piece if cipher is None else cipher.encrypt(piece, [_position(number, last)])
            content = torch.frombuffer(bytearray(sealed), dtype=torch.uint8)
            port.send(Kind.FILE, step=number, tensors={"content": content}, fields={"last": last})


def receive_file(port: Port, path: Path, key: bytes | None) -> Generator[Port, Message, None]:
    """Receive a file, which has its name once it is whole; another one there is replaced.

    Args:
        port: Port to the sender.
        path: The file to write.
        key: As in `send_file`.

    Raises:
        ProtocolError: A message is not the next one, or is not sealed under the key.
        RunFolderError: The disk is full.
    """
    cipher = None if key is None else AESSIV(key)
    partial = path.with_name(f"{path.name}.coming")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        number, last = 0, False
        while not last:
            message = yield from receive(port, Kind.FILE, -1, number)
            piece, last = message.tensors["content"].numpy().tobytes(), bool(message.fields["last"])
            if cipher is not None:
                try:
                    piece = cipher.decrypt(piece, [_position(number, last)])
                except (InvalidTag, ValueError):
                    wanted = f"a file of {port.peer} that is sealed for this round"
                    raise ProtocolError.expected(wanted, "another", "begin another round at both sides") from None
            if len(piece) > PIECE_BYTES or not (last or len(piece) == PIECE_BYTES):
                raise ProtocolError.expected(f"pieces of {PIECE_BYTES:,} bytes from {port.peer}", f"{len(piece):,}")
            if number % 64 == 0:
                check_room(path.parent)
            file.write(piece)
            number += 1
    sync_file(partial)
    partial.replace(path)
    sync_folder(path.parent)


def _position(number: int, last: bool) -> bytes:
    return f"{number} {last}".encode()
