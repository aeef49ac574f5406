"""A passive party: features and a bottom model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from cutlayer.channel import Message, Port
from cutlayer.config.phases import Phase
from cutlayer.parties.faults import FaultPoint
from cutlayer.parties.phases import agree, close, end_to_end, labels, leave, release, warm_up
from cutlayer.parties.phases.passive_side import PassiveSide
from cutlayer.parties.session.outcome import PassiveOutcome
from cutlayer.storage.row_arrays import give_back_memory

PHASES: Mapping[Phase, Callable[[PassiveSide], Generator[Port, Message, None]]] = {
    Phase.WARM_UP: warm_up.follow,
    Phase.LABELS: labels.follow,
    Phase.RELEASE: release.follow,
    Phase.LEAVE: leave.follow,
    Phase.END_TO_END: end_to_end.follow,
}


class PassiveParty(PassiveSide):
    """Follows a run from the agreement to the end; its arguments are those of `PassiveSide`."""

    def run(self) -> Generator[Port, Message, PassiveOutcome]:
        """Agree with the active party, follow the phases of the job in their order, and close.

        Raises:
            ProtocolError: The active party is at another point of the schedule, or holds other rows.
            NotApplied: A protection of this party missed a message.
        """
        yield from agree.follow(self)
        for phase in self.phases:
            give_back_memory()  # what the phase before needed
            self.local.faults(FaultPoint.PHASE, self.local.name, phase)
            yield from PHASES[phase](self)
        return (yield from close.follow(self))
