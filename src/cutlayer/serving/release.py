"""Releases for predictions, after a training: through the party's own protections, counted, and limited by its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from cutlayer.accounting import GaussianRelease, ReleaseLog, log_of_run
from cutlayer.channel import Kind
from cutlayer.config import Job
from cutlayer.data.batches import evaluation_batches
from cutlayer.durable import locked
from cutlayer.errors import BudgetExceeded, ConfigError
from cutlayer.parties.local import EVALUATION_ROWS, context_of, plan_of
from cutlayer.parties.state import chain_state
from cutlayer.protections.base import Mode, PassiveView
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import noise_key_path, read_key
from cutlayer.training.run_ledger import chain_of
from cutlayer.training.trained import Run

Embed = Callable[[Tensor], Tensor]
"""Runs the bottom model on some of the rows asked for, int64 (m,) -> (m, width)."""


class Serving:
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
        self.job, self.party = job, party
        self.plan, self.chain = plan_of(job, party), chain_of(job, party)
        self.counted = any(
            isinstance(protection.event(self.plan), GaussianRelease) for protection in self.chain.protections
        )
        run = Run(job, folder)
        own, state = folder.path / "checkpoint" / party, run.checkpoint(party)
        identity = {"party": party, "job": job.digest(), "rows": state[1]["rows"], "folder": str(folder.path.resolve())}
        self._log = ReleaseLog(log_of_run(own), identity) if self.counted else ReleaseLog()
        key = supplied or read_key(noise_key_path(folder.path, party))
        self.chain.setup(context_of(job, party, {party: width}, run.training, key, key), self._log)
        self.chain.load_state_dict(chain_state(state))

    @property
    def made(self) -> int:
        """Predictions so far."""
        return sum(occasion.reason == Mode.SERVE.value for occasion in self._log.tally.highest)

    def check(self) -> None:
        """Raise if no prediction is left.

        Raises:
            ConfigError: the party's releases are counted and none was planned for predictions.
            BudgetExceeded: all planned predictions have been made.
        """
        if not self.counted:
            return
        if not self.plan.serving:
            raise ConfigError.expected(
                f"planned predictions: {self.party} counts its releases, and a prediction is one of every row",
                "none",
                f"train with serving at {self.party} (`predictions` of an estimator), or ask for the unprotected "
                "prediction, which shows what never left the party",
            )
        made, planned = self.made, self.plan.serving
        if made >= planned:
            raise BudgetExceeded(
                f"{self.party}: prediction {made + 1} was asked for, but {planned} were planned, and the ledger states "
                "the cost of those; nothing was released; train with more"
            )

    def release(self, embed: Embed, rows: int) -> Tensor:
        """Count a prediction, and release its rows.

        Args:
            embed: Runs the bottom model on the rows asked for.
            rows: Number of rows asked for.

        Returns:
            What the active party receives, float32 (rows, width).

        Raises:
            ConfigError, BudgetExceeded: as `check`; nothing is released then.
            RunFolderError: another process makes a prediction at this moment.
        """
        with torch.no_grad(), self._alone():
            self.check()
            parts, number = [], self.made
            for step, batch in enumerate(evaluation_batches(torch.arange(rows), EVALUATION_ROWS)):
                view = PassiveView(Mode.SERVE, number, step, batch, embed)
                released = self.chain.embedding_out(embed(batch), view)
                self.chain.sending(Kind.EVALUATION, self.job.active, released)
                parts.append(released)
            # The log of a finished run ends with the record of its end, or a later run would take it for unfinished.
            self.chain.close_account()
            return torch.cat(parts) if parts else embed(torch.arange(0))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep every other process from counting a prediction meanwhile."""
        if self._log.path is None:
            yield
            return
        with locked(self._log.path.with_suffix(".lock"), f"a prediction with {self.party}"):
            yield


def servings(job: Job, folder: RunFolder, widths: Mapping[str, int], supplied: bytes | None) -> dict[str, Serving]:
    """Releases of each passive party for a prediction, once all of them have one left.

    Args:
        job: Job of the run.
        folder: Folder of the run.
        widths: Number of columns of the embeddings of the passive parties that are asked, by name.
        supplied: Key as in `Serving`.

    Raises:
        ConfigError, BudgetExceeded: one of the parties has no prediction left; nothing is released by any.
    """
    parties = {name: Serving(job, folder, name, width, supplied) for name, width in widths.items()}
    for serving in parties.values():
        serving.check()
    return parties
