"""Views of a step that protections get, on both sides, and what an optimiser step is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cutlayer.accounting import ANY_PART
from cutlayer.lazy import Tensor, nn


class Mode(StrEnum):
    """Purpose of a release of embeddings."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    SERVE = "serve"


@dataclass(frozen=True)
class ActiveView:
    """View of the active party's protections at a step, without the inputs of any party.

    Attributes:
        mode: Purpose of the release.
        epoch: Number of the epoch, from 0.
        step: Number of the step in the whole run, from 0.
        rows: Row numbers of the batch, int64 (n,).
        labels: Protected labels of the batch.
        embeddings: Embeddings as received, by passive party, float32 (n, width); from the cut gradient on only those of
            parties that are sent a gradient, which parties that release once are not.
        task_gradients: Gradients of the task loss, by passive party; empty before the backward pass.
        own_labels: Protected labels of the rows of each passive party that has some of the batch alone, by name; its
            embedding and gradient, as `cut_gradient` sees them, are of these rows.
    """

    mode: Mode
    epoch: int
    step: int
    rows: Tensor
    labels: Tensor
    embeddings: Mapping[str, Tensor]
    task_gradients: Mapping[str, Tensor] = field(default_factory=dict)
    own_labels: Mapping[str, Tensor] = field(default_factory=dict)

    def labels_of(self, party: str) -> Tensor:
        """Protected labels of the rows of a passive party's embedding."""
        return self.own_labels.get(party, self.labels)


@dataclass(frozen=True)
class PassiveView:
    """View of a passive party's protections at a step, without labels.

    Epoch and step are the party's own numbers, and never those of a request: noise and account depend on them.

    Attributes:
        mode: Purpose of the release.
        epoch: Epoch of this party's own schedule; -1 outside of the epochs; the number of the query when serving.
        step: This party's own number of the batch: in training the step of the whole run, from 0; else the batch of
            this part of the split.
        rows: Row numbers of the batch, int64 (n,).
        embed: Runs the bottom model on other rows, int64 (m,) -> (m, width).
        embedding: The released embedding, with its graph; `None` before the release.
        gradient: The cut gradient that came back; `None` before it came.
        inputs: Reads other rows, int64 (m,) -> (m, columns): the numbers, and categories one-hot (`one_hot_columns`).
        ids: Reads the digests of the ids of rows, int64 (m,) -> uint8 (m, 16); `None` where they are not known.
        part: Part of the split that the rows belong to; empty where they may belong to any.
        numbered: Whether `ids` are numbers of rows in a table, which name nobody.
    """

    mode: Mode
    epoch: int
    step: int
    rows: Tensor
    embed: Callable[[Tensor], Tensor]
    embedding: Tensor | None = None
    gradient: Tensor | None = None
    inputs: Callable[[Tensor], Tensor] | None = None
    ids: Callable[[Tensor], Tensor] | None = None
    part: str = ANY_PART
    numbered: bool = False


@dataclass(frozen=True)
class Update:
    """Inputs of an optimiser step of a passive party.

    Attributes:
        bottom: The bottom model, whose parameters' gradients are to be set.
        columns: The batch's columns that the bottom model read, (n, ...) each.
        upstream: Gradient (n, width) at the bottom model's output, passed back through the protections of the
            embedding.
    """

    bottom: nn.Module
    columns: tuple[Tensor, ...]
    upstream: Tensor
