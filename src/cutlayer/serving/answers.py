"""Predictions of rows of which everything that the parties released is here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
from cutlayer.serving.models import PartyModel

Embed = Callable[[Tensor], Tensor]
"""Embeddings of some rows to predict, int64 (m,) -> (m, width)."""


@dataclass(frozen=True, eq=False)
class PredictedRows:
    """The active party's result of a prediction.

    Attributes:
        ids: Ids of the rows as its table has them, (n,).
        logits: Logits of the top model, (n, outputs).
        present: Rows that each party with features contributed to, (n,), by name in the job's order.
        further: Task of each further label, and its logits, (n, outputs).
    """

    ids: pa.ChunkedArray
    logits: Tensor
    present: Mapping[str, npt.NDArray[np.bool_]]
    further: Mapping[str, tuple[Task, Tensor]] = field(default_factory=dict)

    def write(self, out: Destination, task: Task, warnings: Sequence[str] = ()) -> Mapping[str, int]:
        """Write them as `predict` does; returns the number of rows that each party contributed to."""
        return write_scores(out, task, self.ids, self.logits, self.present, warnings, self.further)


def answer_rows(
    top: TopModel,
    widths: Mapping[str, int],
    embeddings: Mapping[str, Embed],
    held: HeldRows,
    ids: pa.ChunkedArray,
    absent: Collection[str] = (),
    further: Mapping[str, PartyModel] | None = None,
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
        further: Model of each further label, whose top model is for the same embeddings.
    """
    tops = [top, *(part.top_model for part in (further or {}).values())]
    logits: list[list[Tensor]] = [[] for _ in tops]
    for rows in evaluation_batches(torch.arange(len(ids)), EVALUATION_ROWS):
        batch = {name: torch.zeros(1, width).expand(len(rows), -1) for name, width in widths.items()}
        with torch.no_grad():
            batch |= {name: embed(rows) for name, embed in embeddings.items()}
            for answers, each in zip(logits, tops, strict=True):
                answers.append(each.answer_rows(batch, batch.keys() - {*absent}, held.present(rows)))
    present: dict[str, Any] = {name: np.full(len(ids), name not in absent) for name in widths}
    present |= {name: numbers >= 0 for name, numbers in held.by_party.items() if name in widths}
    first, *others = map(torch.cat, logits)
    answered = zip((further or {}).items(), others, strict=True)
    return PredictedRows(ids, first, present, {label: (part.task, answers) for (label, part), answers in answered})
