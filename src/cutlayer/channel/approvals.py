"""Signed approvals of what a job reveals: one record a party, and the gate that every message of a party passes.

A record names the job by its digest, all parties with their identities, and the page that its party saw by a salted
digest, which nobody can compare with guesses of column names. Its number only rises: an earlier record does not count
once a later one of the party is known.

Guarantee: none on what was sent before a withdrawal. A record is known where its file was brought to. Who restores the
whole folder of records from a backup restores its numbers too; the egress trail shows the withdrawal.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, ValidationError

from cutlayer.channel.kinds import Kind
from cutlayer.channel.message import Message
from cutlayer.channel.security import Security
from cutlayer.channel.tls.signing import check_signature, sign
from cutlayer.config import FrozenModel
from cutlayer.errors import NotApproved, TrustError
from cutlayer.storage.durable import make_folder, write_whole
from cutlayer.storage.json_values import parse_json

R = TypeVar("R", bound=FrozenModel)
_SIGNED = b"cutlayer approval 1\0"
"""Stands before what is signed: a signature of another kind of file is none of an approval."""
_SEEN = "numbers.json"
MAX_BYTES = 1 << 16
MAX_NUMBER = 2**53
RECHECKED_AFTER = 60.0
"""Seconds after which certificates of approvals are checked again in a process that goes on."""


class Approval(FrozenModel):
    """What a party states about a job.

    Attributes:
        party: Name of the party.
        job: Digest of the job that all parties share.
        identities: Identity of every party of the job, by name.
        page: SHA-256 of the party's page and its secret salt, in hexadecimal.
        number: Number of the record among those of the party about the job, from 1.
        state: Whether the party approves, or no longer does.
        time: Time of the signature, UTC.
    """

    party: str
    job: str = Field(pattern=r"^[0-9a-f]{32}$")
    identities: Mapping[str, str]
    page: str = Field(pattern=r"^[0-9a-f]{64}$")
    number: Annotated[int, Field(ge=1, le=MAX_NUMBER, strict=True)]
    state: Literal["approved", "withdrawn"]
    time: str = Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    @property
    def summary(self) -> str:
        """The record on a line."""
        return f"{self.party} {self.state}, number {self.number}, page {self.page[:16]}, {self.time}"

    @property
    def content(self) -> bytes:
        """The bytes that are signed."""
        return _SIGNED + json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()


class SignedApproval(FrozenModel):
    """A record with the signature of its party.

    Attributes:
        approval: The record.
        chain: Certificate of the party and the intermediate ones, in PEM.
        signature: Signature of the record, in base64.
    """

    approval: Approval
    chain: str
    signature: str

    @classmethod
    def of(cls, approval: Approval, security: Security) -> Self:
        """Sign a record by the key of the party's certificate.

        Raises:
            TrustError: The key is of a kind that does not sign.
        """
        return cls(approval=approval, **signature_of(approval.content, security))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file, which may come from anybody.

        Raises:
            NotApproved: It is missing, or no record.
        """
        return read_signed(path, cls, "an approval")

    def check(self, job: str, identities: Mapping[str, str], security: Security, where: str) -> None:
        """Check who signed it, and that it is about this job between these parties.

        Raises:
            NotApproved: It is of another job or party, or its signature or certificate is not accepted.
        """
        stated = self.approval
        if stated.job != job:
            raise NotApproved.expected(f"{where}: an approval of job {job}", f"one of job {stated.job[:64]!a}")
        if stated.party not in identities or dict(stated.identities) != dict(identities):
            wanted = f"{where}: an approval between {', '.join(identities.values())}"
            raise NotApproved.expected(wanted, "one of other parties or identities", "compare the job files")
        check_signed(self.chain, self.signature, stated.content, identities[stated.party], security, where)


def signature_of(content: bytes, security: Security) -> dict[str, str]:
    """Certificates and signature of some bytes by the key of a party's certificate, as texts of a record.

    Raises:
        TrustError: The key is of a kind that does not sign.
    """
    loaded = security.credentials.current()
    signature = base64.b64encode(sign(loaded, content)).decode()
    return {"chain": loaded.chain_pem.decode(), "signature": signature}


def check_signed(chain: str, signature: str, content: bytes, signer: str, security: Security, where: str) -> None:
    """Check that a party of an identity signed some bytes, by the texts of `signature_of`.

    Raises:
        NotApproved: The signature or the certificate is not accepted.
    """
    try:
        decoded = base64.b64decode(signature, validate=True)
        check_signature(chain.encode(), decoded, content, security.credentials.current(), signer, where)
    except (ValueError, TrustError) as failure:
        reason = failure if isinstance(failure, TrustError) else f"{where}: the signature cannot be read"
        raise NotApproved(str(reason)) from None


