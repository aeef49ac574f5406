"""Alignment by private set intersection (PSI): which rows two parties share, and nothing of their other rows.

Each party hashes its ids to a group and masks them by a secret scalar of its own. A passive party masks the active
party's masked ids again, and the active party those of the passive party: an id that both have gives the same point,
whatever the order of the masks, and points of other ids are random to a party without the other scalar (Meadows 1986;
Huberman, Franklin and Hogg 1999; DDH assumption, hash as a random function). The active party compares, and sends back
the indices of the common rows. It does so with each passive party, and keeps the rows that all have.

Large tables go bucket by bucket. Scalars are new for each peer and bucket. No set is sent in the order of its table:
masked points are sorted, which is a random order for a peer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from secrets import token_bytes

import numpy as np
import numpy.typing as npt
import torch

from cutlayer.alignment.buckets import (
    Buckets,
    bucket_bits,
    bucket_capacity,
    bucket_points,
    is_ascending,
    matches,
    sorted_points,
)
from cutlayer.alignment.held_rows import ALL_HAVE_ALL, HeldRows
from cutlayer.alignment.ristretto255 import POINT_BYTES, Points, hash_to_group, multiply, random_points, random_scalar
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive
from cutlayer.config import Job
from cutlayer.data.align import Positions
from cutlayer.data.ids import Digests
from cutlayer.errors import ProtocolError
from cutlayer.kernels.noise.aes import derive
from cutlayer.workers import Workers

HASH_CONTEXT = b"cutlayer psi 1 "
DUMMY_RANK = -1
"""Rank of a point that stands for no row."""


class Purpose(StrEnum):
    """Purposes of an alignment; all parties must name the same."""

    TRAIN = "train"
    """Both sides learn the common rows."""
    PREDICT = "predict"
    """Both sides learn the common rows, which are to be predicted with a trained model."""
    ALIGN = "align"
    """Both sides learn the common rows; no training follows."""
    ALIGN_ACTIVE = "align active"
    """Only the active party learns the common rows."""
    SIZE = "size"
    """The active party learns how many rows it shares with each passive party, and states that number to it."""

    @property
    def reveals_to_passive(self) -> bool:
        """Whether passive parties learn the common rows."""
        return self in (Purpose.TRAIN, Purpose.PREDICT, Purpose.ALIGN)


@dataclass(frozen=True)
class Alignment:
    """How a party takes part in an alignment.

    Attributes:
        method: `psi`; `plain`, where passive parties send a digest of every id; or `agreed`, where all parties know the
            common rows already and nothing is sent.
        purpose: What the parties align for.
        folder: Folder for the progress of a large alignment, which a later start continues; `None` for no record.
        processes: Number of worker processes; `None` for one a core.
        progress: Called after each bucket with the number of finished buckets and of all; `None` for no report.
        agreed_positions: Row numbers in the own table of the common rows, in the common order, int64 (m,), for
            `agreed`; `None` for all rows.
        held: Which of these rows each passive party has, for `agreed` at the active party of a run on all of its rows.
        agreed_ids: With several keys the ids of these rows that all parties know, uint8 (m, 16).
        row_key: Secret of the active party under which it draws the ids of rows that several keys identify, 32 bytes;
            a random one by default.
        pilot: Number of rows that each passive party releases after it; 0 where it releases all.
        random: Returns that many uniform secret bytes: the source of all masks.
        sends_ahead: Whether the active party sends its points before it knows the peers' tables: files then have fewer
            turns. The number of buckets follows from its own table alone.
        seals_proof: Whether the proof of the common rows ends with what the passive party sends next: see
            `SealingProof`. Only for a private set intersection by a single key.
    """

    method: str = "plain"
    purpose: Purpose = Purpose.TRAIN
    folder: Path | None = None
    processes: int | None = None
    progress: Callable[[int, int], None] | None = field(default=None, repr=False)
    agreed_positions: Positions | None = field(default=None, repr=False)
    held: HeldRows = field(default=ALL_HAVE_ALL, repr=False)
    agreed_ids: Digests | None = field(default=None, repr=False)
    row_key: bytes | None = field(default=None, repr=False)
    pilot: int = 0
    random: Callable[[int], bytes] = field(default=token_bytes, repr=False)
    sends_ahead: bool = False
    seals_proof: bool = False

    @property
    def stated_purpose(self) -> str:
        """What a party states at the beginning that it does; all must state the same."""
        return f"pilot {self.pilot}" if self.pilot else self.purpose.value

    def report_finished(self, buckets: int, total: int) -> None:
        """Report the number of finished buckets."""
        if self.progress is not None:
            self.progress(buckets, total)


def row_key(job: Job, secret: bytes) -> bytes:
    """The secret under which the active party draws the ids of a job's rows, 32 bytes.

    It is the same in all jobs of the same parties: a baseline, or a trial of a sweep, has the rows in the same order,
    and the same split of them.

    Args:
        job: The shared job.
        secret: Long-lived secret of the active party.
    """
    return derive(secret, b"row ids", *(name.encode() for name in sorted(job.identities.values())), size=32)


@dataclass(frozen=True)
class MaskedBucket:
    """A bucket of own rows as it is sent.

    Attributes:
        points: Masked ids and random points up to the bucket's capacity, ascending, uint8 (c, 32).
        ranks: Rank in the common order of the own table of the row at each position, int64 (c,); `DUMMY_RANK` for none.
        scalar: The secret scalar, for this bucket and peer.
    """

    points: Points
    ranks: npt.NDArray[np.int64]
    scalar: bytes = field(repr=False)


class Masker:
    """Masks a party's buckets, and those of its peers.

    Args:
        buckets: The own rows.
        workers: Processes for the work.
        run: Id of the run: part of what is hashed, so that points of two runs have nothing in common.
        random: Source of the masks.
    """

    def __init__(self, buckets: Buckets, workers: Workers, run: str, random: Callable[[int], bytes]) -> None:
        self.buckets, self._workers, self._random = buckets, workers, random
        self._context = HASH_CONTEXT + run.encode()[:128]

    def hash_bucket(self, bucket: int) -> Points:
        """The rows of a bucket as points, uint8 (m, 32), in the common order; the same for all peers, and secret."""
        return self._workers.map(hash_to_group, self.buckets.digests(bucket), self._context)

    def mask(self, bucket: int, hashed: Points) -> MaskedBucket:
        """A bucket under a new scalar, filled up with random points and sorted."""
        scalar, capacity = random_scalar(self._random), self.buckets.capacity
        points = np.concatenate([self.remask(hashed, scalar), random_points(capacity - len(hashed), self._random)])
        ranks = np.full(capacity, DUMMY_RANK, dtype=np.int64)
        ranks[: len(hashed)] = self.buckets.first(bucket) + np.arange(len(hashed))
        order = sorted_points(points)
        return MaskedBucket(points[order], ranks[order], scalar)

    def remask(self, points: Points, scalar: bytes) -> Points:
        """Points multiplied by a scalar, in their order.

        Raises:
            ProtocolError: A point is the identity, or no point.
        """
        return self._workers.map(multiply, points, scalar)


def checked_bits(bits: int, mine: int, theirs: int, max_rows: int, *, only: bool = False, ahead: bool = False) -> int:
    """The number of buckets that the active party states, as bits, if it fits the tables.

    Too few buckets would need more memory than planned. Each is filled up, so that too many give the active party more
    points than rows, and it tests an id by each: see `check_points`.

    Args:
        bits: The stated number.
        mine: Number of rows that this party states.
        theirs: Number of rows that the active party states.
        max_rows: Maximum number of rows of any table, this party's own limit.
        only: Whether there is no other passive party, whose table might be larger than both.
        ahead: As in `Alignment`: the number is by the active party's table.

    Raises:
        ProtocolError: Another number than tables of any allowed size need.
    """
    min_bits = bucket_bits(theirs if ahead else max(mine, theirs))
    max_bits = min_bits if only or ahead else max(min_bits, bucket_bits(max_rows))
    if not min_bits <= bits <= max_bits:
        wanted = f"2^{min_bits}" if min_bits == max_bits else f"2^{min_bits} to 2^{max_bits}"
        raise ProtocolError.expected(f"{wanted} buckets of ids", f"2^{bits}")
    return bits


def check_points(rows: int, bits: int, max_rows: int, peer: str) -> None:
    """Refuse a peer whose filled buckets hold more points than a table of the largest allowed size.

    Args:
        rows: Number of rows that the peer states.
        bits: Number of bits that name a bucket.
        max_rows: Maximum number of rows of another party's table, `limits.peer_rows`.
        peer: Name of the peer.

    Raises:
        ProtocolError: It has more.
    """
    points, most = bucket_points(rows, bits), bucket_points(max_rows, bucket_bits(max_rows))
    if points > most:
        wanted = f"at most {most:,} points of ids from {peer}, by limits.peer_rows"
        got = f"{points:,}, to fill {2**bits:,} buckets with the {rows:,} rows that it states"
        raise ProtocolError.expected(
            wanted, got, "each may be an id that it guesses; raise limits.peer_rows to allow it"
        )


def received_points(port: Port, kind: Kind, bucket: int, count: int) -> Generator[Port, Message, Points]:
    """Receive a bucket of points.

    Raises:
        ProtocolError: Another number of points than the peer's stated number of rows gives.
    """
    message = yield from receive(port, kind, step=bucket)
    points: Points = message.tensors["points"].numpy()
    if points.shape != (count, POINT_BYTES):
        wanted = f"{count:,} points of {POINT_BYTES} bytes from {port.peer}, by the rows that it stated"
        raise ProtocolError.expected(wanted, " x ".join(map(str, points.shape)))
    return points


def ascending_points(port: Port, kind: Kind, bucket: int, count: int) -> Generator[Port, Message, Points]:
    """Receive a bucket of points that are sorted, so that none can be there twice.

    Raises:
        ProtocolError: They are not, or their number is another.
    """
    points = yield from received_points(port, kind, bucket, count)
    if not is_ascending(points):
        raise ProtocolError(f"expected distinct points in ascending order from {port.peer}, got others")
    return points


def send_points(port: Port, kind: Kind, bucket: int, points: Points) -> None:
    """Send a bucket of points, uint8 (n, 32)."""
    port.send(kind, step=bucket, tensors={"points": torch.from_numpy(points)})


def intersect_passive(
    port: Port, masker: Masker, rows: int, purpose: Purpose, first: int, seen: Callable[[int, Positions], None]
) -> Generator[Port, Message, None]:
    """The passive side of the buckets from `first` on: mask the own rows, and those of the active party again.

    Args:
        port: Port to the active party.
        masker: Masks the own rows.
        rows: Number of rows that the active party states.
        purpose: For a size, the active party's rows are sent back sorted: it cannot see which of them are common.
        first: First bucket.
        seen: Called after each bucket with the ranks of its indices, as `MaskedBucket.ranks`.
    """
    capacity = bucket_capacity(rows, masker.buckets.bits)
    for bucket in range(first, len(masker.buckets)):
        mine = masker.mask(bucket, masker.hash_bucket(bucket))
        send_points(port, Kind.MASKED, bucket, mine.points)
        theirs = yield from ascending_points(port, Kind.MASKED, bucket, capacity)
        again = masker.remask(theirs, mine.scalar)
        send_points(port, Kind.REMASKED, bucket, again[sorted_points(again)] if purpose is Purpose.SIZE else again)
        seen(bucket, mine.ranks)


def send_masked(ports: Mapping[str, Port], masker: Masker, bucket: int) -> Mapping[str, MaskedBucket]:
    """Send a bucket of own rows to each peer, under a scalar of its own; what was sent is returned without the points.

    Args:
        ports: Ports to the peers, by name.
        masker: Masks the own rows.
        bucket: Number of the bucket.
    """
    hashed, sent = masker.hash_bucket(bucket), {}
    for peer, port in ports.items():
        masked = masker.mask(bucket, hashed)
        send_points(port, Kind.MASKED, bucket, masked.points)
        sent[peer] = replace(masked, points=masked.points[:0])
    return sent


CommonPositions = tuple[Positions, Positions]
"""Common rows of a bucket: their ranks in the own common order, and their indices in the peer's sorted points."""


