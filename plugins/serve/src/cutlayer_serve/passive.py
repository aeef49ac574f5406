"""The online service of a passive party: answers the active party's lookups over one stream."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import numpy as np
import torch
from cryptography import x509

from cutlayer.channel import Kind, Message
from cutlayer.channel.address import check_loopback
from cutlayer.channel.codec import WIRE_VERSION, decode, encode
from cutlayer.channel.compression import grade_bytes
from cutlayer.channel.contract import printable_line
from cutlayer.channel.grpc_link import FROM_KEY, RUN_KEY, TO_KEY, WIRE_KEY, channel_options
from cutlayer.channel.security import Security
from cutlayer.channel.trail import Trail
from cutlayer.errors import DataError, Diverged, PeerLost, ProtocolError
from cutlayer.models.grade import GradeBottom
from cutlayer.serving.drift import ColumnDrift
from cutlayer_serve.audit_log import AuditLog, ids_digest
from cutlayer_serve.features import checked_ids
from cutlayer_serve.link import (
    ACCEPTED_METADATA,
    KEEPALIVE,
    LIMITS,
    METHOD,
    SERVICE,
    connect,
    message,
    wait_until_invalid,
)
from cutlayer_serve.releases import LookupAnswer, OnlineReleases
from cutlayer_serve.sample import ServedSample
from cutlayer_serve.status import Status

logger = logging.getLogger(__name__)

MAX_ROWS = 65_536
"""Maximum number of rows of a lookup."""
_BACKOFF = (0.05, 1.0)
"""Seconds before the first attempt to connect again, and the maximum; each waits twice as long as the one before."""
_FATAL_CODES = {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT}


@dataclass
class LookupCounts:
    """Counts of a passive party's answers.

    Attributes:
        rows: Number of rows by status.
        lookups: Number of lookups.
        seconds: Time spent on them.
        connected: Whether the stream is open and accepted.
    """

    rows: dict[Status, int] = field(default_factory=dict)
    lookups: int = 0
    seconds: float = 0.0
    connected: bool = False


class PassiveService:
    """Connects to the active party, again whenever the stream ends, and answers its lookups.

    Args:
        releases: The party's releases, entered.
        address: Address where the active party listens.
        audit: Log of the releases.
        drift: Counts the rows of every lookup, for the drift of the party's columns; `None` for none.
        security: Certificates and identities; `None` for a stream without TLS on this machine.
        trail: Records every message before it is sent; `None` for none.
        sample: Records a sample of the releases; `None` for none.
    """

    def __init__(
        self,
        releases: OnlineReleases,
        address: str,
        audit: AuditLog,
        drift: ColumnDrift | None = None,
        security: Security | None = None,
        trail: Trail | None = None,
        sample: ServedSample | None = None,
    ) -> None:
        self.security = security
        self.trail = trail
        self.sample = sample
        self.releases = releases
        self.address = address
        self.audit = audit
        self.drift = drift
        trained = releases.trained
        self.party = trained.party
        self.active = trained.job.active
        self.tag = trained.tag(trained.party)
        self.answered = LookupCounts()
        self._outages = set[str]()

    async def run(self) -> None:
        """Serve until it is cancelled.

        Raises:
            TrustError: A certificate is refused, here or there.
            ProtocolError: The active party refuses this one for good, or something else answers at the address.
            CutlayerError: A protection was not applied, or the release log cannot be written: nothing was sent.
        """
        wait = _BACKOFF[0]
        while True:
            reason = ""
            try:
                await self._session()
            except PeerLost as lost:  # nobody shows a certificate at the address
                reason = str(lost)
            except grpc.aio.AioRpcError as lost:
                self._check_end(lost.code(), lost.details() or "")
                reason = self._reason(lost.code())
            if reason:  # a warning once for each outage and reason, not at every attempt
                level = logging.INFO if reason in self._outages else logging.WARNING
                problem = f"no stream to {self.active} at {self.address}"
                logger.log(level, "%s: %s; trying again until it answers: %s", self.party, problem, reason)
                self._outages.add(reason)
            wait = _BACKOFF[0] if self.answered.connected else min(2 * wait, _BACKOFF[1])
            self.answered.connected = False
            await asyncio.sleep(wait)

    async def _session(self) -> None:
        channel, certificate = await self._channel()
        async with channel:
            watch = asyncio.create_task(self._watch(certificate))
            try:
                await self._converse(channel, watch)
            finally:
                watch.cancel()

    async def _channel(self) -> tuple[Any, x509.Certificate | None]:
        """A channel to the active party, and the certificate that it showed; neither sends anything."""
        options = [*channel_options(LIMITS), *KEEPALIVE]
        if self.security is None:
            return grpc.aio.insecure_channel(check_loopback(self.address), options=options), None
        pinned, named, certificate = await asyncio.to_thread(self.security.pin_peer, self.address, self.active)
        return grpc.aio.secure_channel(self.address, pinned, options=[*options, *named]), certificate

    async def _watch(self, certificate: x509.Certificate | None) -> None:
        if self.security is None or certificate is None:
            await asyncio.Event().wait()
        else:
            await wait_until_invalid(self.security, certificate)

    async def _converse(self, channel: Any, watch: asyncio.Task[None]) -> None:
        """Offer the part, and answer until the stream ends or the other certificate no longer holds.

        Not before the active party has accepted the stream of this part: the trail has what left, and while nobody
        answers, or no run of the part is loaded there, an offer each second would fill it.
        """
        await connect(channel)
        names = (FROM_KEY, self.party.encode()), (TO_KEY, self.active.encode()), (RUN_KEY, self.tag.encode())
        metadata = (*names, (WIRE_KEY, str(WIRE_VERSION)))
        call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(metadata=metadata)
        watch.add_done_callback(lambda _: call.cancel())
        try:
            if ACCEPTED_METADATA[0] in tuple(await call.initial_metadata() or ()):
                offer = {"version": self.tag, "width": self.releases.bottom.width}
                await call.write(self._leaving(self._message(Kind.OFFER, 0, fields=offer)))
                self._accepted()
            while (frame := await call.read()) is not grpc.aio.EOF:
                try:
                    answer = self._answer(decode(frame, LIMITS))
                    frame = self._leaving(answer)
                except (ProtocolError, OSError) as fault:  # nothing leaves; the stream is opened anew
                    logger.warning("%s: the stream to %s was ended: %s", self.party, self.active, fault)
                    return
                await call.write(frame)
            code = await call.code()
            self._check_end(code, await call.details())
            if code is grpc.StatusCode.FAILED_PRECONDITION:
                raise PeerLost(self._reason(code))
        finally:
            call.cancel()

    def _accepted(self) -> None:
        """Say that an outage is over, as loudly as that it began."""
        self.answered.connected = True
        if self._outages:
            logger.warning("%s: connected to %s at %s", self.party, self.active, self.address)
        self._outages.clear()

    def _leaving(self, sent: Message) -> bytes:
        """The frame of a message, which is in the trail by then."""
        if self.trail is not None:
            self.trail.record(sent)
        return encode(sent, LIMITS)

    def _answer(self, request: Message) -> Message:
        if (request.sender, request.receiver, request.run) != (self.active, self.party, self.tag):
            raise ProtocolError.expected(f"a message from {self.active} of version {self.tag}", request.run[:40])
        if request.kind is Kind.PROBE:
            return self._message(Kind.ALIVE, request.sequence)
        if request.kind is not Kind.LOOKUP:
            raise ProtocolError.expected("a lookup or a probe", request.kind)
        began = time.perf_counter()
        ids = checked_ids(request.tensors["ids"], MAX_ROWS)
        try:
            released = self.releases.release(ids)
        except (OSError, DataError, Diverged) as fault:
            logger.warning("%s: a lookup failed: %s", self.party, fault)
            released = LookupAnswer.nothing(len(ids), self.releases.bottom.width, Status.FAILED)
        try:
            self._record(ids, released)
        except OSError as fault:  # what has no line does not leave
            logger.error("%s: a lookup was not answered: %s", self.party, fault)
            released = LookupAnswer.nothing(len(ids), self.releases.bottom.width, Status.FAILED)
        self.answered.lookups += 1
        self.answered.seconds += time.perf_counter() - began
        embedding = released.embedding
        if isinstance(self.releases.bottom, GradeBottom):
            embedding = grade_bytes(embedding)
        tensors = {"embedding": embedding.contiguous(), "status": torch.from_numpy(released.status)}
        return self._message(Kind.LOOKED_UP, request.sequence, tensors)

    def _record(self, ids: Any, released: LookupAnswer) -> None:
        """Write the audit line before the answer leaves."""
        counts = {Status(code): int(count) for code, count in enumerate(np.bincount(released.status)) if count}
        self.audit.write(
            party=self.party,
            to=self.active,
            version=self.tag,
            rows=len(ids),
            ids=ids_digest(ids),
            released=counts.get(Status.PRESENT, 0),
            refused=counts.get(Status.CAPPED, 0),
        )
        for code, count in counts.items():
            self.answered.rows[code] = self.answered.rows.get(code, 0) + count
        rows, embedding = released.rows, released.embedding
        if counts.keys() != {Status.PRESENT}:
            present = released.status == Status.PRESENT
            ids = ids[present]
            rows = rows[present]
            embedding = embedding[torch.from_numpy(present)]
        if self.drift is not None and len(rows):
            self.drift.add_rows(self.releases.features.store, rows)
        if self.sample is not None and len(rows):
            self.sample.add(ids, embedding, lambda chosen: self.releases.features.gather(rows[chosen]))

    def _message(self, kind: Kind, number: int, tensors: Any = None, fields: Any = None) -> Message:
        return message(kind, self.party, self.active, self.tag, number, tensors, fields)

    def _reason(self, code: grpc.StatusCode) -> str:
        """Why there is no stream, in words where the part's operator can do something about it."""
        if code is grpc.StatusCode.FAILED_PRECONDITION:
            return f"it has no run loaded that part {self.tag} belongs to"
        return str(code.name)

    def _check_end(self, code: grpc.StatusCode, why: str) -> None:
        """Raise where another attempt would be refused too."""
        if code in _FATAL_CODES:
            raise ProtocolError(
                f"{self.active} at {self.address} refused the stream: {printable_line(why or code.name)}"
            )
