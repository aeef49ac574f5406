"""The passive parties that are still there, and those that training goes on without."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import MessageWait
from cutlayer.config import Job
from cutlayer.errors import PeerLost


class LostParty(NamedTuple):
    """When a party was lost.

    Attributes:
        epoch: Number of the epoch, from 0; -1 after the last.
        step: Number of the step within it, or of the batch of held-out rows.
        why: Reason, as in the error that would have stopped the run.
    """

    epoch: int
    step: int
    why: str


class Presence:
    """Lets the active party go on without passive parties whose `on_absent` is `continue`.

    Args:
        job: The shared job.
        ports: Ports to the passive parties, by name.
        on_loss: Called with the name of each party that is lost, once.

    Attributes:
        lost: The parties that were lost, by name.
        position: Epoch and step under way; `None` before the training, where nobody may be lost.
        must_keep_one: Whether a party must stay, because no other party has an embedding.
        dismissed: Whether the passive parties' part of the run has ended.
    """

    def __init__(self, job: Job, ports: Mapping[str, Port], on_loss: Callable[[str], None]) -> None:
        self._may_leave = {name for name in ports if job.parties[name].on_absent == "continue"}
        self._ports, self._on_loss = ports, on_loss
        self.lost: dict[str, LostParty] = {}
        self.position: tuple[int, int] | None = None
        self.must_keep_one = False
        self.dismissed = False

    @property
    def ports(self) -> dict[str, Port]:
        """Ports to the parties that are there; none once their part of the run has ended."""
        return {} if self.dismissed else {name: port for name, port in self._ports.items() if name not in self.lost}

    def send(self, port: Port, kind: Kind, **content: Any) -> Message | None:
        """Send a message to a party, and return it as it crossed; `None` if the party is lost.

        Raises:
            PeerLost: It is lost, and the run does not go on without it.
        """
        try:
            return port.send(kind, **content)
        except PeerLost as lost:
            self.go_on_without(port.peer, lost)
            return None

    def receive(self, waiting: MessageWait, peer: str) -> Generator[Port, Message, Message | None]:
        """Wait for a message; `None` if its sender is lost.

        Raises:
            PeerLost: It is lost, and the run does not go on without it.
        """
        try:
            return (yield from waiting)
        except PeerLost as lost:
            self.go_on_without(peer, lost)
            return None

    def go_on_without(self, name: str, lost: PeerLost) -> None:
        """Go on without a party from now on.

        Raises:
            PeerLost: The job does not allow it, or nobody would be left to learn from.
        """
        if name in self.lost:
            return
        alone = self.must_keep_one and len(self.ports) == 1
        if self.position is None or name not in self._may_leave or alone:
            raise lost
        self.lost[name] = LostParty(*self.position, str(lost))
        self._on_loss(name)
