"""A party's charge to its ledger of all runs, and the sum of what these released about the same rows."""

from __future__ import annotations

import hashlib
import json
import secrets
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cutlayer.accounting import DPSGD, Entry, GaussianRelease, Ledger, RandomizedGrade, RandomizedResponse, Total
from cutlayer.accounting.run_store import MARKER, NAME, RunLine, RunStore, Words, new_source, row_words, rows_digest
from cutlayer.accounting.wording import of_asset
from cutlayer.config import BudgetConfig, Job
from cutlayer.config.party import ALL_RUNS
from cutlayer.data.align import Positions
from cutlayer.data.ids import Digests
from cutlayer.data.labels import Labels
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import BudgetExceeded
from cutlayer.kernels.noise.aes import derive
from cutlayer.kernels.noise.label_levels import levels_for
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.grade_dp import GradeDP
from cutlayer.protections.label_dp import LabelDP, LabelDPConfig
from cutlayer.protections.label_memory.memory import Drawn, LabelMemory
from cutlayer.storage.row_arrays import gathered
from cutlayer.training.keys import label_folder, releases_of
from cutlayer.training.run_ledger import SPLIT, chain_of, planned_entries

REMEDY = "take rows that no earlier run used, fewer releases or more noise, or raise the budget"
RENAMED = "not in the sum: runs on these rows as {names}; if that is {party} under another name, the costs add up"


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
            _check_with(line, sharing, self.job, self.chain.budget)

    def charge_split(self, digests: Digests) -> None:
        """Count a split by a column that is sent before labels are drawn, in a line of its own.

        Args:
            digests: Digests of the ids of the common rows, uint8 (n, 16).

        Raises:
            BudgetExceeded: The party has a budget of all runs, which a split without a guarantee exceeds.
            CheckpointError: The ledger is damaged, or an older copy is in its place.
        """
        entries = planned_entries(self.job, self.name, self.chain)
        ledger = Ledger(tuple(entry for entry in entries if entry.protection == SPLIT))
        self._add(digests, ledger, ledger, beyond_plan=False)

    def exceed(self, releases: int, steps: int) -> None:
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

    def grades_apart_from(self, known: Mapping[str, float | None]) -> int:
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
        return len(names - {None} - {_drawn(replace(grades, event=event), name).fingerprint for name, event in events})

    def _planned(self) -> Ledger:
        entries = planned_entries(self.job, self.name, self.chain)
        return Ledger(tuple(_drawn(entry, self._draws()) for entry in entries))

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
            _check_with(line, sharing, self.job, self.chain.budget)
            warn_of_draws(line, of_party(self.name, sharing))

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
    store, marker, source = RunStore(secret_path.with_name(NAME)), party_folder / MARKER, new_source(secret)
    releases = releases_of(secret_path)
    return AllRuns(job, name, chain, store, marker, releases, run, source, table.all_spellings)


