"""The active party's side of a run: what its phases share."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import DONE_REASON, receive
from cutlayer.config import Job
from cutlayer.data.batches import Schedule
from cutlayer.data.prepared import Prepared
from cutlayer.data.split import Split
from cutlayer.models.absence import Names
from cutlayer.parties.active_evaluation import Evaluation, evaluate
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.agreement.handshake import Agreement
from cutlayer.parties.agreement.partners import Partners
from cutlayer.parties.begun_table import TableChecksums
from cutlayer.parties.phases.active_epochs import ActiveEpochs
from cutlayer.parties.session.checkpoint import Commits
from cutlayer.parties.session.evidence import parse_all_evidence, parse_evidence
from cutlayer.parties.session.local import LocalSide, prepare_links
from cutlayer.parties.session.observer import Observer
from cutlayer.parties.session.passives import Passives
from cutlayer.parties.session.state import PartyState
from cutlayer.parties.stopping import EarlyStopping
from cutlayer.protections.contract.base import Evidence


class ActiveSide:
    """Receives embeddings, trains the top model and returns the cut gradients.

    Args:
        job: The shared job.
        local: This party's own table, labels, protections and folder.
        ports: Ports to the passive parties, by name, in the job's order; none where all have released their rows, which
            are in the folder.
        observer: Called at every stage of the run; it gets no data of another party.
        when_alone: Called once the passive parties have no further part in the run, before any work on labels; it
            closes their links.

    Attributes:
        commits: The commits that this start of the run could go on from, by point; set by `agree`, as all that follows.
        agreement: What the parties agreed on.
        reported_ids: Ids of the rows that the run is measured on.
        split: Rows for training, validation and testing.
        training: Training rows whose messages are audited: those that every party has, int64 (t,).
        schedule: The batches that are trained on; where no step is taken, those in which audited rows are recorded.
        prepared: Encoded columns and labels.
        table_checksums: What the table held when the run began.
        rows: Digest of the ids of the rows, in hexadecimal digits; once models are set up, with their batches.
        setup: Labels, models and protections; made by the phase `set_up`.
        epoch: Number of the next epoch.
        stopping: Decides when training stops.
    """

    commits: Commits
    agreement: Agreement
    reported_ids: pa.ChunkedArray
    split: Split
    training: npt.NDArray[np.int64]
    schedule: Schedule
    prepared: Prepared
    table_checksums: TableChecksums
    rows: str
    setup: ActiveSetup
    epoch: int

    def __init__(
        self,
        job: Job,
        local: LocalSide,
        ports: Mapping[str, Port],
        observer: Observer,
        when_alone: Callable[[], None] = lambda: None,
    ) -> None:
        self.job, self.local, self.ports, self.observer = job, local, ports, observer
        self.when_alone = when_alone
        self.passives = Passives(job, local, ports, self._go_on_without)
        self.presence, self.usage = self.passives.presence, self.passives.usage
        self.stopping = EarlyStopping()
        self.statements: dict[str, str] = {}
        prepare_links(job, local, ports.values())
        self.checkpoints = local.checkpoints(job)
        self.partners = None if ports else Partners.load(self.checkpoints)
        if self.partners is not None:
            self.presence.dismissed, self.statements = True, dict(self.partners.evidence)

    @property
    def run_id(self) -> str:
        """Id of the training: that of the first passive party."""
        return next(iter(self.runs.values()))

    @property
    def runs(self) -> Mapping[str, str]:
        """Id of the training at each passive party: the same at all, but where each sent its release as a file."""
        if self.partners is not None:
            return self.partners.runs
        return {name: port.run for name, port in self.ports.items()}

    @property
    def state(self) -> PartyState:
        """Models, optimiser and protections."""
        return self.setup.state

    @cached_property
    def epochs(self) -> ActiveEpochs:
        """The epochs, which begin with the first use: a resumed run then has the random state that it stored."""
        return ActiveEpochs(self)

    @property
    def evaluated_part(self) -> str:
        """The part of the rows that is evaluated after each epoch."""
        return "validation" if len(self.split.validation) else "test"

    @property
    def reported_part(self) -> str:
        """The part of the rows that the run is measured on at its end."""
        return "test" if len(self.split.test) else self.evaluated_part

    def evaluate(self, part: str, epoch: int, absent: Sequence[Names] = ()) -> Generator[Port, Message, Evaluation]:
        """Metrics and logits of a part of the rows; see `active_evaluation.evaluate`."""
        return (yield from evaluate(self.setup, self.passives, part, self.split.part(part), epoch, absent))

    def dismiss(self) -> Generator[Port, Message, Sequence[Evidence]]:
        """End the passive parties' part of the run, unless that has happened; returns their evidence."""
        if self.presence.dismissed:
            return parse_all_evidence(self.statements)
        for port in self.presence.ports.values():
            self.presence.send(port, Kind.CLOSE, fields={"reason": DONE_REASON})
        for name, port in self.presence.ports.items():
            message = yield from self.presence.receive(receive(port, Kind.EVIDENCE), name)
            if message is not None:
                self.statements[name] = str(message.fields["json"])
                parse_evidence(self.statements[name], name)  # refused before the answer is waited for
                yield from self.presence.receive(receive(port, Kind.CLOSE), name)
        self.presence.dismissed = True
        return parse_all_evidence(self.statements)

    def _go_on_without(self) -> None:
        """After a loss, no earlier epoch is the best: its metrics are those of a model that has the party."""
        self.stopping.best, self.stopping.stale = -math.inf, 0
