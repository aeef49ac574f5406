"""Runs of organisations that open no port: a partner's single release is a file, and the label owner reads it.

What crosses is what crosses over a connection, message by message, so that the label owner's run is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.grpc_link import CLOSING, Links
from cutlayer.channel.parcel import Parcel
from cutlayer.channel.security import Security
from cutlayer.config import Job
from cutlayer.config.phases import Phase
from cutlayer.errors import ConfigError, ProtocolError


def check_by_courier(job: Job) -> None:
    """Refuse a job in which a partner has more to do than to release its rows.

    Raises:
        ConfigError: It takes part in epochs, or needs the split of the label owner.
    """
    if Phase.LEAVE not in job.phases:
        remedy = "set train.release: once and warmup_epochs: 0, or let the parties connect (cutlayer party)"
        raise ConfigError.expected("a job whose partners release each row once and do no more", "another one", remedy)
    if Phase.LABELS in job.phases:
        remedy = "let the parties connect (cutlayer party), or release by another fit"
        raise ConfigError.expected("partners that are sent nothing, to release by file", "drawn labels", remedy)
    if job.train.split.is_sent:
        got = "one that the label owner sends" if job.train.split.by is None else f"one by {job.train.split.by}"
        remedy = "leave out train.split.by and stratify, or let the parties connect"
        raise ConfigError.expected("a split that each party computes, to release by file", got, remedy)


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
        try:
            return port.take(message)
        except ProtocolError as refusal:
            raise ProtocolError(f"{path}: {refusal}") from None

    def renew(self, peer: str) -> None:
        """Nothing to renew: the signature of the whole file was checked."""

    def close(self, timeout: float = CLOSING) -> None:
        """Nothing to close."""


def _ignore(message: Message) -> None:
    """Whoever releases by file has answered already."""


def open_releases(
    job: Job,
    names: Sequence[str],
    paths: Sequence[Path],
    security: Security | None,
    notify: Callable[[str], None] = lambda _: None,
) -> ReleaseLinks:
    """Check the files of the partners' releases, and read them as links.

    Args:
        job: The job.
        names: Passive parties of which there must be one each.
        paths: The files.
        security: Certificates of the active party; `None` where the files need no signature.
        notify: Called with the time at which each file was made: an older one of the same rows is as valid.

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
        parcels[sender] = parcel
        notify(f"{path}: release of {sender}, made {parcel.head.made} UTC")
    missing = [name for name in names if name not in parcels]
    if missing:
        remedy = "name it with a further --release"
        raise ConfigError.expected(f"a release of {', '.join(names)}", f"none of {', '.join(missing)}", remedy)
    return ReleaseLinks(job.active, {name: parcels[name] for name in names})
