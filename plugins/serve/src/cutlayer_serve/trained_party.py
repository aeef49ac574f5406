"""One party's part of a trained model, from its own run folder, with what serving it needs besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

from cutlayer.config import Job
from cutlayer.config.load import load_closed_job
from cutlayer.errors import ConfigError
from cutlayer.results.departure import AbsenceUtility
from cutlayer.serving.models import PartyModel
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import check_not_forgotten
from cutlayer_serve.sample import ServedSample, sample_path


@dataclass(frozen=True)
class TrainedParty:
    """A party's own part of a finished run; nothing of any other party.

    Attributes:
        job: The job with this party's private part, as it was trained.
        folder: The run folder, which is only read.
        party: Name of the party.
        model: Its models and its encoder.
    """

    job: Job
    folder: RunFolder
    party: str
    model: PartyModel

    @classmethod
    def open(cls, path: Path, party: str) -> TrainedParty:
        """Load the part of a party.

        Raises:
            RunFolderError: There is no finished run, or not this party's part of one.
            ConfigError: The run has no such party.
        """
        folder = RunFolder.open(path)
        job = load_closed_job(path / "job.yaml")
        if party not in job.parties:
            raise ConfigError.expected(f"a party of the run ({', '.join(job.parties)})", party)
        return cls(job, folder, party, PartyModel.load(job, folder, party))

    @cached_property
    def _digest(self) -> str:
        return self.job.digest()

    def check_remembered(self) -> None:
        """Refuse to go on where the run was forgotten, or deleted, since it was loaded.

        Raises:
            RunFolderError: It was: its model has learned from rows of which nothing may be left.
        """
        check_not_forgotten(self.folder.path, self.party, self._digest)

    @cached_property
    def utility(self) -> Mapping[frozenset[str], AbsenceUtility]:
        """Held-out metrics of the run by the absent parties, at the active party."""
        return {frozenset(row.absent): row for row in self.folder.summary.departures.rows}

    def sample(self, passive: str, rows: int) -> ServedSample | None:
        """This party's sample of what was served of a passive party; `None` for no rows."""
        path = sample_path(self.folder.path, self.party, passive)
        return ServedSample(path, self.tag(passive), rows) if rows else None

    def tag(self, passive: str) -> str:
        """Identifies the training and a passive party of it: parts of two trainings do not fit together.

        Both sides compute it from their own folder.
        """
        record = self.model.record
        what = repr((record.job, record.training_with(passive), passive)).encode()
        return blake2b(what, digest_size=8, person=b"served half").hexdigest()
