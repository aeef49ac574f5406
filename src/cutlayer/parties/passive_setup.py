"""State of a passive party before the first step: its rows, its bottom model, and its protections."""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.channel import Port
from cutlayer.config import Job
from cutlayer.data.ids import Digests
from cutlayer.data.numbered_ids import numbered_ids
from cutlayer.data.prepared import Prepared, beside
from cutlayer.data.split import Split
from cutlayer.errors import DataError
from cutlayer.kernels.rows.one_hot import one_hot_columns
from cutlayer.models import BottomModel, bottom_of
from cutlayer.models.bottom_fits import TrainingColumns, check_columns, private_fit
from cutlayer.models.grade import GradeBottom
from cutlayer.parties.compute.read_ahead import BatchColumns
from cutlayer.parties.compute.readings import Readings
from cutlayer.parties.compute.step_order import StepOrder
from cutlayer.parties.guards.numbers import check_own
from cutlayer.parties.session.local import LocalSide
from cutlayer.parties.session.state import PartyState
from cutlayer.protections.contract.views import Mode, PassiveView
from cutlayer.protections.grade_dp import epsilon_of
from cutlayer.storage.row_arrays import gathered_rows


class PassiveSetup:
    """A passive party's columns, bottom model and protections, for the common rows.

    Args:
        job: The shared job.
        local: The party's private side.
        split: Rows for training, validation and testing.
        prepared: Encoded columns of the common rows.
        port: Port to the active party.
        order: Digest of the rows and their batches, which a resumed run must have again.
        pilot: The rows of a pilot, int64 (m,); `None` where all are released.

    Attributes:
        store: Encoded columns.
        encoder: Their encoder.
        digests: Digests of the ids of the rows, uint8 (n, 16).
        words: As of `Prepared`.
        named: Features and their encoder, with the columns that have a limit and are none; `None` without names.
        inputs: Shape of the encoded columns.
        bottom: The bottom model.
        state: The bottom model with its optimiser, and the protections.
    """

    def __init__(
        self,
        job: Job,
        local: LocalSide,
        split: Split,
        prepared: Prepared,
        port: Port,
        order: bytes,
        pilot: Tensor | None = None,
    ) -> None:
        if prepared.store is None:
            raise DataError(f"{local.name} has no feature columns; a passive party needs at least one")
        self._job, self._local = job, local
        self.split, self.store, self.digests = split, prepared.store, prepared.digests
        self.encoder, self.words = prepared.encoder, prepared.words
        self.named = beside(self.store, self.encoder, prepared.limited) if self.encoder is not None else None
        self.inputs = self.store.columns.inputs
        epsilon = epsilon_of(local.chain.protections)
        columns = TrainingColumns(self.inputs, split.part("train"), self.store.gather, epsilon=epsilon)
        check_columns(local.fit, columns, f"parties.{local.name}.fit")  # before any training, also that of a baseline
        bottom: BottomModel = bottom_of(job, local.name, self.inputs)
        # Before the first message about features: all protections assume that rows do not affect each other.
        local.chain.check_bottom(bottom, self.inputs)
        self.bottom = bottom
        self._ids = self._graded() if isinstance(bottom, GradeBottom) else self.digests
        self._draws = lambda: next((p.draws for p in local.chain.protections if p.draws), "")
        # A private fit costs each training row, whichever rows a pilot releases.
        some = pilot if private_fit(local.fit) is None else None
        counted = prepared.digests if some is None else gathered_rows(prepared.digests, some.numpy())
        self.state = PartyState(
            {"bottom": bottom},
            job.train.optimizer,
            local.chain,
            order,
            [port],
            local.wrap,
            local.charge_run(counted, self._draws),
            local.device,
        )

    def _graded(self) -> Digests:
        table = self._local.table
        if table.id_kind == "row":
            return numbered_ids(self.store, table.rows_of(self.digests))
        return table.grade_digests(self.digests)

    def set_up_chain(self, rows: bytes) -> None:
        """Set the protections up, once the active party holds the same rows.

        Args:
            rows: Digest of the ids of the common rows, in their order.
        """
        local = self._local
        context = local.context(self._job, {local.name: self.bottom.width}, self.split.part("train"))
        local.chain.setup(context, local.release_log(self._job, rows))

    def charge_refusal(self) -> None:
        """Count a refusal: also in a pilot it says something about all rows."""
        self._local.charge_run(self.digests, self._draws)
        self.state.charge()

    def embed(self, rows: Tensor) -> Tensor:
        """Embeddings of rows, float32 (n, width), by the current weights."""
        return self.bottom.of_rows(*self.gather(rows), self.ids(rows))

    def ids(self, rows: Tensor) -> Tensor:
        """Digests of the ids of rows, uint8 (n, 16); of grades, those by which they are drawn."""
        return torch.from_numpy(gathered_rows(self._ids, rows.numpy()))

    def gather(self, rows: Tensor) -> BatchColumns:
        """Codes and numbers of rows, on the device that this party trains on."""
        return self._local.resident.gather(self.store, rows)

    def columns(self, rows: Tensor) -> Tensor:
        """Columns of rows as one matrix, float32 (n, d), with categories one-hot."""
        return one_hot_columns(*self.gather(rows), self.inputs.cardinalities)

    def training_view(self, order: StepOrder) -> PassiveView:
        """View that protections get of the rows of a step."""
        return PassiveView(
            Mode.TRAIN, order.epoch, order.global_step, order.rows, self.embed, inputs=self.columns, part="train"
        )

    def check_own(self, embedding: Tensor, epoch: int, step: int, readings: Readings | None = None) -> None:
        """Stop if this party's own embeddings diverge, before a protection hides it; read at once by default."""
        what = f"embedding of epoch {epoch}, step {step}"
        check_own(embedding, self._local.config.limits.embedding_norm, self._local.name, what, readings)

    def protected(self, view: PassiveView, embedding: Tensor | None = None) -> Tensor:
        """The release of a batch for which no gradient comes back; its embedding is computed unless it is given."""
        with torch.no_grad():
            embedding = self.embed(view.rows) if embedding is None else embedding
            self.check_own(embedding, view.epoch, view.step)
            return self.state.chain.embedding_out(embedding, view)
