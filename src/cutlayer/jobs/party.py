"""Runs one party of a job in this process, over gRPC; the other parties run elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import numpy as np

from cutlayer.accounting.run_store import RECEIPTS_FOLDER
from cutlayer.alignment.agreed_before import agreed_alignment
from cutlayer.alignment.intersection import Alignment
from cutlayer.audit.watch import Watcher
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.address import check_loopback
from cutlayer.channel.grpc_link import Links
from cutlayer.channel.security import Security
from cutlayer.config import Job
from cutlayer.config.aggregate import undated
from cutlayer.config.phases import Phase
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError, PeerLost, ProtocolError
from cutlayer.jobs.audit import audit_passive
from cutlayer.jobs.check import check_job
from cutlayer.jobs.courier import check_release_by_file, continues_from_labels, open_releases, sent_label_runs
from cutlayer.jobs.further_labels import check_further_labels, open_further_runs
from cutlayer.jobs.links import LinkOptions, address_of, open_links, reporting_failure
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.pilot import check_pilot
from cutlayer.jobs.runs import Execution, chance_reference, write_conclusions
from cutlayer.jobs.summary import protection_results
from cutlayer.parties.active import ActiveParty
from cutlayer.parties.agreement.partners import Partners
from cutlayer.parties.compute.device import device_text
from cutlayer.parties.drive.by_links import drive_over_links
from cutlayer.parties.drive.drive import drive
from cutlayer.parties.drive.random_state import with_own_random_state
from cutlayer.parties.passive import PassiveParty
from cutlayer.parties.session.checkpoint import RELEASED_FILE
from cutlayer.parties.session.local import LocalSide
from cutlayer.parties.session.outcome import PassiveOutcome
from cutlayer.parties.session.plan import plan_of
from cutlayer.results.passive import MessageCount, PartReleases, PassiveRun, RowsOfTable
from cutlayer.results.run import RunId, RunKind
from cutlayer.training.folder import OUTCOME_FILE, RunFolder
from cutlayer.training.model_record import record_active, record_passive
from cutlayer.training.process import repeatable_kernels, run_threads
from cutlayer.training.recorder import Recorder, read_truth
from cutlayer.training.run_ledger import passive_ledger
from cutlayer.training.tables import open_table
from cutlayer.training.together import TrainedRun, local_side, odd_columns
from cutlayer.training.training_folder import training_folder
from cutlayer.version import __version__

R = TypeVar("R")

GRACE_SECONDS = 2.0
"""Seconds that a passive party waits longer than the active one, whose error names the party that is missing."""


def run_party(job: Job, name: str, out: Path, options: Options, progress: Progress, links: LinkOptions) -> RunFolder:
    """Run one organisation's part of a job to its end.

    Args:
        job: Job with this party's private part filled in; of all other parties only the roles are known here.
        name: Name of the party that this process is.
        out: Run folder of this party, to be made.
        options: How to run the job.
        progress: Called at every stage.
        links: How to connect to the other parties.

    Raises:
        PeerLost: A peer stopped answering; resume when it is back.
        TrustError: A certificate is refused, here or there.
        CutlayerError: Bad input, here or at a peer.
    """
    with ExitStack() as stack:
        with reporting_failure(job, name, links):
            check_job(job, name)
            if options.pilot:
                check_pilot(job, options.pilot)
            _check_subgroups(job, name)
            if links.releases:
                check_release_by_file(job)
                options = replace(options, resume=options.resume or continues_from_labels(job, out))
            elif links.security is None:
                check_loopback(address_of(job))
            elif name != job.active or links.listen is None:
                address_of(job)
            table = open_table(job, name, options.tables, options.keys)
            check_further_labels(job, options.tables, options.keys)
            opened = training_folder(out, job, resume=options.resume, security=links.security)
            folder = stack.enter_context(opened)
        threads = stack.enter_context(run_threads(job.train.threads, job.train.batch_size, processes=len(job.parties)))
        part = _PartyRun(Execution(job, folder, options, threads, progress), name, links)
        while True:
            try:
                part.run(table)
                break
            except _PeerAwaited as waiting:
                links.notify(f"{waiting}; waiting for up to {links.timeout:g} s until all have resumed")
                options, table = replace(options, resume=True), open_table(job, name, options.tables, options.keys)
                part = replace(part, execution=replace(part.execution, options=options))
        if name == job.active:
            train_further_labels(part.execution, links.security)
    return folder


def train_further_labels(execution: Execution, security: Security | None = None) -> None:
    """Train a model for each further label of a run that has ended, at the label owner alone: no message crosses."""
    job, options = execution.job, execution.options
    if options.pilot:
        return
    for other, folder, alone in open_further_runs(job, execution.folder, options, security):
        execution.progress.stage(f"label {other.parties[job.active].label}")
        table = open_table(other, job.active, options.tables, options.keys)
        # A logger follows the first label: curves of others have the same names.
        run = replace(execution, job=other, folder=folder, options=alone, progress=Progress())
        _PartyRun(run, job.active, LinkOptions()).run(table)


class _PeerAwaited(Exception):
    """A peer was lost in training, and the job says to wait for it."""


@dataclass(frozen=True)
class _PartyRun:
    """One organisation's part of a run, until it ends or a peer is lost.

    Attributes:
        execution: The job, its run folder, and how to run it.
        name: Name of the party.
        links: How to connect to the other parties.
    """

    execution: Execution
    name: str
    links: LinkOptions

    def run(self, table: PartyTable) -> None:
        """Run it with these rows.

        Raises:
            _PeerAwaited: A peer was lost that the job waits for.
        """
        job = self.execution.job
        folder = self.execution.folder
        options = self.execution.options
        name = self.name
        resume, forget = options.resume, options.forget_peer_progress
        store = folder.path / "data"
        with reporting_failure(job, name, self.links):
            local = local_side(
                job, name, folder, store, options.keys, table, resume=resume, forget_peer_progress=forget
            )
        place, pilot = folder.path / "alignment" / name, options.pilot
        alignment = Alignment(job.alignment, folder=place, progress=self.execution.progress.aligned, pilot=pilot)
        if self.links.releases:
            alignment = agreed_alignment(job, name, self.links.rows, table, pilot=pilot)
        local = replace(local, alignment=alignment)
        if name == job.active:
            self._lead(local)
        else:
            self._follow(local)

    def _lead(self, local: LocalSide) -> None:
        execution = self.execution
        this_run = RunId(RunKind.THIS_RUN)
        job, folder = execution.job, execution.folder
        execution.progress.stage(this_run.label)
        watcher = Watcher(job, folder, execution.progress)
        recorder = Recorder(folder, local.name, watcher)
        with self._links(local) as links:
            party = ActiveParty(job, local, links.ports if links else {}, recorder, links.end if links else _nothing)
            outcome = self._drive(local, party.run(), links, self.links.deadline)
        recorder.finished()
        record_active(folder, party)
        trained = TrainedRun.of(party, outcome, {local.name: local})  # what the partners know stays with them
        summary = execution.describe(job, this_run, folder, trained, watcher.auditor)
        truth, _ = read_truth(folder.transcript(local.name))
        write_conclusions(job, folder, {this_run.label: summary}, [chance_reference(trained, truth)])

    @contextmanager
    def _links(self, local: LocalSide) -> Iterator[Links | None]:
        """Links to all passive parties; `None` where all that they send is in the run folder: none has to be there."""
        job, options = self.execution.job, self.links
        if local.resume and Phase.LEAVE in job.phases and Partners.load(local.checkpoints(job)) is not None:
            yield None
        elif options.releases:
            # A file has all messages, also those of the release that an interrupted start has stored.
            (local.checkpoints(job).folder / RELEASED_FILE).unlink(missing_ok=True)
            sent = sent_label_runs(self.execution.folder.path)
            receipts = None if options.trail is None else options.trail.with_name(RECEIPTS_FOLDER)
            yield open_releases(job, job.passives, options.releases, options.security, options.notify, sent, receipts)
        else:
            with open_links(job, self.name, options) as links:
                yield links

    def _follow(self, local: LocalSide) -> None:
        job = self.execution.job
        with open_links(job, local.name, self.links) as links:
            party = PassiveParty(job, local, links.ports[job.active])
            outcome: PassiveOutcome = self._drive(local, party.run(), links, self.links.deadline + GRACE_SECONDS)
        finish_passive(job, local, self.execution.folder, party, outcome)

    def _drive(self, local: LocalSide, party: Generator[Port, Message, R], links: Links | None, patience: float) -> R:
        """Drive the party to its end.

        A passive party cannot tell who was lost: where one party is waited for, it waits for the active one.

        Raises:
            _PeerAwaited: A peer was lost that the job waits for.
        """
        job = self.execution.job
        running = with_own_random_state(party, local.starting_key, local.device)
        try:
            with repeatable_kernels([local.device]):
                return drive_over_links(running, links, patience) if links else drive(running, _no_message)
        except PeerLost as lost:
            waited = [peer for peer, other in job.parties.items() if other.on_absent == "wait"]
            if lost.peer in waited or (self.name != job.active and waited):
                raise _PeerAwaited(str(lost)) from None
            raise


def _nothing() -> None:
    """Where there are no links, none are closed."""


def _no_message(port: Port) -> Message:
    raise ProtocolError(f"expected a party that waits for no message, got one that waits for {port.peer}")


def finish_passive(job: Job, local: LocalSide, folder: RunFolder, party: PassiveParty, outcome: PassiveOutcome) -> None:
    """Write what a passive party has of a training: its part of the model, its account, and its own audit."""
    record_passive(folder, party)
    _passive_run(job, local, party, outcome).write(folder.path / OUTCOME_FILE)
    folder.write_json("ledger.json", passive_ledger(job, local.name, outcome.evidence).to_json())
    audit_passive(job, folder).write(folder.path / "audit.json")


def _passive_run(job: Job, local: LocalSide, party: PassiveParty, outcome: PassiveOutcome) -> PassiveRun:
    """What a passive party did in a training, for `outcome.json`."""
    port, split, plan = party.port, party.split, plan_of(job, local.name)
    sizes = {"training": split.train, "validation": split.validation, "test": split.test}
    if party.pilot is not None:
        sizes = {part: rows[np.isin(rows, party.pilot.numpy())] for part, rows in sizes.items()}
    once_more = {**asdict(outcome), "alarms": outcome.alarms, "alignment": outcome.alignment}
    del once_more["evidence"]
    (bytes_sent, bytes_received), kinds = port.traffic, {*port.sent, *port.received}
    return PassiveRun(
        party=local.name,
        active=job.active,
        passives=job.passives,
        name=job.name,
        job_digest=job.digest(),
        training=port.run,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        cutlayer=__version__,
        device=device_text(local.device),
        rows=RowsOfTable(
            table=local.table.rows,
            run=len(split.codes),
            left_out=local.table.left_out,
            undated=local.name in undated(job),
        ),
        releases=tuple(
            PartReleases(part=part, rows=len(rows), releases=getattr(plan, part)) for part, rows in sizes.items()
        ),
        serving=plan.serving,
        messages=tuple(
            MessageCount(
                kind=kind.value,
                sent=port.sent[kind],
                rows=port.sent_rows[kind],
                bytes_sent=bytes_sent[kind],
                received=port.received[kind],
                bytes_received=bytes_received[kind],
            )
            for kind in Kind
            if kind in kinds
        ),
        resumed=local.resume,
        label_free=job.train.is_label_free(local.name),
        sees_end=Phase.LEAVE not in job.phases,
        split_sent=job.train.split.is_sent,
        reproducible_noise=local.releases is None,
        protections=protection_results(job, outcome.evidence),
        notes=odd_columns(job, local.name, local.table),
        **once_more,
    )


def _check_subgroups(job: Job, name: str) -> None:
    """Refuse subgroups of a passive party: the labels are elsewhere.

    Raises:
        ConfigError: It names one.
    """
    named = job.parties[name].report.subgroups
    if name != job.active and named:
        wanted = f"report.subgroups at {job.active} alone, which has the labels"
        got = f"{', '.join(named)} of {name}"
        raise ConfigError.expected(wanted, got, "leave it out: between organisations neither labels nor columns move")
