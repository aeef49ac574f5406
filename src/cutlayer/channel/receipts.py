"""Receipts of what was forgotten: each party signs what it deleted, by the key that signs its approvals.

The first record is the request; the records of all other parties name it. A record holds no id, and no number of rows:
a digest with a random salt, which is not stored, stands for the list.

Guarantee: none on copies. A receipt is a party's own statement, signed so that it cannot deny it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from cutlayer.channel.approvals import SignedStatement, Statement
from cutlayer.channel.codec import printable_name
from cutlayer.config.identities import NAME
from cutlayer.errors import NotApproved
from cutlayer.storage.durable import make_folder, write_whole

NOT_DELETED = (
    "what was decided by a prediction, and predictions in databases and in files that no round named",
    "what the other parties learned from what they were sent, and copies that they made",
    "backups and snapshots, and blocks of a disk: files are removed, not overwritten",
    "models that were exported or logged elsewhere, and one that a running cutlayer serve has in memory",
    "the privacy that was spent on the rows: the ledger of all runs counts it, by 8 bytes of a digest of each id",
    "the egress trail, whose digests of messages prove what was sent to somebody who has a copy",
    "the difference of a model from before and one from after, to somebody who has both: it is about these rows",
)
"""What no deletion undoes."""


_Line = Annotated[str, Field(max_length=300), AfterValidator(printable_name)]
"""Text of a partner that is shown on one line: it forges no line of a ledger."""


class Deletion(Statement):
    """What a party states that it deleted.

    Attributes:
        what: What is forgotten, such as `rows of telco`.
        rows: Salted SHA-256 of the list of rows.
        request: SHA-256 of the record that this one answers; empty in the first.
        deleted: Names of the folders and files that were deleted.
        remains: What was not, or cannot be undone.
    """

    kind = "acknowledgement"

    # The other parties sign it as well, in the receipts that answer: it can say nothing but whose rows they are.
    what: str = Field(pattern=rf"^(rows|all) of {NAME}(, {NAME})*$")
    rows: str = Field(pattern=r"^[0-9a-f]{64}$")
    request: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    deleted: tuple[_Line, ...]
    remains: tuple[_Line, ...]

    @property
    def summary(self) -> str:
        """The statement on a line."""
        return f"{self.party} forgot {self.what} at {self.time}; deleted {', '.join(self.deleted) or 'nothing'}"

    @property
    def about(self) -> str:
        """SHA-256 of the request: what all records of one forgetting have in common."""
        return self.request or hashlib.sha256(self.content).hexdigest()


class Receipt(SignedStatement[Deletion]):
    """The signed statement of a party; unsigned where all parties are in one process."""

    def add_to(self, folder: Path) -> Path:
        """Write it among the receipts of a folder; returns the file, which is never replaced by another statement.

        Raises:
            NotApproved: The party has stated something else about the same request.
        """
        path = folder / self.approval.about / f"{self.approval.party}.json"
        if path.exists() and Receipt.read(path).approval != self.approval:
            raise NotApproved.expected(f"one receipt of {self.approval.party}", "two different ones", "look at both")
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
    return {key: dict(sorted(each.items(), key=lambda one: one[1].approval.request)) for key, each in found.items()}