def intersect_active(
    ports: Mapping[str, Port],
    masker: Masker,
    rows: Mapping[str, int],
    first: int,
    seen: Callable[[int, Mapping[str, CommonPositions]], None],
    sent: Sequence[Mapping[str, MaskedBucket]] = (),
) -> Generator[Port, Message, None]:
    """The active side of the buckets from `first` on, with all passive parties.

    Args:
        ports: Ports to the passive parties, by name.
        masker: Masks the own rows.
        rows: Number of rows that each passive party states.
        first: First bucket.
        seen: Called after each bucket with the common rows by party; for a size only their number means something.
        sent: What `send_masked` sent of each bucket, where that was ahead.
    """
    capacity = {peer: bucket_capacity(count, masker.buckets.bits) for peer, count in rows.items()}
    for bucket in range(first, len(masker.buckets)):
        # All before the first answer: the peers then work at the same time.
        mine = sent[bucket] if sent else send_masked(ports, masker, bucket)
        matches = {}
        for peer, port in ports.items():
            theirs = yield from ascending_points(port, Kind.MASKED, bucket, capacity[peer])
            theirs = masker.remask(theirs, mine[peer].scalar)
            back = yield from received_points(port, Kind.REMASKED, bucket, masker.buckets.capacity)
            matches[peer] = _common_positions(mine[peer], back, theirs, peer)
        seen(bucket, matches)


def _common_positions(mine: MaskedBucket, back: Points, theirs: Points, peer: str) -> CommonPositions:
    """The own rows whose doubly masked point is among the peer's.

    Raises:
        ProtocolError: The peer sent a point twice, or one for two of this party's.
    """
    if not is_ascending(back[sorted_points(back)]):
        raise ProtocolError(f"expected a point for each point from {peer}, got one twice")
    indices, slots = matches(back, theirs)
    return mine.ranks[indices], slots
