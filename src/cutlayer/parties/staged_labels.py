"""Labels that are drawn during the run, as the steps of the active party use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from cutlayer.errors import ConfigError
from cutlayer.kernels.row_tensors import filled_rows
from cutlayer.models import TopModel
from cutlayer.parties.local import Local
from cutlayer.protections.chain import Chain
from cutlayer.protections.label_stages import LabelStages
from cutlayer.tasks import Task


class StagedLabels:
    """The labels of the common rows and their likelihood, which grow with each stage.

    Every training row is in every epoch from the first on. Until its label is drawn it has no effect on the loss, and
    its cut gradient is zero: messages, batches and releases are those of a job without stages.

    Args:
        chain: The party's protections.
        stages: Those of its protection of labels.
        labels: Protected labels by row of the common order; changed in place.
        training: Row numbers of the training rows, ascending, int64 (n,).
        task: Task of the training.
    """

    def __init__(self, chain: Chain, stages: LabelStages, labels: Tensor, training: Tensor, task: Task) -> None:
        self._chain, self._stages, self._labels, self._training, self._task = chain, stages, labels, training, task
        self._likelihood = filled_rows(len(labels), stages.likelihood.shape[1], 1, torch.float64)

    def begin(self, epoch: int) -> None:
        """Draw the labels that are due at the start of an epoch, and use all that are drawn."""
        self._chain.begin_epoch(epoch)
        self._labels[self._training] = self._stages.drawn
        self._likelihood[self._training] = self._stages.likelihood

    def task_of(self, rows: Tensor) -> Task:
        """The task with the likelihood of a batch's labels."""
        return replace(self._task, likelihood=self._likelihood[rows])

    def predict(self, epoch: int, rows: Tensor, top: TopModel, embeddings: Mapping[str, Tensor]) -> None:
        """Note what the model predicts for those rows of a batch whose labels the next epoch draws.

        Args:
            epoch: Number of the epoch.
            rows: Row numbers of the batch, int64 (n,).
            top: The top model, in training mode.
            embeddings: Embeddings of the batch by party, as the top model sees them.
        """
        indices = torch.searchsorted(self._training, rows)
        awaited = self._stages.awaits(epoch, indices)
        if not awaited.any():
            return
        top.eval()
        with torch.no_grad():
            logits = top({name: e.detach()[awaited.to(e.device)] for name, e in embeddings.items()})
        top.train()
        self._stages.predicted(indices[awaited], self._task.predict(logits.double().cpu()))


def staged_labels(chain: Chain, local: Local, labels: Tensor, training: Tensor, task: Task) -> StagedLabels | None:
    """The labels of a run whose protection draws them in stages; `None` where it drew all.

    Args:
        chain: The party's protections.
        local: The private side of the party.
        labels: As in `StagedLabels`.
        training: As in `StagedLabels`.
        task: As in `StagedLabels`.

    Raises:
        ConfigError: Rows have no ids, so that no memory ensures that each training draws under another name.
    """
    stages = chain.stages
    if stages is None:
        return None
    if local.table.id_kind == "row" and local.label_memory is not None:
        wanted = f"an id column at {local.name}, by which label_dp remembers the draws of its stages"
        raise ConfigError.expected(wanted, "rows without ids", "name one, or write stages: 1")
    return StagedLabels(chain, stages, labels, training, task)
