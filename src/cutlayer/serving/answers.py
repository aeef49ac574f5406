"""Predictions of rows of which everything that the parties released is here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from cutlayer.alignment.held_rows import HeldRows
from cutlayer.data.batches import evaluation_batches
from cutlayer.models import TopModel
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.problem.task import Task
from cutlayer.results.scores import Destination, write_scores

Embed = Callable[[Tensor], Tensor]
"""Embeddings of some rows to predict, int64 (m,) -> (m, width)."""


@dataclass(frozen=True, eq=False)
class PredictedRows:
    """The active party's result of a prediction.

    Attributes:
        ids: Ids of the rows as its table has them, (n,).
        logits: Logits of the top model, (n, outputs).
        present: Rows that each party with features contributed to, (n,), by name in the job's order.
    """

    ids: pa.ChunkedArray
    logits: Tensor
    present: Mapping[str, npt.NDArray[np.bool_]]

    def write(self, out: Destination, task: Task, warnings: Sequence[str] = ()) -> Mapping[str, int]:
        """Write them as `predict` does; returns the number of rows that each party contributed to."""
        return write_scores(out, task, self.ids, self.logits, self.present, warnings)


def answer_rows(
    top: TopModel,
    widths: Mapping[str, int],
    embeddings: Mapping[str, Embed],
    held: HeldRows,
    ids: pa.ChunkedArray,
    absent: Collection[str] = (),
) -> PredictedRows:
    """Answer with the top model, each row without the parties that lack it.

    Args:
        top: The top model, in evaluation mode.
        widths: Width of the embedding of each party with features, in the job's order.
        embeddings: Of each party that answers, what computes or reads its embeddings (m, width) of some of the rows;
            they are asked for batch by batch, in order, each once.
        held: Which of the rows each party has.
        ids: Ids of the rows, (n,).
        absent: Parties that do not answer.
    """
    logits = []
    for rows in evaluation_batches(torch.arange(len(ids)), EVALUATION_ROWS):
        batch = {name: torch.zeros(1, width).expand(len(rows), -1) for name, width in widths.items()}
        with torch.no_grad():
            batch |= {name: embed(rows) for name, embed in embeddings.items()}
            logits.append(top.answer_rows(batch, batch.keys() - {*absent}, held.present(rows)))
    present: dict[str, Any] = {name: np.full(len(ids), name not in absent) for name in widths}
    present |= {name: numbers >= 0 for name, numbers in held.by_party.items() if name in widths}
    return PredictedRows(ids, torch.cat(logits), present)
