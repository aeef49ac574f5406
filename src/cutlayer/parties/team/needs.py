"""Tensors that pass between the workers of a party in a step."""

from __future__ import annotations

from dataclasses import dataclass

from cutlayer.lazy import Tensor

BatchTensors = dict[str, Tensor]
"""Tensors (n, width) by passive party, of the whole batch or of a worker's part."""


@dataclass(frozen=True)
class Needs:
    """Needs of a party's protections of the whole batch, which are the same for all of its workers.

    Attributes:
        out: What leaves (embeddings of a passive party, cut gradients of the active one), or what comes back for it.
        shown: The embeddings that the top model sees; `out` is set too.
    """

    out: bool = False
    shown: bool = False
