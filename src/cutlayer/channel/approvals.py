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
from typing import Annotated, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, StrictInt, TypeAdapter

from cutlayer.channel.kinds import Kind
from cutlayer.channel.message import Message
from cutlayer.channel.security import Security
from cutlayer.channel.tls.signing import check_signature, sign
from cutlayer.config import FrozenModel
from cutlayer.config.wording import did_you_mean
from cutlayer.errors import ConfigError, NotApproved, TrustError
from cutlayer.storage.durable import file_version, make_folder, write_whole
from cutlayer.storage.json_values import parse_json

_NUMBERS_FILE = "numbers.json"
_NUMBERS = TypeAdapter(dict[str, StrictInt])
MAX_BYTES = 1 << 16
MAX_NUMBER = 2**53
RECHECK_SECONDS = 60.0
"""Seconds after which certificates of approvals are checked again in a process that goes on."""


def _existing_time(text: str) -> str:
    """Return the text of a time that there is: later releases are compared with it."""
    datetime.fromisoformat(text)
    return text


class Statement(FrozenModel):
    """What a party states about a job.

    Attributes:
        party: Name of the party.
        job: Digest of the job that all parties share.
        identities: Identity of every party of the job, by name.
        time: Time of the signature, UTC.
    """

    kind: ClassVar[str]
    """What it is, for errors, and before what is signed: a signature of another kind of file is none of it."""

    party: str
    job: str = Field(pattern=r"^[0-9a-f]{32}$")
    identities: Mapping[str, str]
    time: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z$"), AfterValidator(_existing_time)]

    @property
    def content(self) -> bytes:
        """The bytes that are signed."""
        plain = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return f"cutlayer {self.kind} 1\0{plain}".encode()


class Approval(Statement):
    """Whether a party approves what a job reveals of it.

    Attributes:
        page: SHA-256 of the party's page and its secret salt, in hexadecimal.
        number: Number of the record among those of the party about the job, from 1.
        state: Whether the party approves, or no longer does.
    """

    kind = "approval"

    page: str = Field(pattern=r"^[0-9a-f]{64}$")
    number: Annotated[int, Field(ge=1, le=MAX_NUMBER, strict=True)]
    state: Literal["approved", "withdrawn"]

    @property
    def summary(self) -> str:
        """The record on a line."""
        return f"{self.party} {self.state}, number {self.number}, digest {self.page[:16]}, {self.time}"


S = TypeVar("S", bound=Statement)


class SignedStatement(FrozenModel, Generic[S]):
    """A statement with the signature of its party.

    Attributes:
        approval: The statement.
        chain: Certificate of the party and the intermediate ones, in PEM; empty where nothing is signed.
        signature: Signature of the statement, in base64.
    """

    approval: S
    chain: str = ""
    signature: str = ""

    @classmethod
    def of(cls, approval: S, security: Security | None) -> Self:
        """Sign a statement by the key of the party's certificate; without certificates it stays unsigned.

        Raises:
            TrustError: The key is of a kind that does not sign.
        """
        if security is None:
            return cls(approval=approval)
        loaded = security.credentials.current()
        signature = base64.b64encode(sign(loaded, approval.content)).decode()
        return cls(approval=approval, chain=loaded.chain_pem.decode(), signature=signature)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file, which may come from anybody.

        Raises:
            ConfigError: It cannot be read, or is no record.
        """
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise ValueError
            return cls.model_validate(parse_json(content))
        except OSError as failure:
            there = [each.name for each in path.parent.glob("*.json")]
            raise ConfigError(f"{path}: cannot be read: {failure.strerror}{did_you_mean(path.name, there)}") from None
        except ValueError:
            wanted = f"a signed record in {path}"
            raise ConfigError.expected(wanted, "other content", "ask for the file again") from None

    def check(self, job: str, identities: Mapping[str, str], security: Security, where: str) -> None:
        """Check who signed it, and that it is about this job between these parties.

        Raises:
            NotApproved: It is of another job or party, or its signature or certificate is not accepted.
        """
        stated = self.approval
        if stated.job != job:
            raise NotApproved.expected(f"{where}: an {stated.kind} of job {job}", f"one of job {stated.job[:64]!a}")
        if stated.party not in identities or dict(stated.identities) != dict(identities):
            wanted = f"{where}: an {stated.kind} between {', '.join(identities.values())}"
            raise NotApproved.expected(wanted, "one of other parties or identities", "compare the job files")
        try:
            signature = base64.b64decode(self.signature, validate=True)
            loaded, signer = security.credentials.current(), identities[stated.party]
            check_signature(self.chain.encode(), signature, stated.content, loaded, signer, where)
        except (ValueError, TrustError) as failure:
            reason = failure if isinstance(failure, TrustError) else f"{where}: the signature cannot be read"
            raise NotApproved(str(reason)) from None


class SignedApproval(SignedStatement[Approval]):
    """A signed approval, or its withdrawal."""


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
        write_whole(self.folder / _NUMBERS_FILE, json.dumps({**numbers, party: number}))
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

    def check_message(self, message: Message) -> None:
        """Raise unless all approvals still hold; called before every message, and quick where no record changed.

        A message that ends the run passes: it has no more than the kind of the failure.

        Raises:
            NotApproved: As in `check`.
        """
        if message.kind is not Kind.CLOSE or message.tensors:
            self.check_still_hold()

    def check_still_hold(self) -> None:
        """Raise unless all approvals still hold; quick where no record changed."""
        state = tuple(file_version(self.path(party)) for party in self._identities)
        if state != self._state or time.monotonic() - self._checked > RECHECK_SECONDS:
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
        try:
            signed = SignedApproval.read(path)
        except ConfigError as damaged:  # here it is an approval that is missing
            raise NotApproved(str(damaged)) from None
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
        path = self.folder / _NUMBERS_FILE
        try:
            return _NUMBERS.validate_json(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            remedy = f"restore it, or remove {self.folder} and have all parties sign again"
            raise NotApproved(f"{path} is damaged; {remedy}") from None
