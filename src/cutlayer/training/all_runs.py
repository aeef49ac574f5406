"""A party's charge to its ledger of all runs, before the run releases anything."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cutlayer.accounting import DPSGD, Entry, GaussianRelease, Ledger, RandomizedGrade, RandomizedResponse, Total
from cutlayer.accounting.run_store import (
    LEDGER_FILE,
    RUN_MARKER_FILE,
    RunLine,
    RunStore,
    Words,
    new_source,
    row_words,
    rows_digest,
)
from cutlayer.config import Job
from cutlayer.data.align import Positions
from cutlayer.data.ids import Digests
from cutlayer.data.labels import Labels
from cutlayer.data.party_data import PartyTable
from cutlayer.kernels.noise.aes import derive
from cutlayer.kernels.noise.label_levels import levels_for
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.grade_dp import GradeDP
from cutlayer.protections.label_dp import LabelDP, LabelDPConfig
from cutlayer.protections.label_memory.memory import Drawn, LabelMemory
from cutlayer.storage.row_arrays import gathered_rows
from cutlayer.training.keys import label_folder, release_folder
from cutlayer.training.run_ledger import SPLIT_ENTRY, chain_of, planned_entries
from cutlayer.training.run_sums import check_with_others, lines_of_party, names_of_others, summed_ledger, warn_of_draws


@dataclass
class AllRuns:
    """Counts a run in its party's ledger of all runs before the run releases anything.

    Attributes:
        job: Job with the party's private part.
        name: Name of the party.
        chain: Protections of the party.
        store: The party's ledger of all runs.
        marker: File of the run folder that names the run's line.
        releases: Folder of the releases of the party's secret, which has a note of each run's line.
        run: Name of the run, the same after a resume.
        source: Digest of the party's secret.
        spelled: Digests of ids, and those that they have in a job which compares them by another rule.
    """

    job: Job
    name: str
    chain: Chain
    store: RunStore
    marker: Path
    releases: Path
    run: str
    source: str
    spelled: Callable[[Digests], Digests]
    _digests: Digests | None = field(default=None, init=False)
    _draws: Callable[[], str] = field(default=str, init=False)
    _charged: bool = field(default=False, init=False)

    def set_up(self, digests: Digests, draws: Callable[[], str]) -> None:
        """State what the run releases, before it does.

        Args:
            digests: Digests of the ids of the common rows, uint8 (n, 16).
            draws: Returns the fingerprint of the draws of labels, or of grades; empty without any.
        """
        self._digests, self._draws = digests, draws

    def charge(self) -> None:
        """Count the run, once; on disk when this returns.

        Raises:
            BudgetExceeded: All runs together would cost more than the budget of all runs.
            CheckpointError: The ledger is damaged, or an older copy is in its place.
        """
        if not self._charged and self._digests is not None:
            planned = self._planned()
            self._add(self._digests, planned, planned, beyond_plan=False)
            self._charged = True

    def check(self) -> None:
        """Raise as `charge` would now, and count nothing: before rows decide what is to be counted.

        Raises:
            BudgetExceeded: All runs together would cost more than the budget of all runs.
        """
        if not self._charged and self._digests is not None and self.chain.budget is not None:
            line, words = self._line(self._digests, self._planned())
            sharing = [each for each in self.store.sharing_rows(words) if each.key != line.key]
            check_with_others(line, sharing, self.job, self.chain.budget)

    def charge_split(self, digests: Digests) -> None:
        """Count a split by a column that is sent before labels are drawn, in a line of its own.

        Args:
            digests: Digests of the ids of the common rows, uint8 (n, 16).

        Raises:
            BudgetExceeded: The party has a budget of all runs, which a split without a guarantee exceeds.
            CheckpointError: The ledger is damaged, or an older copy is in its place.
        """
        entries = planned_entries(self.job, self.name, self.chain)
        ledger = Ledger(tuple(entry for entry in entries if entry.protection == SPLIT_ENTRY))
        self._add(digests, ledger, ledger, beyond_plan=False)

    def charge_beyond_plan(self, releases: int, steps: int) -> None:
        """Count the releases and private steps beyond the plan, before the first of them.

        Args:
            releases: Maximum number of releases of a row beyond the plan.
            steps: Maximum number of private steps of a row beyond the plan.
        """
        self.charge()
        planned = self._planned()
        entries = tuple(_extended(entry, releases, steps) for entry in planned.entries)
        if self._digests is not None:
            self._add(self._digests, planned, Ledger(entries), beyond_plan=True)

    def count_other_grades(self, known: Mapping[str, float | None]) -> int:
        """Number of releases of drawn grades of the same rows but these, by name of the draws and epsilon."""
        if self._digests is None:
            return 0
        sharing = self.store.sharing_rows(row_words(self.spelled(self._digests)))
        # As in a budget: one organisation may have another name in each job.
        others = names_of_others(self.name, sharing, self.job.parties)
        entries = [entry for line in sharing if line.party not in others for entry in line.ledger.entries]
        names = {entry.fingerprint for entry in entries if isinstance(entry.event, RandomizedGrade)}
        grades = Entry(GradeDP.name, self.name, "features", (), RandomizedGrade(1.0))
        events = ((name, RandomizedGrade(epsilon)) for name, epsilon in known.items() if epsilon is not None)
        known_names = {_with_draws(replace(grades, event=event), name).fingerprint for name, event in events}
        return len(names - known_names - {None})

    def _planned(self) -> Ledger:
        entries = planned_entries(self.job, self.name, self.chain)
        return Ledger(tuple(_with_draws(entry, self._draws()) for entry in entries))

    def _line(self, digests: Digests, planned: Ledger) -> tuple[RunLine, Words]:
        """The line of the run, of its plan, and its rows."""
        # Otherwise another `id.normalise` would make other rows of them, whose costs nobody adds.
        words = row_words(self.spelled(digests))
        return RunLine(
            run=self.run,
            party=self.name,
            job=self.job.name,
            source=self.source,
            rows=rows_digest(words),
            count=len(digests),
            plan=_digest(planned),
            ledger=planned,
            folder=str(self.marker.absolute().parents[2]),
        ), words

    def _add(self, digests: Digests, planned: Ledger, ledger: Ledger, *, beyond_plan: bool) -> None:
        plan, words = self._line(digests, planned)
        line = replace(plan, ledger=ledger)

        def check(sharing: list[RunLine]) -> None:
            check_with_others(line, sharing, self.job, self.chain.budget)
            warn_of_draws(line, lines_of_party(self.name, sharing))

        note = self.releases / f"{self.run}.line"
        self.store.add(line, words, self.marker, check, beyond_plan=beyond_plan, note=note)


def all_runs_of(
    job: Job,
    name: str,
    table: PartyTable,
    chain: Chain,
    secret_path: Path,
    party_folder: Path,
    secret: bytes,
    noise_key: bytes,
) -> AllRuns:
    """The charge of one run of a party.

    Args:
        job: Job with the party's private part.
        name: Name of the party.
        table: Rows of the party.
        chain: Protections of the party.
        secret_path: File of the party's secret, in the folder that holds the ledger.
        party_folder: The party's folder in the run folder.
        secret: Long-lived secret of the party.
        noise_key: Key of this run's noise, which names the run.
    """
    run = derive(noise_key, b"ledger of all runs", size=8).hex()
    store, marker = RunStore(secret_path.with_name(LEDGER_FILE)), party_folder / RUN_MARKER_FILE
    releases, source = release_folder(secret_path), new_source(secret)
    return AllRuns(job, name, chain, store, marker, releases, run, source, table.all_spellings)


def restate_draws(
    job: Job, name: str, chain: Chain, store: RunStore, draws: str, most: int, again: int, unseen: int, refused: int
) -> None:
    """State in the ledger of all runs that grades of rows are drawn more than once, before or after they are.

    Args:
        job: Job with the party's private part.
        name: Name of the party.
        chain: Protections of the party.
        store: The party's ledger of all runs.
        draws: Name of the draws.
        most: Maximum number of draws of a row.
        again: Number of rows with more than one.
        unseen: Releases of which that is not known.
        refused: Predictions that were refused.

    Raises:
        BudgetExceeded: All runs together would cost more than the budget of all runs.
        CheckpointError: The ledger is damaged, or an older copy is in its place.
    """

    def restated(entry: Entry) -> Entry:
        event = entry.event
        if not isinstance(event, RandomizedGrade) or entry.fingerprint != _with_draws(entry, draws).fingerprint:
            return entry
        most_draws = max(most, event.draws)
        return replace(entry, event=replace(event, draws=most_draws, again=again, unseen=unseen, refused=refused))

    def change(line: RunLine) -> RunLine:
        entries = map(restated, line.ledger.entries) if line.party == name else line.ledger.entries
        return replace(line, ledger=Ledger(tuple(entries)))

    store.restate(change, lambda line, sharing: check_with_others(line, sharing, job, chain.budget))


def forecast_all_runs(job: Job, name: str, folder: Path, table: PartyTable, positions: Positions) -> Iterator[Total]:
    """Yield the costs of all runs of a party on the same rows, with a run of this job; none without an earlier run.

    Labels count as drawn alike where the run would repeat earlier draws: by the secret, the label memory, the label
    column and the classes that are there now.

    Args:
        job: Job with the party's private part.
        name: Name of the party.
        folder: Folder of its secret, unless its private part names the file.
        table: Rows of the party.
        positions: Row numbers in it of the common rows, in the common order, int64 (m,).

    Raises:
        BudgetExceeded: They cost more than the budget of all runs.
        DataError: The labels do not fit the task.
    """
    digests = gathered_rows(table.digests, positions)
    words, chain = row_words(table.all_spellings(digests)), chain_of(job, name)
    path = job.parties[name].secret or folder / f"{name}.key"
    sharing = RunStore(path.parent / LEDGER_FILE).sharing_rows(words)
    earlier = lines_of_party(name, sharing)
    if not sharing:
        return
    secret = path.read_bytes() if path.exists() else b""
    entries = planned_entries(job, name, chain)
    drawing = any(isinstance(entry.event, RandomizedResponse) for entry in entries)
    if drawing and (labels := table.labels(positions)) is not None:
        settings = next(
            (protection.settings for protection in chain.protections if isinstance(protection, LabelDP)), None
        )
        draws = _next_draws(settings, job.parties[name].label or "", labels, table, path, secret)
        entries = tuple(_with_draws(_with_classes(entry, len(labels.classes)), draws) for entry in entries)
    ledger = Ledger(entries)
    source = new_source(secret) if secret else ""
    line = RunLine("", name, job.name, source, rows_digest(words), len(digests), _digest(ledger), ledger)
    check_with_others(line, sharing, job, chain.budget)
    if earlier:
        yield from summed_ledger([*earlier, line]).totals


def _next_draws(
    settings: LabelDPConfig | None, column: str, labels: Labels, table: PartyTable, path: Path, secret: bytes
) -> str:
    """Fingerprint of the draws that a run would use; a random one where it would draw anew."""
    from cutlayer.parties.session.local import fingerprint_of_draws

    anew = secrets.token_hex(16)
    if settings is None or not secret:
        return anew
    memory = LabelMemory(label_folder(path), path, secret, table=table.labels_digest)
    name = memory.latest(label_draws(settings, column, labels), settings.changed_labels)
    return anew if name is None else fingerprint_of_draws(secret, column, b"", (name,))


def label_draws(settings: LabelDPConfig, column: str, labels: Labels) -> Drawn:
    """What the draws of labels depend on besides a row and the secret."""
    classes = max(2, len(labels.classes)) if labels.classes else levels_for(settings.eps)
    return Drawn(column, settings.eps, classes)


def _with_classes(entry: Entry, classes: int) -> Entry:
    event = entry.event
    if not isinstance(event, RandomizedResponse):
        return entry
    return replace(entry, event=replace(event, classes=max(2, classes) if classes else event.classes))


def _extended(entry: Entry, releases: int, steps: int) -> Entry:
    event = entry.event
    if isinstance(event, GaussianRelease):
        return replace(entry, event=replace(event, releases=replace(event.releases, beyond=releases)))
    return replace(entry, event=replace(event, steps=event.steps + steps)) if isinstance(event, DPSGD) else entry


def _with_draws(entry: Entry, draws: str) -> Entry:
    """An entry with the name of its draws. Draws of runs that did not end are in the lines of those runs."""
    event = entry.event
    if not isinstance(event, RandomizedResponse | RandomizedGrade):
        return entry
    if isinstance(event, RandomizedGrade) and not draws:  # by the key of a run
        return entry
    values = f" {event.classes}" if isinstance(event, RandomizedResponse) else ""
    what = f"{draws} {entry.protection} {event.eps.hex()}{values}"
    name = hashlib.blake2b(what.encode(), digest_size=16).hexdigest()
    return replace(entry, event=replace(event, draws=1), fingerprint=name)


def _digest(ledger: Ledger) -> str:
    plain = json.dumps(ledger.to_json(), sort_keys=True)
    return hashlib.blake2b(plain.encode(), digest_size=8).hexdigest()
