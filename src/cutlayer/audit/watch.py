"""The audit of a run in progress: attacks its sampled steps epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from cutlayer.alignment.held_rows import HeldRows, held_of_run
from cutlayer.attacks import resolve
from cutlayer.audit.auditor import Auditor
from cutlayer.channel.row_history import write_own_embeddings
from cutlayer.channel.transcript import Step, read_epochs
from cutlayer.config import Job
from cutlayer.parties.session.observer import Observer, Relay, WatchedParty
from cutlayer.problem.task import Task
from cutlayer.training.folder import RunFolder


class Watcher(Relay):
    """Passes the sampled steps of a run to its auditor, and all calls to another observer.

    Args:
        job: The job as run; its active party's `audit` says what is attacked, and when.
        folder: Folder of the run.
        progress: Observer that receives every call too.
    """

    def __init__(self, job: Job, folder: RunFolder, progress: Observer) -> None:
        super().__init__(progress)
        self.job = job
        self.folder = folder
        self.every = job.parties[job.active].audit.every
        self.passives: Mapping[str, WatchedParty] = {}
        self.auditor: Auditor | None = None

    def connected(self, parties: Mapping[str, WatchedParty]) -> None:
        """Attack what the passive parties recorded as well, such as their layers."""
        self.passives = parties
        super().connected(parties)

    def started(self, task: Task, truth: Tensor, training: Tensor, epochs: int, start: int) -> None:
        """Set up the auditor; after a resume it first reads what was recorded."""
        if self.every != "never":
            active = self.job.active
            attacks = resolve(self.job.parties[active].audit.catalogue, task.kind).labels
            self.auditor = Auditor(task, truth, training, attacks, active, self.job.train.seed)
            if start:
                attack_recorded_steps(self.job, self.folder, self.auditor, [active, *self.passives], start)
        super().started(task, truth, training, epochs, start)

    def leaks(self, epoch: int, steps: Sequence[Step]) -> Mapping[str, float]:
        """Attack the epoch's sampled steps; those of an epoch that is not recorded are of an earlier one."""
        if self.every == "end" or self.auditor is None or (steps and steps[0].epoch != epoch):
            return {}
        recorded = {name: party.steps() for name, party in self.passives.items()}
        # What a party that was lost recorded is of an earlier epoch, or of a part of this one.
        least = len(steps) if self.job.rows == "common" else 0  # else each party has a sample of its own
        recorded = {name: known for name, known in recorded.items() if len(known) >= least}
        recorded = {name: known for name, known in recorded.items() if not known or known[0].epoch == epoch}
        recorded = {name: _with_common_numbers(known, self._held, name) for name, known in recorded.items()}
        return self.auditor.take(epoch, {self.job.active: steps, **recorded})

    @cached_property
    def _held(self) -> HeldRows:
        """Which of the active party's rows each passive party has; not to be asked before the run has begun."""
        return held_of_run(self.job, self.folder.path)

    def followed(self, epoch: int, rows: Mapping[str, Tensor]) -> None:
        """Record what every passive party's final weights make of the followed rows."""
        for name, party in self.passives.items():
            write_own_embeddings(self.folder.transcript(name), epoch, party.embed(rows[name]))
        super().followed(epoch, rows)

    def finished(self) -> None:
        """Attack the whole transcript, if nothing was attacked during training."""
        if self.every == "end" and self.auditor is not None:
            attack_recorded_steps(self.job, self.folder, self.auditor, [self.job.active, *self.passives])
        super().finished()


def attack_recorded_steps(
    job: Job, folder: RunFolder, auditor: Auditor, parties: Sequence[str], until: int | None = None
) -> None:
    """Attack the recorded steps of a run.

    Args:
        job: The job as run.
        folder: Folder of the run.
        auditor: Auditor of the run.
        parties: Names of the parties whose transcripts are read, the active party first.
        until: The first epoch that is left out; `None` for none.
    """
    held = held_of_run(job, folder.path)
    recorded = {
        party: {
            epoch: _with_common_numbers(steps, held, party) for epoch, steps in read_epochs(folder.transcript(party))
        }
        for party in parties
    }
    for epoch in sorted(recorded[parties[0]]):
        if until is None or epoch < until:
            auditor.take(epoch, {party: epochs[epoch] for party, epochs in recorded.items() if epoch in epochs})


def _with_common_numbers(steps: Sequence[Step], held: HeldRows, party: str) -> Sequence[Step]:
    """A party's steps with the active party's row numbers, as the labels have them, in place of its own."""
    if party not in held.by_party:
        return steps
    places = torch.from_numpy(held.places(party))
    return [replace(step, rows=places[step.rows]) for step in steps]
