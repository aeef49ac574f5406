"""The active party: labels, the top model, and the lead."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from cutlayer.channel import Message, Port
from cutlayer.config.phases import Phase
from cutlayer.parties.faults import FaultPoint
from cutlayer.parties.phases import agree, close, end_to_end, fit, labels, leave, release, set_up, warm_up
from cutlayer.parties.phases.active_side import ActiveSide
from cutlayer.parties.session.outcome import ActiveOutcome
from cutlayer.storage.row_arrays import give_back_memory

PHASES: Mapping[Phase, Callable[[ActiveSide], Generator[Port, Message, None]]] = {
    Phase.SET_UP: set_up.lead,
    Phase.WARM_UP: warm_up.lead,
    Phase.LABELS: labels.lead,
    Phase.RELEASE: release.lead,
    Phase.LEAVE: leave.lead,
    Phase.END_TO_END: end_to_end.lead,
    Phase.TRAIN_ALONE: end_to_end.lead,  # without ports: no message is sent
    Phase.FIT: fit.lead,
}


class ActiveParty(ActiveSide):
    """Leads a run from the agreement to the end; its arguments are those of `ActiveSide`."""

    def run(self) -> Generator[Port, Message, ActiveOutcome]:
        """Agree with all parties, lead the phases of the job in their order, and close.

        Raises:
            ProtocolError: A passive party is at another point of the schedule, or holds other rows.
            NotApplied: A protection of this party missed a message.
        """
        yield from self._lead(self.job.phases)
        return (yield from close.lead(self))

    def send_labels(self) -> Generator[Port, Message, None]:
        """Agree, and send drawn labels: the part of a run before partners release, which is a file where they read one.

        The rest of the run begins again from here, with the same draws.
        """
        phases = self.job.phases
        yield from self._lead(phases[: phases.index(Phase.RELEASE)])

    def _lead(self, phases: Sequence[Phase]) -> Generator[Port, Message, None]:
        yield from agree.lead(self)
        for phase in phases:
            give_back_memory()  # what the phase before needed
            self.local.faults(FaultPoint.PHASE, self.local.name, phase)
            yield from PHASES[phase](self)
