"""Runs of organisations that open no port: a partner's single release is a file, and the label owner reads it.

Where partners grade rows, they read a file with drawn labels first. What crosses is what crosses over a connection,
message by message, so that the label owner's run is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.grpc_link import CLOSING_SECONDS, Links
from cutlayer.channel.parcel import Parcel
from cutlayer.channel.security import Security
from cutlayer.config import Job
from cutlayer.config.phases import Phase, reads_labels
from cutlayer.errors import ConfigError, ProtocolError
from cutlayer.jobs.expiry import check_not_expired
from cutlayer.training.folder import RunFolder

LABEL_RUNS_FILE = "labels.json"
"""File of the label owner's run folder with the id of the run of each file that it wrote, by the partner."""
_FOR_PARTNERS = frozenset({Kind.HELLO, Kind.SPLIT, Kind.READY, Kind.LABELS})


def check_release_by_file(job: Job) -> None:
    """Refuse a job in which a partner has more to do than to release its rows.

    Raises:
        ConfigError: It takes part in epochs, or needs the split of the label owner and is sent no file.
    """
    if Phase.LEAVE not in job.phases:
        remedy = "set train.release: once and warmup_epochs: 0, or let the parties connect (cutlayer party)"
        raise ConfigError.expected("a job whose partners release each row once and do no more", "another one", remedy)
    if job.train.split.is_sent and not all(reads_labels(job, name) for name in job.passives):
        got = "one that the label owner sends" if job.train.split.by is None else f"one by {job.train.split.by}"
        remedy = "leave out train.split.by and stratify, or let the parties connect"
        raise ConfigError.expected("a split that each party computes, to release by file", got, remedy)


def label_recipients(job: Job) -> Sequence[str]:
    """Names of the partners that read a file of the label owner before they release."""
    return [name for name in job.passives if reads_labels(job, name)]


def sent_label_runs(folder: Path) -> Mapping[str, str]:
    """Id of the run of each file of labels that was written, by the partner that it is for.

    Raises:
        RunFolderError: The record is damaged.
    """
    return dict(RunFolder(folder).read_json(LABEL_RUNS_FILE)) if (folder / LABEL_RUNS_FILE).exists() else {}


def continues_from_labels(job: Job, folder: Path) -> bool:
    """Whether the label owner's run began when it wrote drawn labels, and goes on with the releases by them.

    Raises:
        ConfigError: Partners grade rows by drawn labels, and none were written from this folder.
    """
    if label_recipients(job) and not sent_label_runs(folder):
        wanted = f"the run folder from which {job.active} wrote the drawn labels"
        remedy = "write them with cutlayer release first, or name its folder with --out"
        raise ConfigError.expected(wanted, f"{folder}, which has none", remedy)
    return bool(label_recipients(job))


class ReleaseLinks(Links):
    """Links to partners whose messages are in files; what is sent to them goes nowhere.

    Args:
        me: Name of the party that reads the files.
        parcels: Files by their sender.
    """

    def __init__(self, me: str, parcels: Mapping[str, Parcel]) -> None:
        super().__init__({}, None)
        self.ports = {name: Port(me, name, parcel.head.run, _ignore) for name, parcel in parcels.items()}
        self._parcels = parcels
        self._messages = {name: parcel.messages() for name, parcel in parcels.items()}

    def receive(self, port: Port, timeout: float | None = None) -> Message:
        """The next message of a file.

        Raises:
            ProtocolError: There is no further one, or it is not the next one of this run.
        """
        path = self._parcels[port.peer].path
        rest = self._messages[port.peer]
        message = next(rest, None)
        if message is None:
            raise ProtocolError.expected(f"{path}: a further message", "its end", f"ask {port.peer} to release again")
        if message.kind == Kind.CLOSE and next(rest, None) is not None:
            raise ProtocolError.expected(f"{path}: its end after the last message", "a further message")
        return self._taken(port, message)

    def messages_of(self, peer: str) -> Iterator[Message]:
        """All messages of a file, each after the same checks."""
        return (self._taken(self.ports[peer], message) for message in self._messages[peer])

    def _taken(self, port: Port, message: Message) -> Message:
        try:
            return port.take(message)
        except ProtocolError as refusal:
            raise ProtocolError(f"{self._parcels[port.peer].path}: {refusal}") from None

    def renew(self, peer: str) -> None:
        """Nothing to renew: the signature of the whole file was checked."""

    def close(self, timeout: float = CLOSING_SECONDS) -> None:
        """Nothing to close."""


