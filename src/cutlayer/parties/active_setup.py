"""State of the active party before the first step: its rows and labels, its models, and its protections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from cutlayer.channel import Port
from cutlayer.config import Job
from cutlayer.config.phases import Phase
from cutlayer.data.ids import Digests
from cutlayer.data.prepared import Prepared
from cutlayer.data.split import Split
from cutlayer.errors import ConfigError, DataError
from cutlayer.kernels.noise.one_of_each import draw_row_of_each_id
from cutlayer.models import Inputs, TopModel, bottom_of, top_of
from cutlayer.parties.session.local import LocalSide
from cutlayer.parties.session.state import PartyState
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.protections.contract.views import ActiveView
from cutlayer.storage.row_arrays import gathered_rows
from cutlayer.storage.row_tensors import number_equal, rows_of, scattered_rows


class ActiveSetup:
    """The active party's labels, models and protections, for the common rows.

    Args:
        job: The shared job.
        local: The party's private side.
        split: Rows for training, validation and testing.
        prepared: Encoded columns and labels of the common rows.
        widths: Number of columns of each passive party's embedding.
        ports: Ports to the passive parties, by name.
        order: Digest of the rows and their batches, which a resumed run must have again.

    Attributes:
        truth: True labels by row of the common order; past the hook `labels`, only evaluation reads them.
        label_kind: Type of the label column.
        drawn_labels: Labels as they were drawn, by row; -1 where no training row is.
        labels: What training uses of them: the drawn ones, or, where all partners have left by then, the true ones.
        task: Task with the true classes, for the evaluation of held-out rows.
        positive_share: Share of positive training rows by their true labels; `None` unless the task is binary.
        training_loss: Loss of the protected labels, with weights of the classes.
        weights: Weights of the rows in the loss, if any.
        groups: Number of each row's id, int64 (n,), where ids repeat; else `None`.
        store: Encoded columns of the party, if it has any.
        inputs: Shape of the encoded columns.
        widths: Number of columns of each embedding, this party's own included, in the job's order.
        top: The top model.
        state: Models, optimiser and protections.
        fingerprint: See `ActiveOutcome.fingerprint`.
        draws: Fingerprint for the ledger of all runs, where draws that are remembered do not depend on the common rows.
    """

    def __init__(
        self,
        job: Job,
        local: LocalSide,
        split: Split,
        prepared: Prepared,
        widths: Mapping[str, int],
        ports: Mapping[str, Port],
        order: bytes,
    ) -> None:
        if prepared.labels is None:
            raise DataError(f"{local.name} is the active party and needs a label column")
        if job.draws_batches and prepared.store is None:
            remedy = "provide one, or write rows: common"
            wanted = f"a feature column of {local.name}, for the rows that nobody else has"
            raise DataError.expected(wanted, "none", remedy)
        self._job, self._local, self._split = job, local, split
        self._train = split.part("train")
        self.weights, self.store = prepared.weights, prepared.store
        self.groups = None if local.table.id_table is local.table else prepared.groups
        self.truth, self.label_kind = prepared.labels.values, prepared.labels.kind
        if job.target == "ranking":
            self.groups = self.truth[:, 1].long()
        training = self.truth_of(self._train)
        self.task = Task.fitted(job.task, prepared.labels.classes, training, job.target)
        self.task = self.task.with_positive(job.parties[local.name].positive, local.name)
        self.positive_share = (
            number_equal(training, self.task.positive) / len(training) if self.task.kind == "binary" else None
        )
        self.inputs = self.store.columns.inputs if self.store else Inputs()
        self._build(prepared, widths, ports.values(), order)
        self._protect_labels(prepared, training)

    @property
    def labels_are_drawn(self) -> bool:
        """Whether training uses drawn labels in place of the true ones."""
        return self.labels is self.drawn_labels and self.state.chain.acts_at("labels")

    def truth_of(self, rows: Tensor) -> Tensor:
        """True labels of some rows, int64 (n,)."""
        return rows_of(self.truth, rows)

    def _build(self, prepared: Prepared, widths: Mapping[str, int], ports: Iterable[Port], order: bytes) -> None:
        job, local = self._job, self._local
        modules: dict[str, nn.Module] = {}
        if self.store is not None:
            bottom = bottom_of(job, local.name, self.inputs)
            modules["bottom"], widths = bottom, {**widths, local.name: bottom.width}
        self.widths = {party: widths[party] for party in job.parties if party in widths}
        self.top: TopModel = top_of(job, self.widths, self.task.outputs)
        modules["top"] = self.top
        charge = local.charge_run(prepared.digests, lambda: self.draws)
        self.state = PartyState(
            modules, job.train.optimizer, local.chain, order, ports, before_release=charge, device=local.device
        )
        if Phase.FIT not in job.phases:
            _ = self.optimizer  # which refuses a model without parameters

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimiser of the active party's models.

        Raises:
            ConfigError: They have no parameters.
        """
        if self.state.optimizer is None:
            raise ConfigError("model.top has no parameters to train; use a kind that has some")
        return self.state.optimizer

    def _protect_labels(self, prepared: Prepared, training: Tensor) -> None:
        """Draw the protected training labels; from here on, training uses only these."""
        train, local = self._train, self._local
        context = local.context(
            self._job,
            {name: self.widths[name] for name in self._job.passives},
            train,
            task=self.task,
            label_column=local.config.label or "",
            label_memory=local.label_memory,
        )
        chain, log = self.state.chain, local.release_log(self._job, prepared.order_digest)
        # Twice: the hook `labels` needs its protections set up, and protections such as DIMIP need the labels that it
        # returned. The release log is opened the second time: an account on disk means that labels were drawn.
        chain.setup(context)
        digests = gathered_rows(local.draw_ids(prepared.digests), self._split.train)
        drawn = self._drawn(training, digests, None if self.groups is None else prepared.groups[train])
        local.table.check_training_labels(drawn, None if self.weights is None else rows_of(self.weights, train))
        self.drawn_labels = scattered_rows(drawn.to(self.truth.dtype), train, len(self.truth), -1)
        # Drawn labels that were sent protect the labels. What is trained after the last message is of the true ones.
        alone = Phase.LABELS in self._job.phases
        self.labels = scattered_rows(training, train, len(self.truth), -1) if alone else self.drawn_labels
        chain.setup(replace(context, labels=self.drawn_labels), log)
        mean_loss = TrainingLoss(self.task, None if alone else chain.transition)
        mean_loss = mean_loss.weighted(self._job.train.class_weight, training if alone else drawn)
        self.training_loss = mean_loss.to(local.device)
        self.fingerprint = local.draw_fingerprint(chain.draws, prepared.order_digest, self.truth)
        # For all runs: draws that are remembered do not depend on which rows are common.
        self.draws = local.draw_fingerprint(
            chain.draws, prepared.order_digest if None in chain.draws else b"", self.truth
        )

    def _drawn(self, training: Tensor, digests: Digests, ids: Tensor | None) -> Tensor:
        """Labels of the training rows as they are drawn; of several rows of one id, the label of one of them.

        A partner's row has so one drawn label at most, however many rows its id has here.

        Args:
            training: True labels, (t,).
            digests: Digests of the ids, uint8 (t, 16).
            ids: Number of each row's id, int64 (t,); `None` where no id repeats.
        """
        chain, sent = self.state.chain, self.state.sent
        sent["labels"] = len(training)
        if ids is None or not chain.acts_at("labels"):
            return chain.labels(training, torch.from_numpy(digests))
        found = draw_row_of_each_id(ids.numpy(), digests, self._local.secret, training.double().numpy())
        chosen, of_rows = (torch.from_numpy(rows) for rows in found)
        sent["labels"] = len(chosen)
        return chain.labels(rows_of(training, chosen), torch.from_numpy(digests)[chosen])[of_rows]

    def own_embedding(self, rows: Tensor) -> dict[str, Tensor]:
        """This party's own embedding of rows, int64 (n,), by its name; nothing if it has no columns."""
        if self.store is None:
            return {}
        return {self._local.name: self.state.modules["bottom"](*self._local.resident.gather(self.store, rows))}

    def ordered_embeddings(self, active_embedding: Mapping[str, Tensor], view: ActiveView) -> dict[str, Tensor]:
        """All embeddings, including this party's own, in the job's order of parties."""
        seen = {**self.state.chain.embeddings_in(view.embeddings, view), **active_embedding}
        self.state.sent["embeddings_in"] += 1
        return {name: seen[name] for name in self.widths}