def restate_draws(
    job: Job, name: str, chain: Chain, store: RunStore, draws: str, most: int, again: int, unseen: int
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

    Raises:
        BudgetExceeded: All runs together would cost more than the budget of all runs.
        CheckpointError: The ledger is damaged, or an older copy is in its place.
    """

    def restated(entry: Entry) -> Entry:
        event = entry.event
        if not isinstance(event, RandomizedGrade) or entry.fingerprint != _drawn(entry, draws).fingerprint:
            return entry
        return replace(entry, event=replace(event, draws=max(most, event.draws), again=again, unseen=unseen))

    def change(line: RunLine) -> RunLine:
        entries = map(restated, line.ledger.entries) if line.party == name else line.ledger.entries
        return replace(line, ledger=Ledger(tuple(entries)))

    store.restate(change, lambda line, sharing: _check_with(line, sharing, job, chain.budget))


def _check_with(line: RunLine, sharing: Sequence[RunLine], job: Job, budget: BudgetConfig | None) -> None:
    """Raise if a run, with the others that share its rows, costs more than a budget of all runs."""
    renamed = under_other_names(line.party, [*sharing, line], job.parties)
    check_all_runs(line.party, [*of_party(line.party, sharing), *renamed, line], budget)


def of_party(name: str, lines: Iterable[RunLine]) -> list[RunLine]:
    """The lines of a party."""
    return [line for line in lines if line.party == name]


def names_of_others(name: str, lines: Iterable[RunLine], parties: Collection[str]) -> set[str]:
    """Names that are of others than a party: those that a run, or the present job, has together with its own."""
    return {*parties}.union(*(line.names for line in lines if name in line.names)) - {name}


def under_other_names(name: str, lines: Sequence[RunLine], parties: Collection[str] = ()) -> list[RunLine]:
    """Lines of what may be the same party under another name: those of names that no run has together with its own.

    One organisation may have another name in each job, and keep its secrets in one folder.

    Args:
        name: Name of the party.
        lines: Lines of runs on the same rows, of all parties; one at least of this party.
        parties: Names of the parties of the present job, which are others.

    Returns:
        The lines, about the same assets, as if they were of this party.
    """
    others = names_of_others(name, lines, parties) | {name}
    assets = {entry.protects for line in of_party(name, lines) for entry in line.ledger.entries}
    renamed = []
    for line in lines:
        entries = [replace(entry, party=name) for entry in line.ledger.entries if entry.protects in assets]
        if line.party not in others and entries:
            renamed.append(replace(line, ledger=Ledger(tuple(entries))))
    return renamed


def sum_of(lines: Sequence[RunLine], delta: float | None = None) -> Ledger:
    """The ledger of several runs on the same rows.

    Args:
        lines: At least one line, of one party.
        delta: Delta to state epsilon at; by default the smallest that a run states. It is at least twice the
            `tail` of all private fits, and a little more.
    """
    # Not `Ledger.merged`: a line names each receiver of its run, also those that nothing is hidden from. Who is not in
    # it was no party of that run, and was sent nothing.
    return Ledger(
        tuple(
            replace(entry, run=run, delta=entry.delta if delta is None else delta)
            for run, line in enumerate(lines)
            for entry in line.ledger.entries
        )
    )


def check_all_runs(name: str, lines: Sequence[RunLine], budget: BudgetConfig | None) -> None:
    """Raise if runs on the same rows together cost more than a budget of all runs.

    Args:
        name: Name of the party.
        lines: The runs, those under other names included.
        budget: The party's budget.

    Raises:
        BudgetExceeded: They do, or one of them has no guarantee.
    """
    if budget is None or budget.over != ALL_RUNS:
        return
    renamed = sorted({line.party for line in lines} - {name})
    other_names = f" ({', '.join(renamed)} may be its other names)" if renamed else ""
    wanted = (
        f"{name}: expected all runs on the same rows to cost epsilon {budget.epsilon:g} at most, as its budget says"
    )
    runs = len({line.run for line in lines})
    for total in sum_of(lines, budget.delta).totals:
        towards = f"towards {', '.join(total.towards)}"
        if total.epsilon is None:
            raise BudgetExceeded(
                f"{wanted}, got one without a guarantee{other_names} {towards}: {total.why}; nothing was sent"
            )
        if total.epsilon > budget.epsilon * (1 + 1e-9) or total.delta > budget.delta:
            at = f"at delta {max(total.delta, budget.delta):g}"
            got = f"{total.epsilon:.4g} {at} over {runs} runs{other_names} {towards}"
            raise BudgetExceeded(f"{wanted}, got {got}; nothing was sent; {REMEDY}")


def warn_of_draws(line: RunLine, others: Sequence[RunLine]) -> None:
    """Warn if earlier runs drew labels of the same rows otherwise: the costs add up."""
    mine = {entry.fingerprint for entry in line.ledger.entries if isinstance(entry.event, RandomizedResponse)}
    drawn = [other for other in others if any(_draws_labels(entry, mine) for entry in other.ledger.entries)]
    if not mine or not drawn:
        return
    secret = " under another secret" if any(other.source != line.source for other in drawn) else ""
    total = next((total for total in sum_of([*others, line]).totals if total.protects == "labels"), None)
    cost = f"epsilon {total.epsilon:.4g}" if total and total.epsilon is not None else "no guarantee"
    warnings.warn(
        f"labels of the same rows were drawn before{secret}, with other draws ({_times(len(drawn))}); the costs add "
        f"up: {of_asset('labels', line.party)}, {cost} in all; keep secret and eps to draw them alike",
        stacklevel=2,
    )


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
    digests = gathered(table.digests, positions)
    words, chain = row_words(table.all_spellings(digests)), chain_of(job, name)
    path = job.parties[name].secret or folder / f"{name}.key"
    sharing = RunStore(path.parent / NAME).sharing_rows(words)
    earlier = of_party(name, sharing)
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
        entries = tuple(_drawn(_of_classes(entry, len(labels.classes)), draws) for entry in entries)
    ledger = Ledger(entries)
    source = new_source(secret) if secret else ""
    line = RunLine("", name, job.name, source, rows_digest(words), len(digests), _digest(ledger), ledger)
    _check_with(line, sharing, job, chain.budget)
    if earlier:
        yield from sum_of([*earlier, line]).totals


def _next_draws(
    settings: LabelDPConfig | None, column: str, labels: Labels, table: PartyTable, path: Path, secret: bytes
) -> str:
    """Fingerprint of the draws that a run would use; a random one where it would draw anew."""
    from cutlayer.parties.session.local import fingerprint_of_draws

    anew = secrets.token_hex(16)
    if settings is None or not secret:
        return anew
    memory = LabelMemory(label_folder(path), path, secret, table=table.labels_digest)
    name = memory.latest(drawn_by(settings, column, labels), settings.changed_labels)
    return anew if name is None else fingerprint_of_draws(secret, column, b"", (name,))


def drawn_by(settings: LabelDPConfig, column: str, labels: Labels) -> Drawn:
    """What the draws of labels depend on besides a row and the secret."""
    classes = max(2, len(labels.classes)) if labels.classes else levels_for(settings.eps)
    return Drawn(column, settings.eps, classes)


def _of_classes(entry: Entry, classes: int) -> Entry:
    event = entry.event
    if not isinstance(event, RandomizedResponse):
        return entry
    return replace(entry, event=replace(event, classes=max(2, classes) if classes else event.classes))


def _extended(entry: Entry, releases: int, steps: int) -> Entry:
    event = entry.event
    if isinstance(event, GaussianRelease):
        return replace(entry, event=replace(event, releases=replace(event.releases, beyond=releases)))
    return replace(entry, event=replace(event, steps=event.steps + steps)) if isinstance(event, DPSGD) else entry


def _drawn(entry: Entry, draws: str) -> Entry:
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


def _draws_labels(entry: Entry, mine: set[str | None]) -> bool:
    return isinstance(entry.event, RandomizedResponse) and entry.fingerprint not in mine


def _digest(ledger: Ledger) -> str:
    plain = json.dumps(ledger.to_json(), sort_keys=True)
    return hashlib.blake2b(plain.encode(), digest_size=8).hexdigest()


def _times(count: int) -> str:
    return "by one run" if count == 1 else f"by {count} runs"