def _ignore(message: Message) -> None:
    """Whoever releases by file has answered already."""


def open_labels(
    job: Job, name: str, path: Path | None, security: Security | None, notify: Callable[[str], None]
) -> tuple[str | None, Iterator[Message]]:
    """Check the file that the label owner wrote for a partner; returns the id of its run, and its messages.

    Args:
        job: The job.
        name: Name of the partner.
        path: The file; `None` for none.
        security: Certificates of the partner; `None` where the file needs no signature.
        notify: Called with the time at which the file was made.

    Raises:
        ConfigError: The partner needs one and has none, or the other way round.
        ProtocolError, TrustError: It is damaged, of another party or with other messages, or not signed by its sender.
    """
    needed = reads_labels(job, name)
    if path is None:
        if not needed:
            return None, iter(())
        wanted = f"the file of {job.active} with drawn labels, which {name} grades rows by"
        remedy = f"{job.active} writes it with cutlayer release; name it with --labels"
        raise ConfigError.expected(wanted, "none", remedy)
    if not needed:
        raise ConfigError.expected(f"no --labels at {name}, which grades no rows", path, "leave it out")
    parcel = Parcel(path, name, security)
    if parcel.head.sender != job.active:
        raise ProtocolError.expected(f"{path}: messages of {job.active}", f"messages of {parcel.head.sender}")
    notify(f"{path}: labels of {job.active}, made {parcel.head.made} UTC")
    return parcel.head.run, _labels_of(parcel, job.active, name)


def _labels_of(parcel: Parcel, active: str, name: str) -> Iterator[Message]:
    for message in ReleaseLinks(name, {active: parcel}).messages_of(active):
        if message.kind not in _FOR_PARTNERS:
            raise ProtocolError.expected(f"{parcel.path}: a file of cutlayer release with labels", message.kind)
        yield message


def open_releases(
    job: Job,
    names: Sequence[str],
    paths: Sequence[Path],
    security: Security | None,
    notify: Callable[[str], None] = lambda _: None,
    label_runs: Mapping[str, str] | None = None,
    receipts: Path | None = None,
) -> ReleaseLinks:
    """Check the files of the partners' releases, and read them as links.

    Args:
        job: The job.
        names: Passive parties of which there must be one each.
        paths: The files.
        security: Certificates of the active party; `None` where the files need no signature.
        notify: Called with the time at which each file was made: an older one of the same rows is as valid.
        label_runs: Id of the run of the file that a partner was sent, by its name: its release is of this run.
        receipts: Folder of the receipts of what was forgotten: an older release has it still.

    Raises:
        ConfigError: A party has two files, or none, or a file is of no party of the job.
        ProtocolError, TrustError: A file is damaged, or not signed by its sender.
    """
    parcels: dict[str, Parcel] = {}
    for path in paths:
        parcel = Parcel(path, job.active, security)
        sender = parcel.head.sender
        if sender not in names:
            raise ConfigError.expected(f"{path}: a release of {' or '.join(names)}", f"one of {ascii(sender)[:80]}")
        if sender in parcels:
            raise ConfigError.expected(f"one release of {sender}", f"two: {parcels[sender].path} and {path}")
        if label_runs is not None and parcel.head.run != label_runs.get(sender, parcel.head.run):
            wanted = f"{path}: a release of {sender} by the labels that it was sent for this run"
            raise ProtocolError.expected(wanted, "one by others", f"ask {sender} to release by the last file of labels")
        check_not_expired(job, parcel.head.made, str(path), sender, receipts)
        parcels[sender] = parcel
        notify(f"{path}: release of {sender}, made {parcel.head.made} UTC")
    missing = [name for name in names if name not in parcels]
    if missing:
        remedy = "name it with a further --release"
        raise ConfigError.expected(f"a release of {', '.join(names)}", f"none of {', '.join(missing)}", remedy)
    return ReleaseLinks(job.active, {name: parcels[name] for name in names})
