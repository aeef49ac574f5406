"""Trains a job with all its parties in this process; each party has only its own table and ports."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cutlayer.alignment.intersection import Alignment
from cutlayer.attacks.completion.base import OptimizerHook
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.channel import link
from cutlayer.config import Job
from cutlayer.config.party import ALL_RUNS
from cutlayer.data.column_note import ColumnNote
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError
from cutlayer.models import suits_rare_categories
from cutlayer.parties.active import ActiveParty
from cutlayer.parties.compute.device import device_of, device_text
from cutlayer.parties.compute.readings import READ_STEPS, Readings
from cutlayer.parties.drive.drive import drive_together
from cutlayer.parties.drive.random_state import with_own_random_state
from cutlayer.parties.faults import Faults, no_faults
from cutlayer.parties.passive import PassiveParty
from cutlayer.parties.session.local import LocalSide
from cutlayer.parties.session.observer import Observer
from cutlayer.parties.session.outcome import ActiveOutcome, PassiveOutcome
from cutlayer.protections import build_chain
from cutlayer.protections.label_memory.memory import LabelMemory
from cutlayer.storage.row_arrays import give_back_memory
from cutlayer.training.all_runs import all_runs_of
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import (
    Keys,
    check_same_keys,
    grade_memory,
    label_folder,
    load_or_derive_start,
    load_or_make,
    noise_key_path,
    note_secret,
    release_folder,
)
from cutlayer.training.model_record import record_active, record_passive
from cutlayer.training.process import repeatable_kernels
from cutlayer.training.recorder import Recorder


@dataclass(frozen=True)
class TrainedRun:
    """A finished run in this process.

    Attributes:
        active: What the active party knows at the end.
        passives: What each passive party knows at the end, by name; empty where they run in processes of their own, and
            without those that were lost.
        traffic: Bytes sent and received by every party, over all starts of the run.
        kinds: Bytes sent and received by every party, by kind of message.
        own_rows: Number of rows of each party's own table, by name.
        seconds: Wall time of all starts of the run.
        devices: What each party in this process trained on, by name.
        columns: Number of columns of the tables of the parties in this process besides id and label, by name.
        left_out: Number of rows of the files of the parties in this process that are no rows of their tables, by name
            and reason.
        notes: Oddities of the columns of the parties in this process, by name.
    """

    active: ActiveOutcome
    passives: Mapping[str, PassiveOutcome]
    traffic: Mapping[str, tuple[int, int]]
    kinds: Mapping[str, Mapping[str, tuple[int, int]]]
    own_rows: Mapping[str, int]
    seconds: float
    devices: Mapping[str, str]
    columns: Mapping[str, int]
    left_out: Mapping[str, Mapping[str, int]]
    notes: Mapping[str, tuple[ColumnNote, ...]]

    @classmethod
    def of(
        cls,
        leader: ActiveParty,
        active: ActiveOutcome,
        sides: Mapping[str, LocalSide],
        passives: Mapping[str, PassiveOutcome] | None = None,
    ) -> TrainedRun:
        """The run that an active party led to its end.

        Args:
            leader: The active party.
            active: What it knows at the end.
            sides: Private sides of the parties in this process, by name.
            passives: What the passive parties in this process know at the end, by name.
        """
        return cls(
            active,
            passives or {},
            traffic=leader.usage.by_party(leader.local.name),
            kinds=leader.usage.kinds_by_party(leader.local.name),
            own_rows={**leader.agreement.peer_rows, **{name: side.table.rows for name, side in sides.items()}},
            seconds=leader.usage.seconds,
            devices={name: device_text(side.device) for name, side in sides.items()},
            columns={name: side.table.candidate_columns for name, side in sides.items()},
            left_out={name: side.table.left_out for name, side in sides.items()},
            notes={name: odd_columns(leader.job, name, side.table) for name, side in sides.items()},
        )


def odd_columns(job: Job, name: str, table: PartyTable) -> tuple[ColumnNote, ...]:
    """Oddities of the columns that a party was trained on, apart from those that its bottom model is made for."""
    made_for_rare = suits_rare_categories(job.bottom_of(name))
    return tuple(note for note in table.notes or () if note.kind != "rare" or not made_for_rare)


def local_side(
    job: Job,
    name: str,
    folder: RunFolder,
    data: Path,
    keys: Keys,
    table: PartyTable,
    *,
    resume: bool,
    forget_peer_progress: bool = False,
    origin: RunFolder | None = None,
) -> LocalSide:
    """The private side of a party: its table, protections, keys and release log.

    Args:
        job: Job with this party's private part.
        name: Name of the party.
        folder: Folder of the run.
        data: Folder of the encoded columns.
        keys: Where secrets come from.
        table: The party's rows.
        resume: Whether to continue from the last committed epoch in `folder`.
        forget_peer_progress: Whether to start again with a peer that has lost its progress, and to count what is
            released again.
        origin: Run whose initial weights this one starts from: the run that it is a baseline of; itself by default.
    """
    party = job.parties[name]
    start, party_folder = (origin or folder).path, folder.path / "checkpoint" / name
    secret_path = keys.secret_of(name, party)
    secret = keys.supplied or load_or_make(secret_path)
    memory = LabelMemory(
        label_folder(secret_path),
        start / "checkpoint" / name / "label_draws.json",
        secret,
        simulated=keys.simulated,
        table=table.labels_digest,
        named=keys.supplied is None,
    )
    noise_key = keys.supplied or load_or_make(noise_key_path(folder.path, name))
    starting_noise = keys.supplied or load_or_make(noise_key_path(start, name))
    check_same_keys(party_folder / "keys.fingerprint", (secret, noise_key))
    chain = build_chain(name, party.role, party.privacy, f"parties.{name}.privacy")
    counted = not (keys.supplied or keys.simulated)
    if keys.supplied and not keys.simulated and chain.budget is not None and chain.budget.over == ALL_RUNS:
        wanted = f"{name}: expected the party's own keys with a budget over all_runs, which runs of a supplied key"
        raise ConfigError(f"{wanted} are not counted in; leave --key out, or the budget")
    if not keys.simulated:
        note_secret(folder.path, name, secret_path, job.digest())
    return LocalSide(
        name=name,
        table=table,
        chain=chain,
        folder=folder.path,
        data=data,
        secret=secret,
        noise_key=noise_key,
        starting_key=load_or_derive_start(start, name, starting_noise, job.train.seed),
        config=party,
        label_memory=None if keys.supplied and (keys.simulated or not table.labels_digest) else memory,
        resume=resume,
        releases=release_folder(secret_path) if counted else None,
        grades=grade_memory(secret_path) if counted else None,
        all_runs=all_runs_of(job, name, table, chain, secret_path, party_folder, secret, noise_key)
        if counted
        else None,
        forget_peer_progress=forget_peer_progress,
        fit=party.fit,
        device=device_of(party.device, f"parties.{name}.device"),
    )


def train_together(
    job: Job,
    folder: RunFolder,
    tables: Mapping[str, PartyTable],
    keys: Keys,
    observer: Observer,
    *,
    data: Path | None = None,
    origin: RunFolder | None = None,
    fits: Mapping[str, Mapping[str, Any] | None] | None = None,
    wraps: Mapping[str, OptimizerHook] | None = None,
    tampering: Mapping[str, Tampering] | None = None,
    resume: bool = False,
    forget_peer_progress: bool = False,
    faults: Faults = no_faults,
    pilot: int = 0,
) -> TrainedRun:
    """Train a job with all its parties in this process.

    Args:
        job: Job with the private parts of all parties.
        folder: Folder of the run.
        tables: Rows of every party, by name.
        keys: Where secrets come from.
        observer: Watches the run.
        data: Folder of the encoded columns, if not in `folder`.
        origin: Run whose initial weights this one starts from, if not its own.
        fits: Sections `fit` of the run that this one is a baseline of, by party, which the columns have to suit before
            this one is trained.
        wraps: What passive parties that attack do to their own optimisers, by party.
        tampering: What parties that attack change of what they send, by party; such a run cannot be resumed.
        resume: Whether to continue from the last committed epoch in `folder`.
        forget_peer_progress: Whether all parties start again with one that has lost its progress, and count what they
            release again.
        faults: Called at the points at which a test can fail the run.
        pilot: Number of rows that each passive party releases in a pilot; 0 for the full run.
    """
    run = secrets.token_hex(8)
    ends = {name: link(job.active, name, run) for name in job.passives}
    store = data or folder.path / "data"
    readings = Readings(READ_STEPS)
    sides: dict[str, LocalSide] = {}
    for name, table in ((name, tables[name]) for name in job.parties):
        forget = forget_peer_progress
        side = local_side(
            job, name, folder, store, keys, table, resume=resume, forget_peer_progress=forget, origin=origin
        )
        fit = side.fit if fits is None else fits[name]
        wrap, changes = (wraps or {}).get(name), (tampering or {}).get(name)
        side = replace(side, readings=readings, fit=fit, wrap=wrap, tampering=changes, faults=faults)
        sides[name] = replace(side, alignment=Alignment(pilot=pilot))
    passives = {name: PassiveParty(job, sides[name], there) for name, (_, there) in ends.items()}
    recorder = Recorder(folder, job.active, observer)
    recorder.connected(passives)
    leader = ActiveParty(job, sides[job.active], {name: here for name, (here, _) in ends.items()}, recorder)
    # Every party draws from a random state of its own: swapped in whenever it is resumed, it gives the numbers that the
    # party would draw in a process of its own.
    parties = {name: (leader if name == job.active else passives[name]).run() for name in job.parties}
    with repeatable_kernels([side.device for side in sides.values()]):
        isolated_parties = {
            name: with_own_random_state(party, sides[name].starting_key, sides[name].device, faults)
            for name, party in parties.items()
        }
        try:
            results = drive_together(isolated_parties)
        except Exception:
            readings.read()  # a bad number that was not read yet is the cause of whatever failed after it
            raise
    recorder.finished()
    give_back_memory()
    record_active(folder, leader)
    for name, passive in passives.items():
        if name in results:
            record_passive(folder, passive)
    ended = {name: results[name] for name in job.passives if name in results}
    return TrainedRun.of(leader, results[job.active], sides, ended)
