"""The active party's end of a passive party's stream: lookups, each with a deadline, and probes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.channel import Kind, Message
from cutlayer.channel.compression import columns_of_bytes
from cutlayer.data.ids import Digests
from cutlayer.errors import NotApproved, ProtocolError
from cutlayer.kernels.rows.row_norms import rows_within
from cutlayer_serve.breaker import Breaker
from cutlayer_serve.link import message
from cutlayer_serve.status import WIRE, Status

logger = logging.getLogger(__name__)

MAX_RECENT_LOOKUPS = 512
"""Number of lookups whose time is held for the page."""

GRACE_SECONDS = 0.005
"""Seconds after a deadline in which this party reads what has arrived."""


@dataclass(frozen=True)
class Lookup:
    """A party's answer to a lookup.

    Attributes:
        status: Status of each row, uint8 (n,).
        embedding: Embeddings, float32 (n, width); zeros wherever a row is not present.
    """

    status: npt.NDArray[np.uint8]
    embedding: Tensor

    @classmethod
    def nothing(cls, rows: int, width: int, why: Status) -> Lookup:
        """No row is present, for one reason."""
        return cls(np.full(rows, why, dtype=np.uint8), torch.zeros(rows, width))


class Peer:
    """A connected passive party.

    Args:
        me: Name of the active party.
        name: Name of the passive party.
        version: Tag of the part that the stream serves.
        width: Number of columns of its embedding.
        limit: Maximum norm of a row of an embedding.
        send: Queues a message to be sent; raises `ConnectionError` where that is not possible, and `NotApproved` where
            nothing may be sent.
    """

    def __init__(
        self, me: str, name: str, version: str, width: int, limit: float, send: Callable[[Message], None]
    ) -> None:
        self.me, self.name, self.version, self.width, self.limit = me, name, version, width, limit
        self.breaker = Breaker()
        self.seconds: deque[float] = deque(maxlen=MAX_RECENT_LOOKUPS)
        self.connected = True
        self.ended = asyncio.Event()
        self._send, self._refused = send, ""
        self._number = self._probe_sent = 0
        self._waiting: dict[int, tuple[int, asyncio.Future[Lookup]]] = {}
        self._probing: asyncio.Task[None] | None = None

    async def look_up(self, ids: Digests, deadline: float, *, blame: bool = True) -> Lookup:
        """Ask for rows; returns by the deadline, whatever the party does.

        Args:
            ids: Digests of the ids, uint8 (n, 16).
            deadline: Time of `time.monotonic` by which an answer counts.
            blame: Whether a late answer counts against the party: not where a caller has chosen a shorter time, or it
                could have every party skipped.
        """
        if not self.connected:
            return Lookup.nothing(len(ids), self.width, Status.DISCONNECTED)
        if self.breaker.open:
            return Lookup.nothing(len(ids), self.width, Status.BROKEN)
        self._number += 1
        number = self._number
        began = time.monotonic()
        future: asyncio.Future[Lookup] = asyncio.get_running_loop().create_future()
        self._waiting[number] = len(ids), future
        asked = False
        try:
            request = message(Kind.LOOKUP, self.me, self.name, self.version, number, {"ids": torch.from_numpy(ids)})
            self._send(request)
            asked = True
            await asyncio.wait({future}, timeout=max(0.0, deadline - began))
            if not future.done():
                # Where this process itself was late, an answer in time may have arrived and wait to be read.
                await asyncio.wait({future}, timeout=GRACE_SECONDS)
            if not future.done():
                if blame:
                    self._missed()
                return Lookup.nothing(len(ids), self.width, Status.LATE)
            answer = future.result()
        except NotApproved as refused:
            if str(refused) != self._refused:  # once, and not at each lookup
                self._refused = str(refused)
                logger.warning("%s", refused)
            return Lookup.nothing(len(ids), self.width, Status.UNAPPROVED)
        except (OSError, ProtocolError):  # not sent, as it could not be recorded, or the stream ended
            return Lookup.nothing(len(ids), self.width, Status.LOST if asked else Status.DISCONNECTED)
        finally:
            self._waiting.pop(number, None)
        self.breaker.answered()
        self.seconds.append(time.monotonic() - began)
        return answer

    def deliver(self, arrived: Message) -> None:
        """Take a message of the party.

        Raises:
            ProtocolError: It is no answer, or holds what no honest party sends; the stream must end.
        """
        if (arrived.sender, arrived.receiver, arrived.run) != (self.name, self.me, self.version):
            raise ProtocolError.expected(f"a message from {self.name} of version {self.version}", arrived.run[:40])
        if arrived.kind is Kind.ALIVE:
            if not 0 < arrived.sequence <= self._probe_sent:
                raise ProtocolError.expected(f"an answer of {self.name} to a probe", "one to none")
            self.breaker.alive()
            return
        if arrived.kind is not Kind.LOOKED_UP:
            raise ProtocolError.expected(f"an answer of {self.name}", arrived.kind)
        waiting = self._waiting.get(arrived.sequence)
        if waiting is None:  # too late, or never asked: it must still be within its bounds to be ignored
            return
        rows, future = waiting
        answer = self._checked(arrived, rows)
        if not future.done():
            future.set_result(answer)

    def lost(self) -> None:
        """The stream has ended: all lookups under way fail at once."""
        self.connected = False
        self.ended.set()
        for _, future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(self.name))
        if self._probing is not None:
            self._probing.cancel()

    def _checked(self, arrived: Message, rows: int) -> Lookup:
        embedding = arrived.tensors["embedding"]
        status = arrived.tensors["status"].numpy()
        if embedding.dtype == torch.uint8:  # grades; one that the job has not is refused
            embedding = columns_of_bytes(embedding, self.width, f"grades of {self.name}")
        if embedding.shape != (rows, self.width) or len(status) != rows:
            wanted = f"{rows} rows of width {self.width} from {self.name}"
            raise ProtocolError.expected(wanted, f"{tuple(embedding.shape)} with {len(status)} statuses")
        if int(status.max(initial=0)) > WIRE[-1]:
            raise ProtocolError.expected(f"a known status from {self.name}", int(status.max()))
        if not rows_within(embedding, self.limit):
            raise ProtocolError.expected(f"finite rows of norm up to {self.limit:g} from {self.name}", "others")
        # What a row that is not present carries never reaches the top model.
        absent = torch.from_numpy(status != Status.PRESENT)
        return Lookup(status, embedding.masked_fill(absent[:, None], 0.0) if bool(absent.any()) else embedding)

    def _missed(self) -> None:
        self.breaker.missed()
        if self.breaker.open and self.connected and (self._probing is None or self._probing.done()):
            self._probing = asyncio.get_running_loop().create_task(self._probe())

    async def _probe(self) -> None:
        """Ask whether the party answers again, until it does."""
        while self.breaker.open and self.connected:
            self._number += 1
            probe = message(Kind.PROBE, self.me, self.name, self.version, self._number)
            with suppress(OSError, ProtocolError, NotApproved):
                self._send(probe)
                self._probe_sent = self._number
            await asyncio.sleep(self.breaker.pause)
