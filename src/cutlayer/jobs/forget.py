"""Forgets rows, or a party: all that was made of them here is deleted, so that a new training never had them.

Nothing is unlearned from a model. Every model, release, prediction and record of the job is deleted, and the rows are
no rows of the party's table from now on. Whatever is trained then is the training of a table that never had them, to
the last bit: split, encoding, the partners' models and bands, and draws are those of the rows that remain.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from cutlayer.accounting import log_of_run
from cutlayer.accounting.run_store import LEDGER_FILE, RunStore
from cutlayer.channel.contract import printable_line
from cutlayer.channel.receipts import NOT_DELETED, Deletion
from cutlayer.config import Job
from cutlayer.config.ids import ROW_NUMBER
from cutlayer.config.load import load_closed_job
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import CheckpointError, ConfigError, CutlayerError, RunFolderError
from cutlayer.jobs.exchange import RECORD_FILE, end_alone, exchange_result
from cutlayer.jobs.further_labels import further_jobs
from cutlayer.jobs.known_rows import unknown_ids
from cutlayer.protections.label_memory.memory import LabelMemory
from cutlayer.results.provenance import Provenance, beside
from cutlayer.storage.durable import locked
from cutlayer.training.folder import RunFolder
from cutlayer.training.forgetting import Forgetting, ForgottenRuns
from cutlayer.training.keys import Keys, grade_memory, label_folder, load_or_make
from cutlayer.training.latest import rounds_of
from cutlayer.training.tables import open_table

ALL_ROWS_OF = "all of {}"
"""What is forgotten of a party without a list of rows, in words."""
FORGOTTEN_RESULT = {"forgotten": True}
"""Result of a round whose training was forgotten."""


@dataclass
class JobDeletion:
    """What a party, or all parties of one process, made of a job: found, and deleted.

    Attributes:
        job: The job, with the private parts of the parties here.
        names: The parties here.
        base: Path of the run folders, without their version.
        shared: Folder of the files between the parties, where there are some.
        keys: Where secrets come from.
        deleted: Names of the folders and files that were deleted in this start.
        not_deleted: What was found and not deleted; it is for this party alone.
        left_out: Number of rows of a party's table that are left out from now on, by its name; for this party alone.
        unknown: Listed ids that no party here has, or had; for this party alone.
    """

    job: Job
    names: tuple[str, ...]
    base: Path
    shared: Path | None
    keys: Keys
    deleted: set[str] = field(default_factory=set)
    not_deleted: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def forget(
        self, what: str, forgotten: dict[str, PartyTable], *, asked: bool = False, may_be_unknown: bool = False
    ) -> Forgetting:
        """Forget; a call that was interrupted is continued by the same call.

        Args:
            what: Whose rows, in words.
            forgotten: The ids of the rows that a party forgets, by its name; of nobody where all rows of a party are
                forgotten, or another party forgets some.
            asked: Whether another party asks for it.
            may_be_unknown: Whether the rows are forgotten although no party here has, or had, one of them.

        Returns:
            The mark, which the caller removes once the receipt is written.

        Raises:
            ConfigError: No party here has, or had, one of the rows, or there is no such folder: nothing is changed.
            RunFolderError: A training works on one of the folders, or another forgetting has not ended.
        """
        if self.shared is not None and not self.shared.is_dir() and self._rounds():
            wanted = f"the folder of the files between the parties at {self.shared}"
            raise ConfigError.expected(wanted, "no folder", "name it by --folder, as in cutlayer exchange")
        rows, runs = b"".join(listed.digests.tobytes() for listed in forgotten.values()), [*self._runs()]
        if forgotten and not Forgetting.has_begun(self.base):  # one that goes on has deleted records
            self._find_unknown(forgotten, runs)
            if not may_be_unknown and len(self.unknown) >= max(listed.rows for listed in forgotten.values()):
                wanted, shown = f"an id that {' or '.join(forgotten)} has, or had", ", ".join(self.unknown[:5])
                remedy = "are they written as in the table? --unknown forgets them all the same"
                raise ConfigError.expected(wanted, f"unknown ones ({len(self.unknown):,}): {shown}", remedy)
        mark = Forgetting.begin(self.base, what, rows, (path.name for path in runs))
        if mark.deleted is not None:
            return mark
        for name in self.names:
            forgotten_runs = ForgottenRuns(self.keys.secret_of(name, self.job.parties[name]))
            for each in (self.job, *(other for other, _ in further_jobs(self.job, RunFolder(self.base)))):
                forgotten_runs.add(each.digest())
        for name, listed in forgotten.items():
            self._forget_rows(name, listed)
        for name in self.names:  # by its own wish alone: else a partner could have what limits hold by forgotten
            if what == ALL_ROWS_OF.format(name) and not asked:
                grade_memory(self.keys.secret_of(name, self.job.parties[name])).forget_job(self.job.digest())
        folders = [self.base.with_name(name) for name in mark.runs]
        for folder in folders:  # first of all: without it no folder is a run
            if folder.exists():
                with RunFolder(folder).locked("a forgetting"):
                    for place in (folder, *folder.glob("labels/*")):
                        (place / "job.yaml").unlink(missing_ok=True)
                        self._remove_served(place)
        self._remove(self.base.with_name(f"{self.base.name}.latest"))
        for private in self._rounds():
            self._close(private)
        for path in (*folders, self._aligned, self._aligned.with_name(f"{self._aligned.name}.progress")):
            self._remove(path)
        return mark.with_deleted(self.deleted)

    @property
    def _aligned(self) -> Path:
        return self.base.with_name(f"{self.base.name}-aligned.csv")

    def _find_unknown(self, forgotten: dict[str, PartyTable], runs: list[Path]) -> None:
        found = []
        for name, listed in forgotten.items():
            secret = self.keys.secret_of(name, self.job.parties[name])
            parts = [part for run in runs if (part := run / "checkpoint" / name).is_dir()]
            table = open_table(self.job, name, {})
            files = [path for path in (self._aligned, *rounds_of(self.base).glob("*/rows.csv")) if path.exists()]
            found.append(unknown_ids(listed, table, secret, parts, files))
        self.unknown = sorted(set.intersection(*found))

    def statement(self, party: str, mark: Forgetting, request: str = "") -> Deletion:
        """What a party signs."""
        return Deletion(
            party=party,
            job=self.job.digest(),
            identities=dict(self.job.identities),
            what=mark.what,
            rows=mark.rows,
            request=request,
            deleted=tuple(map(printable_line, mark.deleted or ())),
            remains=NOT_DELETED,
            time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        )

    def _remove_served(self, folder: Path) -> None:
        """Remove what was served and counted, which is beside the secret and not in the run folder."""
        for name in self.names:
            with suppress(CheckpointError):
                self._remove(log_of_run(folder / "checkpoint" / name).with_suffix(".served"), "served rows")

    def _forget_rows(self, name: str, listed: PartyTable) -> None:
        """Note the rows, and remove their labels from the memory of the draws."""
        party = self.job.parties[name]
        secret = load_or_make(self.keys.secret_of(name, party))
        forgotten = self.keys.forgotten_rows(name, party)
        forgotten.add(stated := listed.digests_by_rule(np.arange(listed.rows)))
        table = open_table(self.job, name, {})
        gone = table.forgotten_mask(forgotten)
        forgotten.add(spelled := table.digests_by_rule(np.flatnonzero(gone)))  # as the table writes them
        self.left_out[name] = int(gone.sum())
        # Not those of this job alone: another epsilon has a memory of its own, in which the secret reads each label.
        every = [digests for _, digests in (*stated, *spelled)]
        path = self.keys.secret_of(name, party)
        for each in (listed, table):
            grade_memory(path).forget(each.rule_free_digests(each.digests if each is listed else each.digests[gone]))
        LabelMemory(label_folder(path), path, secret).forget(torch.from_numpy(np.concatenate(every)))

    def _runs(self) -> Iterator[Path]:
        """The run folders of the job with a part of these parties; those of other jobs are noted."""
        found: list[Path] = []
        for path in sorted(self.base.parent.rglob("job.yaml"), key=lambda path: len(path.parts)):
            folder = path.parent
            parts = (folder / "checkpoint" / name for name in self.names)
            if any(folder.is_relative_to(other) for other in found) or not any(part.is_dir() for part in parts):
                continue
            found.append(folder)
            if folder.parent == self.base.parent and self._is_of_job(path):
                yield folder
            else:
                self.not_deleted.append(f"the run of another job in {folder.relative_to(self.base.parent)}")
        self.not_deleted += sorted({f"the run in {path}, where --run looks" for path in self._runs_elsewhere()})

    def _runs_elsewhere(self) -> Iterator[Path]:
        """Folders of runs of these parties that are not beside the others, by the ledgers of all runs."""
        beside = self.base.parent.absolute()
        for name in self.names:
            with suppress(CheckpointError):
                lines = RunStore(self.keys.secret_of(name, self.job.parties[name]).parent / LEDGER_FILE).lines()
                folders = (Path(line.folder) for line in lines if line.party == name and line.folder)
                yield from (path for path in folders if beside not in path.parents and (path / "job.yaml").exists())

    def _is_of_job(self, path: Path) -> bool:
        try:
            return load_closed_job(path).digest() == self.job.digest()
        except CutlayerError:
            return False

    def _rounds(self) -> list[Path]:
        rounds = rounds_of(self.base)
        return sorted(path for path in rounds.iterdir() if path.is_dir()) if rounds.is_dir() else []

    def _close(self, private: Path) -> None:
        """Delete the files of a round, and what it predicted; its record says that it ended."""
        if exchange_result(private) != FORGOTTEN_RESULT:
            end_alone(private, FORGOTTEN_RESULT)
        with locked(private / "exchange.lock", "a forgetting"):
            out = private / "out"
            if out.exists():
                self._remove_predictions(Path(out.read_text()))
            for path in sorted(private.iterdir()):
                if path.name not in (RECORD_FILE, "exchange.lock"):
                    self._remove(path, private.parent.name)
        if self.shared is not None:
            self._remove(self.shared / private.name)
        else:
            files = f"files between the parties of {private.name}"
            self.not_deleted.append(f"{files}, whose folder was not named by --folder")

    def _remove_predictions(self, path: Path) -> None:
        """Remove a file of predictions, where the file beside it says that it is one of this job."""
        with suppress(CutlayerError, OSError):
            if Provenance.read(beside(path)).job == self.job.name:
                self._remove(path, "predictions")
                self._remove(beside(path), "predictions")
        if path.exists():
            self.not_deleted.append(f"predictions in {path.name}")

    def _remove(self, path: Path, name: str = "") -> None:
        """Remove a file or folder, and note its name or another one for it.

        Raises:
            RunFolderError: It is a symbolic link: what it leads to would stay.
        """
        if path.is_symlink():
            raise RunFolderError.expected("a file or folder to delete", f"a symbolic link at {path}", "replace it")
        if path.exists():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            self.deleted.add(name or path.name)


def check_forgets(job: Job, name: str) -> None:
    """Refuse to forget rows that nothing identifies.

    Raises:
        ConfigError: Row numbers are the ids: without a row, other rows would belong together.
    """
    ids = job.parties[name].id
    if ids is None or ROW_NUMBER in ids.columns:
        remedy = "delete the row from the tables of all parties, and forget each party"
        raise ConfigError.expected(f"an id column of {name}, by which rows are forgotten", "row numbers", remedy)
