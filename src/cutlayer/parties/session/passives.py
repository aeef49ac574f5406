"""The passive parties as the active one meets them: who sends in every step, who released once, and who is lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence

import torch
from torch import Tensor

from cutlayer.alignment.held_rows import ALL_HAVE_ALL, PartOfBatch
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive
from cutlayer.config import Job
from cutlayer.config.phases import Phase, grades_rows
from cutlayer.kernels.rows.packed_rows import row_bytes
from cutlayer.parties.messages import checked_embedding
from cutlayer.parties.session.local import LocalSide
from cutlayer.parties.session.presence import Presence
from cutlayer.parties.session.usage import Usage
from cutlayer.storage.row_tensors import filled_rows

NO_PARTS: Mapping[str, PartOfBatch] = {}
"""Every party has every row of a batch."""


class Passives:
    """The passive parties, their embeddings and the gradients that they receive.

    Args:
        job: The shared job.
        local: The active party's private side.
        ports: Ports to the passive parties, by name, in the job's order; none where their releases are stored.
        on_loss: Called once for each party that is lost.

    Attributes:
        streaming_ports: Ports to parties that send an embedding in every step; all others release each row once.
        gradient_ports: Ports to parties that receive gradients: all of them at first, and the streaming ones after the
            single releases.
        released: Embeddings by row, (n, width), of the parties that release once: zeros until they arrive.
        widths: Number of columns of each embedding.
        presence: Which parties are still there.
        usage: Time and traffic.
        held: Which of the active party's rows each party has.
    """

    def __init__(self, job: Job, local: LocalSide, ports: Mapping[str, Port], on_loss: Callable[[], None]) -> None:
        self._job, self.local, self._on_loss = job, local, on_loss
        self.ports = ports
        self._streaming = [name for name in job.passives if Phase.RELEASE not in job.phases_of(name)]
        self._learning: Sequence[str] = job.passives
        self.streaming_ports = {name: port for name, port in ports.items() if name in self._streaming}
        self.gradient_ports = dict(ports)
        self.released: dict[str, Tensor] = {}
        self.widths: dict[str, int] = {}
        self.held = ALL_HAVE_ALL
        self.presence = Presence(job, ports, self._drop)
        self.usage = Usage(ports, job.passives)

    def _drop(self, name: str) -> None:
        """Train on without a party, as if `party_dropout` dropped it in every step."""
        self.gradient_ports = {peer: port for peer, port in self.gradient_ports.items() if peer != name}
        self.streaming_ports = {peer: port for peer, port in self.streaming_ports.items() if peer != name}
        self.released.pop(name, None)
        self._on_loss()

    def begin(self, widths: Mapping[str, int], rows: int) -> None:
        """Set the width of each party's embedding; zeros stand for single releases, which every epoch then reuses."""
        self.widths = {name: widths[name] for name in self._job.passives}
        released = [name for name in self.widths if name not in self._streaming]
        self.released = {name: filled_rows(rows, widths[name], 0, torch.float32) for name in released}

    @property
    def graded_parties(self) -> Collection[str]:
        """Names of the parties that released a grade of each row."""
        return {name for name in self.released if grades_rows(self._job, name)}

    def stop_gradients(self) -> None:
        """Send no further gradients to the parties that release once: their bottom models no longer change."""
        self.gradient_ports, self._learning = self.streaming_ports, self._streaming

    def receive(
        self,
        kind: Kind,
        epoch: int,
        step: int,
        rows: Tensor,
        digest: bytes,
        parts: Mapping[str, PartOfBatch] = NO_PARTS,
    ) -> Generator[Port, Message, dict[str, Tensor]]:
        """The embeddings of some rows, by party; zeros of those that are lost, and of rows that a party lacks.

        Args:
            kind: Kind of the messages.
            epoch: Number of the epoch.
            step: Number of the step within it, or of the batch of held-out rows.
            rows: Row numbers, int64 (n,).
            digest: Digest of these.
            parts: The part of these rows that each party has which lacks some, by name.
        """
        received = {}
        for name, width in self.widths.items():
            part, embedding = parts.get(name), None
            if name in self.released:
                received[name] = self.local.resident.take(f"released by {name}", self.released[name], rows)
                continue
            if name not in self.presence.lost:
                own, asked = (rows, digest) if part is None else (part.rows, part.digest)
                embedding = yield from self.receive_of(name, kind, epoch, step, own, asked)
            if embedding is None:
                received[name] = torch.zeros(len(rows), width, device=self.local.device)
            else:
                received[name] = embedding if part is None else part.spread(embedding)
        return received

    def receive_of(
        self, name: str, kind: Kind, epoch: int, step: int, rows: Tensor, digest: bytes
    ) -> Generator[Port, Message, Tensor | None]:
        """The embeddings of a party's rows, by its own numbers, int64 (m,), with their digest; `None` if it is lost."""
        message = yield from self.presence.receive(receive(self.ports[name], kind, epoch, step, digest), name)
        if message is None:
            return None
        limit, width = self.local.config.limits.embedding_norm, self.widths[name]
        readings = self.local.readings if kind is Kind.EMBEDDING else None
        embedding = self.local.placed(checked_embedding(message, rows.shape[0], width, limit, readings))
        self._count(kind, embedding)
        return embedding

    def presence_masks(self, parts: Mapping[str, PartOfBatch]) -> dict[str, Tensor]:
        """Which of some rows (n) each party has that lacks some, bool (n,), by name; none of a party that is lost."""
        left = self.presence.lost
        return {name: torch.zeros_like(part.mask) if name in left else part.mask for name, part in parts.items()}

    def send_gradients(
        self,
        epoch: int,
        step: int,
        rows: int,
        gradients: Mapping[str, Tensor],
        digest: bytes,
        parts: Mapping[str, PartOfBatch] = NO_PARTS,
    ) -> dict[str, Tensor]:
        """Send the cut gradients of some rows.

        Args:
            epoch: Number of the epoch.
            step: Number of the step within the epoch.
            rows: Number of rows.
            gradients: Protected cut gradient of each party that receives one, (n, width).
            digest: Digest of the rows.
            parts: The part of these rows that each party has which lacks some, by name; its gradient is of that part.

        Returns:
            The gradients as they crossed, by party, (n, width); zeros for each that is lost, as for a party that
            `party_dropout` drops, and for rows that a party lacks.
        """
        sent = {}
        for name, port in self.gradient_ports.items():
            held, tensors = parts.get(name), {"gradient": gradients[name]}
            of_rows = digest if held is None else held.digest
            message = self.presence.send(port, Kind.GRADIENT, epoch=epoch, step=step, rows=of_rows, tensors=tensors)
            if message is not None:
                crossed = message.tensors["gradient"]
                self._count(Kind.GRADIENT, crossed)
                sent[name] = crossed if held is None else held.spread(crossed)
        for name in self.presence.lost:
            if name in self._learning:
                sent[name] = torch.zeros(rows, self.widths[name], device=self.local.device)
        return sent

    def _count(self, kind: Kind, rows: Tensor) -> None:
        """Count the bytes of some rows as they crossed."""
        self.usage.count(kind, rows.shape[0] * row_bytes(self._job.channel.compress, rows.shape[1]))
