"""What a party was sent and its job keeps no longer: refused for use, and deleted with a line on the trail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from os.path import lexists
from pathlib import Path

from cutlayer.channel.receipts import receipts_in
from cutlayer.channel.trail import Trail
from cutlayer.config import Job
from cutlayer.errors import ProtocolError
from cutlayer.jobs.exchange import RoundRecord
from cutlayer.parties.session.checkpoint import DRAWN_LABELS_FILE, RELEASED_FILE


def check_not_expired(job: Job, made: str, release_name: str, sender: str = "", receipts: Path | None = None) -> None:
    """Refuse a release that is older than the job keeps one, or than what its sender has forgotten since.

    Args:
        job: The job.
        made: Day and time at which it was begun, UTC, as its signed head says.
        release_name: Name of it, for the message.
        sender: Name of the party that made it: its receipts have the time of the same clock.
        receipts: Folder of the receipts of what was forgotten.

    Raises:
        ProtocolError: It is older, or the time is none.
    """
    known = receipts_in(receipts) if receipts is not None else {}
    signed = [each[sender].approval for each in known.values() if sender in each]
    if job.keep_days is None and not signed:
        return
    try:
        begun = datetime.fromisoformat(made).replace(tzinfo=UTC)
    except ValueError:
        raise ProtocolError.expected(f"{release_name}: the day on which it was made", ascii(made)) from None
    if forgotten := [each.summary for each in signed if each.job == job.digest() and _end_of(each.time) >= begun]:
        wanted = f"{release_name}: a release since {forgotten[-1]}"
        raise ProtocolError.expected(wanted, f"one of {made}", "ask for it again")
    if job.keep_days is not None and begun < datetime.now(UTC) - timedelta(days=job.keep_days):
        wanted = f"{release_name}: a release of the last {job.keep_days:,} days, as `keep` of the job says"
        raise ProtocolError.expected(wanted, f"one of {made}", "ask for it again")


def _end_of(time: str) -> datetime:
    """The last moment of a time: of one without a fraction, as earlier receipts have it, that of its second."""
    return datetime.fromisoformat(time) + timedelta(microseconds=0 if "." in time else 999_999)


def delete_expired(job: Job, name: str, rounds: Path, folder: Path, trail: Trail | None) -> list[str]:
    """Delete what other parties sent in rounds that are older than the job keeps a release, ended or not.

    The models that were trained on it, the predictions, the ledger and the records of the rounds stay.

    Args:
        job: The job.
        name: Name of the party.
        rounds: Folder of this party's records of the rounds.
        folder: Folder of the files between the parties.
        trail: Egress trail of the party.

    Returns:
        Names of the rounds, with what could not be deleted.
    """
    if job.keep_days is None or not rounds.is_dir():
        return []
    expired = []
    end = datetime.now(UTC) - timedelta(days=job.keep_days)
    for private in sorted(path for path in rounds.iterdir() if path.is_dir()):
        try:
            begun = RoundRecord.read(private).begun
        except (OSError, ValueError):
            continue
        if begun >= end:
            continue
        there = [path for path in _received_paths(private, folder / private.name, name == job.active) if lexists(path)]
        left = ""
        for path in there:
            try:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            except OSError as failure:  # of a folder in which another party writes: no reason to end this month's work
                left = f", but for {path}: {failure.strerror}"
        if there:
            expired.append(private.name + left)
            if trail is not None:
                trail.note(private.name, trail.party, "expired", 0, files=[path.name for path in there])
    return expired


def _received_paths(private: Path, shared: Path, active: bool) -> Iterator[Path]:
    yield from private.glob("*.release")
    yield from private.glob("*.labels")
    yield shared
    kind, _, version = private.name.partition("-")
    if kind == "train":
        base = private.parent.name.removesuffix(".rounds")
        run = private.parent.with_name(f"{base}-{version}" if version else base)
        yield from run.glob(f"checkpoint/*/{DRAWN_LABELS_FILE}")
        for place in (run, *run.glob("labels/*")):
            if active:  # a partner keeps its own, to repeat its draws
                yield from place.glob(f"checkpoint/*/{RELEASED_FILE}")
            yield place / "transcript"
