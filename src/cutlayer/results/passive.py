"""What a passive party has of a run between organisations: `outcome.json`, and the report of its own folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from cutlayer.accounting import Ledger
from cutlayer.alignment.disclosure import AlignmentRecord
from cutlayer.config import FrozenModel
from cutlayer.config.guard import Alarm
from cutlayer.data.carried import Carried
from cutlayer.data.column_note import ColumnNote
from cutlayer.results.audit import PassiveAudit
from cutlayer.results.document import Document
from cutlayer.results.number import Number
from cutlayer.results.privacy_card import PartyColumns
from cutlayer.results.protection import ProtectionResult
from cutlayer.results.run_files import RunFiles


class MessageCount(FrozenModel):
    """Messages of one kind between a passive party and the active one.

    Attributes:
        kind: Kind of the messages.
        sent: Number of messages sent.
        rows: Number of rows in them, each counted as often as it was sent; 0 of messages without rows.
        bytes_sent: Bytes of numbers sent.
        received: Number of messages received.
        bytes_received: Bytes of numbers received.
    """

    kind: str
    sent: int
    rows: int
    bytes_sent: int
    received: int
    bytes_received: int


class PartReleases(FrozenModel):
    """How often the rows of one part of the split are released.

    Attributes:
        part: Name of the part.
        rows: Number of its rows.
        releases: Maximum number of releases of each in the training, which early stopping can only lower.
    """

    part: str
    rows: int
    releases: int


class RowsOfTable(FrozenModel):
    """The rows of a party's table in a run.

    Attributes:
        table: Number of rows of the table.
        run: Number of these that took part.
        left_out: Number of rows of the file that are no rows of the table, by the reason.
        undated: Whether each row is of events that count without an `as_of`.
    """

    table: int
    run: int
    left_out: Mapping[str, int] = Field(default_factory=dict)
    undated: bool = False


class PassiveRun(Document):
    """`outcome.json`: a passive party's part of a run.

    Attributes:
        party: Name of the party.
        active: Name of the active party, which received what it sent.
        passives: Names of all passive parties in the job's order.
        name: Name of the job.
        job_digest: Digest of what the parties agreed on.
        training: Identifier of the training that all its parties have.
        created: End of the run, ISO 8601.
        cutlayer: Version of this package.
        device: What the party trained on.
        epochs: Number of epochs that were trained.
        parameters: Number of trained numbers.
        numeric: Number of numeric columns.
        categorical: Number of categorical columns.
        fit_losses: Loss after each epoch of the fit that comes before a single release.
        rows: Rows of its table, and of the run.
        releases: How often each row is released in the training.
        serving: Further releases of each row for predictions, as planned.
        messages: Messages by kind.
        resumed: Whether the run was resumed: the messages are then those of its last start.
        label_free: Whether nothing that it was sent depends on a label, but the end of the run.
        sees_end: Whether it was there when the training ended, which can depend on labels.
        split_sent: Whether it was sent which rows train and test, which can depend on labels.
        reproducible_noise: Whether the noise key was supplied, so that its holder can subtract the noise.
        protections: Result of each of its protections.
        alarms: What its guard saw.
        alignment: What the alignment made known.
        notes: Oddities of its columns.
    """

    title: ClassVar[str] = "the outcome of a passive party"

    party: str
    active: str
    passives: tuple[str, ...]
    name: str
    job_digest: str
    training: str
    created: str
    cutlayer: str
    device: str
    epochs: int
    parameters: int
    numeric: int
    categorical: int
    fit_losses: tuple[Number, ...] = ()
    rows: RowsOfTable
    releases: tuple[PartReleases, ...]
    serving: int = 0
    messages: tuple[MessageCount, ...]
    resumed: bool = False
    label_free: bool
    sees_end: bool
    split_sent: bool
    reproducible_noise: bool = False
    protections: tuple[ProtectionResult, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    alignment: AlignmentRecord | None = None
    notes: tuple[ColumnNote, ...] = ()


class PassiveReport(PassiveRun, PassiveAudit):
    """`report.json` of a passive party: its part of the run, with its account and its own audit.

    Attributes:
        folder: Path of the run folder.
        asked: Names of the attacks on features that its audit names.
        ledger: Its own part of the ledger.
        columns: Its columns that went in.
        carried: What its grades carry of its columns, by its name; empty where it released none.
        files: Whether its files are as the run wrote them; `None` where nothing says so.
    """

    title: ClassVar[str] = "a passive party's report"
    remedy: ClassVar[str] = "run the job again"

    folder: str
    asked: tuple[str, ...] = ()
    ledger: Ledger
    columns: PartyColumns
    carried: Mapping[str, Carried] = Field(default_factory=dict)
    files: RunFiles | None = None
