"""Releases for predictions, after a training: through the party's own protections, counted, and limited by its plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from cutlayer.accounting import GaussianRelease, RandomizedGrade, ReleaseLog, log_of_run
from cutlayer.accounting.run_store import LEDGER_FILE, RunStore
from cutlayer.channel import Kind
from cutlayer.config import Job
from cutlayer.data.batches import evaluation_batches
from cutlayer.errors import BudgetExceeded, ConfigError, DriftExceeded, ProtocolError
from cutlayer.parties.session.local import EVALUATION_ROWS, context_of
from cutlayer.parties.session.plan import plan_of
from cutlayer.parties.session.state import restore_chain, rows_of_order
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.views import Mode, PassiveView
from cutlayer.serving.models import RowEmbedder
from cutlayer.storage.durable import locked
from cutlayer.training.all_runs import restate_draws
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import KEY_BYTES, check_same_keys, noise_key_path, read_key
from cutlayer.training.model_record import ModelRecord, record_path
from cutlayer.training.run_ledger import chain_of
from cutlayer.training.trained import checkpoint_of


class OpenPrediction:
    """A prediction that was counted: it releases every row once, in batches of the party's own numbering.

    Args:
        chain: Protections of the party, set up for predictions.
        active: Name of the active party.
        number: Number of the prediction, from 0.
    """

    def __init__(self, chain: Chain, active: str, number: int) -> None:
        self._chain, self._active, self._number = chain, active, number
        self._batches = 0
        self._next = 0

    def release(self, embed: RowEmbedder, rows: Tensor) -> Tensor:
        """Release rows that were not released in this prediction before.

        Args:
            embed: Runs the bottom model on these rows, and reads their ids.
            rows: Row numbers of the prediction, int64 (n,), ascending and above all that were released.

        Returns:
            What the active party receives, float32 (n, width).

        Raises:
            ProtocolError: Rows in another order: one of them might be released twice, and counted once.
        """
        if len(rows):
            if int(rows[0]) < self._next or not bool((rows[1:] > rows[:-1]).all()):
                wanted = f"ascending rows from {self._next:,} on, each once in a prediction"
                raise ProtocolError.expected(wanted, f"rows from {int(rows[0]):,} on")
            self._next = int(rows[-1]) + 1
        parts = []
        for batch in evaluation_batches(rows, EVALUATION_ROWS):
            numbered = embed.digests is None
            view = PassiveView(Mode.SERVE, self._number, self._batches, batch, embed, ids=embed.ids, numbered=numbered)
            with torch.no_grad():
                released = self._chain.embedding_out(embed(batch), view)
            self._chain.sending(Kind.EVALUATION, self._active, released)
            self._batches += 1
            parts.append(released)
        with torch.no_grad():
            return torch.cat(parts) if parts else embed(rows)


class PredictionReleases:
    """Releases of a passive party of a finished run for predictions.

    A prediction releases every row that it is asked for once, with noise of its own. The rows of a prediction have no
    ids that distinguish them from those of another, so the account takes each prediction for one more release of every
    row: `serving` of the party's private settings is the number that it plans for, besides the schedule. A prediction
    is counted in the run's release log, on disk, before anything is released.

    Args:
        job: Job of the run.
        folder: Folder of the run.
        party: Name of a passive party.
        width: Number of columns of its embedding.
        supplied: Key that replaced all keys of the run, 32 bytes; `None` where the party has its own.
    """

    def __init__(self, job: Job, folder: RunFolder, party: str, width: int, supplied: bytes | None) -> None:
        self.job, self.folder = job, folder
        self.party = party
        self.plan = plan_of(job, party)
        self.chain = chain_of(job, party)
        self.counted = any(
            isinstance(protection.event(self.plan), GaussianRelease) for protection in self.chain.protections
        )
        self._again: int | None = None
        self._log = set_up_releases(job, folder, party, self.chain, width, supplied, counted=self.counted)

    @property
    def predictions_made(self) -> int:
        """Predictions so far."""
        return sum(occasion.reason == Mode.SERVE.value for occasion in self._log.tally.highest)

    def repeat_prediction(self, number: int) -> None:
        """Take the next prediction for the one of a number, from 0, which may have been counted before it was written.

        Its rows get the same noise again, and are not counted again; other rows are, beyond the plan.
        """
        self._again = number

    def check(self) -> None:
        """Raise if no prediction is left.

        Raises:
            ConfigError: The party's releases are counted and none was planned for predictions.
            BudgetExceeded: All planned predictions have been made.
        """
        if not self.counted or (self._again is not None and self._again < self.predictions_made):
            return
        if not self.plan.serving:
            raise ConfigError.expected(
                f"planned predictions: {self.party} counts its releases, and a prediction is one of every row",
                "none",
                f"train with serving at {self.party} (`predictions` of an estimator), or ask for the unprotected "
                "prediction, which shows what never left the party",
            )
        made, planned = self.predictions_made, self.plan.serving
        if made >= planned:
            plan = f"{planned} were planned, and the ledger states the cost of those"
            if planned == 1:
                plan = "1 was planned, and the ledger states its cost"
            raise BudgetExceeded(
                f"{self.party}: prediction {made + 1} was asked for, but {plan}; nothing was released; train with more"
            )

    @contextmanager
    def prediction(self) -> Iterator[OpenPrediction]:
        """Count a prediction, whose rows are released batch by batch while the context is open.

        Raises:
            ConfigError, BudgetExceeded: As `check`; nothing is released then.
            RunFolderError: Another process makes a prediction at this moment.
        """
        with self._exclusive():
            self.check()
            number = self.predictions_made if self._again is None else self._again
            try:
                yield OpenPrediction(self.chain, self.job.active, number)
            finally:
                # The log of a finished run ends with the record of its end, or a later run takes it for unfinished.
                self.chain.close_account()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Count a prediction that is refused while the context is open, before the other party learns of it."""
        try:
            yield
        except (ConfigError, DriftExceeded):
            with self._exclusive():
                self.chain.charge_refusal()
                self.chain.close_account()
            raise

    def release(self, embed: RowEmbedder, rows: int) -> Tensor:
        """Make a prediction of rows that are all in memory.

        Args:
            embed: Runs the bottom model on the rows asked for, and reads their ids.
            rows: Number of rows asked for.

        Returns:
            What the active party receives, float32 (rows, width).

        Raises:
            ConfigError, BudgetExceeded, RunFolderError: As `prediction`.
        """
        with self.prediction() as prediction:
            return prediction.release(embed, torch.arange(rows))

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep every other process from counting a prediction meanwhile."""
        # Draws of grades are counted together with those of other processes.
        if self._log.path is None or not self.counted:
            yield
            return
        with locked(self._log.path.with_suffix(".lock"), f"a prediction with {self.party}"):
            yield


def set_up_releases(
    job: Job, folder: RunFolder, party: str, chain: Chain, width: int, supplied: bytes | None, *, counted: bool | None
) -> ReleaseLog:
    """Set a party's protections up as they were at the end of a run; returns the log that counts their releases.

    Args:
        job: As in `PredictionReleases`.
        folder: As in `PredictionReleases`.
        party: As in `PredictionReleases`.
        chain: The party's protections.
        width: As in `PredictionReleases`.
        supplied: As in `PredictionReleases`.
        counted: Whether releases with noise are counted on disk, in the log of the run, as draws by value are; `None`
            where another process counts.
    """
    record = ModelRecord.read(record_path(folder, party))
    state = checkpoint_of(job, folder, party)
    plan = plan_of(job, party)
    drawn = counted is not None and any(isinstance(p.event(plan), RandomizedGrade) for p in chain.protections)
    log = ReleaseLog()
    if counted or drawn:
        where = str(folder.path.resolve())
        identity = {"party": party, "job": job.digest(), "rows": rows_of_order(state[1]["rows"]), "folder": where}
        log = ReleaseLog(path := log_of_run(folder.path / "checkpoint" / party), identity)
        if drawn:  # the ledger of all runs is two folders above the logs of a job, beside the secret
            chain.redrawn = partial(restate_draws, job, party, chain, RunStore(path.parents[2] / LEDGER_FILE))
    key = run_noise_key(folder, party, supplied) if chain.protections else bytes(KEY_BYTES)
    chain.setup(context_of(job, party, {party: width}, record.training_rows(job, folder), key, key), log)
    restore_chain(chain, state)
    return log


def prediction_releases(
    job: Job, folder: RunFolder, widths: Mapping[str, int], supplied: bytes | None
) -> dict[str, PredictionReleases]:
    """Releases of each passive party for a prediction, once all of them have one left.

    Args:
        job: Job of the run.
        folder: Folder of the run.
        widths: Number of columns of the embeddings of the passive parties that are asked, by name.
        supplied: Key as in `PredictionReleases`.

    Raises:
        ConfigError, BudgetExceeded: One of the parties has no prediction left; nothing is released by any.
    """
    parties = {name: PredictionReleases(job, folder, name, width, supplied) for name, width in widths.items()}
    for serving in parties.values():
        serving.check()
    return parties


def run_noise_key(folder: RunFolder, party: str, supplied: bytes | None) -> bytes:
    """The key of a party's noise in a run.

    Raises:
        ConfigError: The run was made with a supplied key, and none is supplied now.
        CheckpointError: Another key is supplied.
    """
    path = noise_key_path(folder.path, party)
    if supplied is not None:
        check_same_keys(path.with_name("keys.fingerprint"), (supplied, supplied))
        return supplied
    if not path.exists():
        raise ConfigError.expected(f"the key of the noise of {party}", f"none at {path}", "name the --key of the run")
    return read_key(path)