def read_signed(path: Path, kind: type[R], what: str) -> R:
    """Read a record from a file, which may come from anybody.

    Raises:
        NotApproved: It is missing, or no record of this kind.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes")
        return kind.model_validate(parse_json(content))
    except (OSError, ValueError) as failure:
        got = "other content" if isinstance(failure, ValidationError) else failure
        raise NotApproved.expected(f"{what} in {path}", got, "ask for the file again") from None


def is_record(content: bytes) -> bool:
    """Whether a file has the form of a record, which a later one may replace."""
    return content.startswith(b'{\n "approval"')


class Approvals:
    """The approvals of a job at one of its parties, in a folder that nobody else writes.

    Args:
        folder: Folder of the records.
        party: Name of the party whose folder it is.
        job: Digest of the job.
        identities: Identity of every party of the job, by name.
        security: Certificates of the party.
        compare_page: Raises `NotApproved` unless the party's page still has a salted digest.
    """

    def __init__(
        self,
        folder: Path,
        party: str,
        job: str,
        identities: Mapping[str, str],
        security: Security,
        compare_page: Callable[[str], None],
    ) -> None:
        self.folder, self.party, self._job, self._identities = folder, party, job, identities
        self._security, self._compare_page = security, compare_page
        self._state: tuple[object, ...] = ()
        self._checked = 0.0

    def path(self, party: str) -> Path:
        """File of the last record of a party."""
        return self.folder / f"{party}.json"

    def add(self, signed: SignedApproval, where: str) -> None:
        """Take over a record; one that is known already changes nothing.

        Raises:
            NotApproved: It is not accepted, or a later one of the party is known.
        """
        signed.check(self._job, self._identities, self._security, where)
        party, number = signed.approval.party, signed.approval.number
        numbers = self._numbers()
        known = numbers.get(party, 0)
        if number < known:
            self._refuse_earlier(where, party, number, known)
        path = self.path(party)
        if number == known and path.exists() and SignedApproval.read(path).approval != signed.approval:
            wanted = f"{where}: one record of number {number} of {party}"
            raise NotApproved.expected(wanted, "two different ones", f"ask {party} to sign again")
        make_folder(self.folder)
        # Before the record: a record that is lost is asked for again, a number that is lost lets an earlier one in.
        write_whole(self.folder / _SEEN, json.dumps({**numbers, party: number}))
        write_whole(path, signed.model_dump_json(indent=1) + "\n")

    def sign(self, state: Literal["approved", "withdrawn"], page: str) -> SignedApproval:
        """Sign and take over the next record of this party.

        Args:
            state: Whether it approves.
            page: Salted digest of its page.
        """
        approval = Approval(
            party=self.party,
            job=self._job,
            identities=dict(self._identities),
            page=page,
            number=self._numbers().get(self.party, 0) + 1,
            state=state,
            time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        )
        signed = SignedApproval.of(approval, self._security)
        self.add(signed, "the approval")
        return signed

    def check(self) -> tuple[Approval, ...]:
        """The approvals of all parties, with the page of this one as it is now.

        Raises:
            NotApproved: One is missing, withdrawn, earlier than a known one, not accepted, or of another page.
        """
        records = self._current()
        own = next(record for record in records if record.party == self.party)
        self._compare_page(own.page)
        return records

    def passes(self, message: Message) -> None:
        """Raise unless all approvals still hold; called before every message, and quick where no record changed.

        A message that ends the run passes: it has no more than the kind of the failure.

        Raises:
            NotApproved: As in `check`.
        """
        if message.kind is not Kind.CLOSE or message.tensors:
            self.hold()

    def hold(self) -> None:
        """Raise unless all approvals still hold; quick where no record changed."""
        state = tuple(_stamp(self.path(party)) for party in self._identities)
        if state != self._state or time.monotonic() - self._checked > RECHECKED_AFTER:
            self._current()
            self._state, self._checked = state, time.monotonic()

    def _current(self) -> tuple[Approval, ...]:
        numbers = self._numbers()
        return tuple(self._record(party, numbers.get(party, 0)) for party in self._identities)

    def _record(self, party: str, known: int) -> Approval:
        path = self.path(party)
        if not path.exists():
            remedy = f"{party} signs it with cutlayer approve --sign"
            if party != self.party:
                remedy += ", and its file is read with cutlayer approve --accept"
            raise NotApproved.expected(f"the approval of {party} for job {self._job}", "none", remedy)
        signed = SignedApproval.read(path)
        signed.check(self._job, self._identities, self._security, str(path))
        record = signed.approval
        if record.party != party:
            raise NotApproved.expected(f"{path}: the approval of {party}", f"that of {record.party}")
        if record.number < known:
            self._refuse_earlier(str(path), party, record.number, known)
        if record.state != "approved":
            raise NotApproved(f"{party} has withdrawn its approval of job {self._job} at {record.time}")
        return record

    def _refuse_earlier(self, where: str, party: str, number: int, known: int) -> None:
        wanted = f"{where}: record {known} of {party} or a later one"
        raise NotApproved.expected(wanted, f"number {number}", "a later one is known: ask for that of now")

    def _numbers(self) -> dict[str, int]:
        path = self.folder / _SEEN
        try:
            numbers = parse_json(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            numbers = None
        if not isinstance(numbers, dict) or not all(type(number) is int for number in numbers.values()):
            raise NotApproved(f"{path} is damaged; restore it, or remove {self.folder} and have all parties sign again")
        return numbers


def _stamp(path: Path) -> object:
    """What changes when a file is replaced; `None` without one."""
    try:
        stated = path.stat()
    except OSError:
        return None
    return stated.st_ino, stated.st_mtime_ns, stated.st_size
