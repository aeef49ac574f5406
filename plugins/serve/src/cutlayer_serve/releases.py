"""Releases of a passive party online: its protections, the count of every row, and its own limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.accounting import GaussianRelease, ReleaseLog, Slot, log_of_run
from cutlayer.accounting.slots import ANY_PART, Occasion
from cutlayer.channel import Kind
from cutlayer.data.id_index import ABSENT
from cutlayer.data.ids import Digests
from cutlayer.errors import BudgetExceeded, ConfigError
from cutlayer.parties.guards.numbers import check_own
from cutlayer.parties.session.plan import plan_of
from cutlayer.protections.contract.views import Mode, PassiveView
from cutlayer.serving.models import RowEmbedder
from cutlayer.serving.predicted_grades import note_grades
from cutlayer.serving.prediction_release import set_up_releases
from cutlayer.storage.durable import locked, make_folder
from cutlayer.training.run_ledger import chain_of
from cutlayer_serve.features import FeatureStore
from cutlayer_serve.released_rows import ReleasedRows
from cutlayer_serve.status import Status
from cutlayer_serve.trained_party import TrainedParty

RowNumbers = npt.NDArray[np.int64]
Statuses = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class LookupAnswer:
    """Answer to a lookup.

    Attributes:
        status: Status of each row, uint8 (n,).
        embedding: What is sent, float32 (n, width), zeros wherever a row is not present.
        rows: Row numbers in the party's own store, int64 (n,), `ABSENT` where it has none.
    """

    status: Statuses
    embedding: Tensor
    rows: RowNumbers

    @classmethod
    def nothing(cls, count: int, width: int, why: Status) -> LookupAnswer:
        """No row is present, for one reason."""
        return cls(np.full(count, why, np.uint8), torch.zeros(count, width), np.full(count, ABSENT, np.int64))


class OnlineReleases:
    """Embeddings of a passive party by id, for predictions.

    Where a protection acts on embeddings, each id is released once in a pass: its numbers are stored, and sent again
    whenever the id is asked for, also if its columns have changed. New numbers for the changed rows alone would show
    with certainty which ones these are. One pass over the rows, however many requests it takes, is one of the `serving`
    releases that the party planned, and is counted in the run's release log before anything of it is sent. The party
    decides when the next one begins, without regard to any row.

    To be used in a `with` block: it excludes other processes that release rows of the same run.

    Args:
        trained: The party's part of the run.
        features: The party's columns by id.
        max_ids: Maximum number of different ids that are answered, unknown ones included; `None` for no such limit.
        supplied: Key that replaced the keys of the run, 32 bytes; `None` where the party has its own.
        passes: Number of passes that have begun; one more than before begins another.

    Raises:
        ConfigError: Releases are counted, and fewer were planned for predictions than there are passes.
    """

    def __init__(
        self,
        trained: TrainedParty,
        features: FeatureStore,
        max_ids: int | None = None,
        supplied: bytes | None = None,
        *,
        passes: int = 1,
    ) -> None:
        bottom = trained.model.bottom
        if bottom is None:
            raise ConfigError(f"{trained.party} has no features; nothing of it can be served")
        self.trained, self.features, self.bottom, self.max_ids = trained, features, bottom, max_ids
        job, party = trained.job, trained.party
        self.plan = plan_of(job, party)
        self.chain = chain_of(job, party)
        acting = [p for p in self.chain.protections if p.acts_at("embedding_out")]
        self.protected = bool(acting)
        self.counted = any(isinstance(p.event(self.plan), GaussianRelease) for p in acting)
        if self.counted and not self.plan.serving:
            wanted = f"planned predictions: {party} counts its releases, and to serve a row is to release it"
            got = "none"
            raise ConfigError.expected(wanted, got, f"train with `serving: 1` or more in the private part of {party}")
        if self.counted and passes > self.plan.serving:
            wanted = f"serve.passes up to {self.plan.serving}, the releases of each row that {party} planned"
            raise ConfigError.expected(wanted, passes)
        self._supplied = supplied
        self._embedder = RowEmbedder(bottom, features.store, features.graded)
        self._held = ExitStack()
        self._log = ReleaseLog()
        self._rows = ReleasedRows(None, 0)
        self._asked = ReleasedRows(None, 0)
        self._passes: dict[int, int] = {}
        self._begun = passes
        self._current = 0

    def __enter__(self) -> OnlineReleases:
        folder = self.trained.folder.path / "serving" / self.trained.party
        party_folder = self.trained.folder.path / "checkpoint" / self.trained.party
        # With the release log, next to the secret of the party: no copy of the run folder undoes what was released.
        path = log_of_run(party_folder).with_suffix(".served") if self.counted else folder / "released"
        self._asked = ReleasedRows(folder / "asked" if self.max_ids is not None else None, 0)
        make_folder(path.parent)
        lock = log_of_run(party_folder).with_suffix(".lock") if self.counted else folder / "serving.lock"
        make_folder(lock.parent)
        self._held.enter_context(locked(lock, f"the online service of {self.trained.party}"))
        if self.protected:
            trained, width = self.trained, self.bottom.width
            self._log = set_up_releases(
                trained.job, trained.folder, trained.party, self.chain, width, self._supplied, counted=self.counted
            )
            self._rows = ReleasedRows(path, self.bottom.width)
        self._note_grades()
        self._passes = self._passes_so_far()
        stored = self._rows.passes
        self._current = stored[self._begun - 1] if self._begun <= len(stored) else max(stored, default=-1) + 1
        return self

    def _note_grades(self) -> None:
        """Note those of the whole table: any row may be asked for at any time, whatever other jobs release by then."""
        part = self.trained
        self._embedder.values, self._embedder.limited = self.features.values, self.features.limited
        try:
            note_grades(part.job, part.folder, part.party, part.model.encoder, self._embedder)
        except ConfigError:  # counted as that of a prediction: the label owner sees that there is no service
            self.chain.charge_refusal()
            self.__exit__()
            raise
        self._embedder.values = self.features.values = lambda _: None  # which holds the table
        self._embedder.limited = self.features.limited = None

    def __exit__(self, *_: object) -> None:
        if self.protected:
            # A log without the record of its end counts as that of a run that did not end.
            self.chain.close_account()
        self._held.close()

    def release(self, ids: Digests) -> LookupAnswer:
        """Embeddings of the ids asked for; what has to be counted is on disk by then.

        Args:
            ids: Digests of the ids, uint8 (n, 16); an id may repeat.

        Raises:
            RunFolderError: The run was forgotten since it was loaded.
        """
        self.trained.check_remembered()
        rows = self.features.find(ids)
        if not self.protected and self.max_ids is None and (rows != ABSENT).all():
            with torch.inference_mode():
                return LookupAnswer(np.zeros(len(rows), dtype=np.uint8), self._embed(torch.from_numpy(rows)), rows)
        status = np.where(rows == ABSENT, Status.UNKNOWN, Status.PRESENT).astype(np.uint8)
        embedding = torch.zeros(len(ids), self.bottom.width)
        allowed = self._within_limit(ids, status)
        known = allowed[rows[allowed] != ABSENT]
        if len(known):
            with torch.no_grad():
                if self.protected:
                    self._release_once(ids, rows, known, status, embedding)
                else:
                    embedding[torch.from_numpy(known)] = self._embed(torch.from_numpy(rows[known]))
        return LookupAnswer(status, embedding, rows)

    def _within_limit(self, ids: Digests, status: Statuses) -> RowNumbers:
        """The rows that the limit of ids leaves; the rest is marked as capped.

        Unknown ids count too, and beyond the limit they are not distinguished from known ones: an active party that
        asks for all ids that there may be would otherwise learn which of them this party has.
        """
        if self.max_ids is None:
            return np.arange(len(ids))
        room = self.max_ids - len(self._asked)
        new = dict[bytes, None]()
        allowed = []
        for position, index in enumerate(self._asked.find(ids).tolist()):
            id_digest = ids[position].tobytes()
            if index < 0 and id_digest not in new:
                if len(new) >= room:
                    status[position] = Status.CAPPED
                    continue
                new[id_digest] = None
            allowed.append(position)
        if new:
            self._asked.add([*new], 0, 0, torch.zeros(len(new), 0))
        return np.array(allowed, dtype=np.int64)

    def _release_once(
        self, ids: Digests, rows: RowNumbers, known: RowNumbers, status: Statuses, embedding: Tensor
    ) -> None:
        """Protected embeddings: those of earlier releases again, and the rest in one batch for each pass."""
        new: dict[bytes, int] = {}
        for position, index in zip(known.tolist(), self._rows.find(ids[known]).tolist(), strict=True):
            if index < 0 or self._rows.pass_of(index) < self._current:
                new.setdefault(ids[position].tobytes(), int(rows[position]))
        if new:
            try:
                number = self._pass()
                if self.counted:
                    self._rows.begin([*new], number, self._passes[number])
                self._send_batch(number, self._passes[number], new)
            except BudgetExceeded:
                capped = self._rows.find(ids[known]) < 0  # what an earlier pass released is sent again
                status[known[capped]] = Status.CAPPED
                known = known[~capped]
        embedding[torch.from_numpy(known)] = self._rows.embeddings(self._rows.find(ids[known]))

    def _send_batch(self, number: int, batch: int, new: Mapping[bytes, int]) -> None:
        rows = torch.tensor([*new.values()])
        # By the party's own ids, not those asked for.
        view = PassiveView(Mode.SERVE, number, batch, rows, self._embed, ids=self._embedder.ids, part=ANY_PART)
        released = self.chain.embedding_out(self._embed(rows), view)
        self._passes[number] = batch + 1
        self.chain.sending(Kind.EVALUATION, self.trained.job.active, released)
        self._rows.add([*new], number, batch, released)

    def _pass(self) -> int:
        """The pass that rows are released in: the current one, or the next where it cannot be used.

        Raises:
            BudgetExceeded: All planned passes are in use.
        """
        usable = [mine for mine in self._passes if mine >= self._current]
        if usable:
            return min(usable)
        used = {occasion.epoch for occasion in self._log.tally.highest if occasion.reason == Mode.SERVE.value}
        used |= self._passes.keys()
        if self.counted and len(used) >= self.plan.serving:
            raise BudgetExceeded(
                f"{self.trained.party}: all {self.plan.serving} planned releases of each row are in use"
            )
        new = max(used, default=-1) + 1
        self._passes[new] = 0
        return new

    def _passes_so_far(self) -> dict[int, int]:
        """The passes of this service before it was restarted, each with its next batch.

        If the log has a batch that the stored rows do not have, they are an older copy: which rows were released is
        lost, and the pass is not used again.
        """
        begun = self._rows.begun.items()
        lost = {number for (number, batch), ids in begun if not self._finished(number, batch, ids)}
        passes = {number: self._rows.batches(number) for number in self._rows.passes if number not in lost}
        return {number: batch for number, batch in passes.items() if not self._log.contents(self._slot(number, batch))}

    def _finished(self, number: int, batch: int, ids: Sequence[bytes]) -> bool:
        """Store a batch that was begun and counted, and perhaps sent, by a process that was killed.

        The same content at the same slot has the same noise: what was sent, if it was, is sent again.

        Returns:
            Whether the pass can be used again.
        """
        if not self._log.contents(self._slot(number, batch)):
            return True  # nothing of it was sent
        rows = self.features.find(np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 16))
        if (rows == ABSENT).any():
            return False
        try:
            with torch.no_grad():
                self._send_batch(number, batch, dict(zip(ids, rows.tolist(), strict=True)))
        except BudgetExceeded:  # the columns have changed, which is another release
            return False
        return True

    def _slot(self, number: int, batch: int) -> Slot:
        occasion = Occasion("embedding", self.trained.job.active, Mode.SERVE.value, ANY_PART, number)
        return Slot(occasion, batch)

    def _embed(self, rows: Tensor) -> Tensor:
        """The bottom model on rows of the store, int64 (m,): (m, width)."""
        embedding = self._embedder(rows).flatten(1)
        limit = self.trained.job.parties[self.trained.party].limits.embedding_norm
        check_own(embedding, limit, self.trained.party, "served embedding")
        return embedding
