"""Receipts of what was forgotten: each party signs what it deleted, by the key that signs its approvals.

The first record is the request; the records of all other parties name it. A record holds no id, and no number of rows:
a digest with a random salt, which is not stored, stands for the list.

Guarantee: none on copies. A receipt is a party's own statement, signed so that it cannot deny it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import Field

from cutlayer.channel.approvals import check_signed, read_signed, signature_of
from cutlayer.channel.security import Security
from cutlayer.config import FrozenModel
from cutlayer.errors import NotApproved
from cutlayer.storage.durable import make_folder, write_whole

_SIGNED = b"cutlayer receipt 1\0"
FOLDER = "receipts"
"""Folder of the receipts, next to the secrets."""
REMAINS = (
    "what was decided by a prediction, and predictions in databases and in files that no round named",
    "what the other parties learned from what they were sent, and copies that they made",
    "backups and snapshots, and blocks of a disk: files are removed, not overwritten",
    "models that were exported or logged elsewhere, and one that a running cutlayer serve has in memory",
    "the privacy that was spent on the rows: the ledger of all runs counts it, by 8 bytes of a digest of each id",
    "the egress trail, whose digests of messages prove what was sent to somebody who has a copy",
    "the difference of a model from before and one from after, to somebody who has both: it is about these rows",
)
"""What no deletion undoes."""


class Deletion(FrozenModel):
    """What a party states that it deleted.

    Attributes:
        party: Name of the party.
        job: Digest of the job that all parties share.
        identities: Identity of every party of the job, by name.
        what: What is forgotten, such as `rows of telco`.
        rows: Salted SHA-256 of the list of rows.
        request: SHA-256 of the record that this one answers; empty in the first.
        deleted: Names of the folders and files that were deleted.
        remains: What was not, or cannot be undone.
        time: Time of the signature, UTC.
    """

    party: str
    job: str = Field(pattern=r"^[0-9a-f]{32}$")
    identities: Mapping[str, str]
    what: str = Field(max_length=200)
    rows: str = Field(pattern=r"^[0-9a-f]{64}$")
    request: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    deleted: tuple[str, ...]
    remains: tuple[str, ...]
    time: str = Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    @property
    def content(self) -> bytes:
        """The bytes that are signed."""
        return _SIGNED + json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()

    @property
    def summary(self) -> str:
        """The statement on a line."""
        return f"{self.party} forgot {self.what} at {self.time}; deleted {', '.join(self.deleted) or 'nothing'}"

    @property
    def about(self) -> str:
        """SHA-256 of the request: what all records of one forgetting have in common."""
        return self.request or hashlib.sha256(self.content).hexdigest()


class Receipt(FrozenModel):
    """A statement with the signature of its party.

    Attributes:
        deletion: The statement.
        chain: Certificate of the party and the intermediate ones, in PEM; empty where all parties are in one process.
        signature: Signature of the statement, in base64.
    """

    deletion: Deletion
    chain: str = ""
    signature: str = ""

    @classmethod
    def of(cls, deletion: Deletion, security: Security | None) -> Self:
        """Sign a statement; without certificates it stays unsigned."""
        return cls(deletion=deletion, **(signature_of(deletion.content, security) if security else {}))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file, which may come from anybody.

        Raises:
            NotApproved: It is missing, or no receipt.
        """
        return read_signed(path, cls, "a receipt")

    def check(self, job: str, identities: Mapping[str, str], security: Security, where: str) -> None:
        """Check who signed it, and that it is about this job between these parties.

        Raises:
            NotApproved: It is of another job or party, or its signature or certificate is not accepted.
        """
        stated = self.deletion
        if stated.job != job or stated.party not in identities or dict(stated.identities) != dict(identities):
            wanted = f"{where}: a receipt of job {job} between {', '.join(identities.values())}"
            raise NotApproved.expected(wanted, "one of another job or other parties", "compare the job files")
        check_signed(self.chain, self.signature, stated.content, identities[stated.party], security, where)

    def add_to(self, folder: Path) -> Path:
        """Write it among the receipts of a folder; returns the file, which is never replaced by another statement.

        Raises:
            NotApproved: The party has stated something else about the same request.
        """
        path = folder / self.deletion.about / f"{self.deletion.party}.json"
        if path.exists() and Receipt.read(path).deletion != self.deletion:
            raise NotApproved.expected(f"one receipt of {self.deletion.party}", "two different ones", "look at both")
        make_folder(path.parent)
        write_whole(path, self.model_dump_json(indent=1) + "\n")
        return path


def receipts_in(folder: Path, about: str = "*") -> dict[str, dict[str, Receipt]]:
    """The receipts of a folder by request and party, the request's own first.

    Args:
        folder: Folder of the receipts.
        about: SHA-256 of a request; by default of all.
    """
    found: dict[str, dict[str, Receipt]] = {}
    for path in sorted(folder.glob(f"{about}/*.json")):
        found.setdefault(path.parent.name, {})[path.stem] = Receipt.read(path)
    return {key: dict(sorted(each.items(), key=lambda one: one[1].deletion.request)) for key, each in found.items()}
