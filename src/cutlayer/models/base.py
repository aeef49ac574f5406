"""Interfaces of bottom and top models, and the capture of layer outputs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import accumulate, compress, pairwise
from typing import ClassVar

from cutlayer.errors import ConfigError
from cutlayer.kernels.rows.patterns import distinct_rows
from cutlayer.lazy import Module, Tensor, nn, torch
from cutlayer.models.precision import PreciseModel
from cutlayer.models.sections import Cut
from cutlayer.problem.training_loss import TrainingLoss

MAP_COLUMNS = 512
"""Most columns that the maps of a convolution are read as, unless it has more channels."""


class BottomModel(PreciseModel, ABC):
    """Maps one party's encoded features to its embedding.

    Attributes:
        width: Columns of the embedding.
    """

    width: int

    @abstractmethod
    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Embed a batch.

        Args:
            codes: int32 (n, c) category codes.
            numbers: float32 (n, m) scaled numbers, those of an image last.

        Returns:
            float32 (n, width).
        """

    def of_rows(self, codes: Tensor, numbers: Tensor, digests: Tensor | None) -> Tensor:
        """Embed rows by their columns, and by their ids where the model depends on them.

        Args:
            codes: As of `forward`.
            numbers: As of `forward`.
            digests: Digests of the rows' ids, uint8 (n, 16); `None` where they are not known.
        """
        return self(codes, numbers)


class TopModel(PreciseModel, ABC):
    """Maps all embeddings to the logits.

    Class attributes:
        reads_presence: Whether the loss of a row depends on the parties that have it; to any other model, a party that
            lacks a row has sent zeros.
    """

    reads_presence: ClassVar[bool] = False

    @abstractmethod
    def forward(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        """Logits (n, outputs) from embeddings by party, in the job's order of parties."""

    def answer(self, embeddings: Mapping[str, Tensor], present: Collection[str]) -> Tensor:
        """Logits (n, outputs) without some of the parties.

        By default zeros stand for what an absent party would have sent, as under `party_dropout`.

        Args:
            embeddings: Embeddings of all parties, in the job's order; of absent parties only the shape counts.
            present: Names of the parties whose embeddings count.
        """
        seen = {name: e if name in present else torch.zeros_like(e) for name, e in embeddings.items()}
        return self(seen)

    def answer_rows(
        self, embeddings: Mapping[str, Tensor], present: Collection[str], rows: Mapping[str, Tensor]
    ) -> Tensor:
        """Logits (n, outputs) of rows that some of the parties lack.

        Args:
            embeddings: Embeddings of all parties, in the job's order.
            present: Names of the parties whose embeddings count.
            rows: Which rows each party that lacks some has, bool (n,), by name; empty where all have all.
        """
        if not rows:
            return self.answer(embeddings, present) if embeddings.keys() - {*present} else self(embeddings)
        logits: Tensor | None = None
        for names, chosen in _by_presence(embeddings, rows):
            part = self.answer({name: e[chosen] for name, e in embeddings.items()}, names & {*present})
            logits = part.new_empty(len(next(iter(embeddings.values()))), part.shape[1]) if logits is None else logits
            logits[chosen] = part
        if logits is None:
            raise ConfigError.expected("a row to predict", "none")
        return logits

    @property
    def extra_heads(self) -> Sequence[nn.Module]:
        """Heads that answer when some parties are absent, besides the head for all parties."""
        return ()

    def objective(self, embeddings: Mapping[str, Tensor], labels: Tensor, loss: TrainingLoss) -> Tensor:
        """The loss to train on, of rows that all parties have."""
        return self.objective_of_sets(embeddings, embeddings, labels, loss)

    def objective_of_sets(
        self, embeddings: Mapping[str, Tensor], present: Collection[str], labels: Tensor, loss: TrainingLoss
    ) -> Tensor:
        """The loss to train on, of rows that just these parties have; a model with several heads sums theirs here."""
        return loss(self.answer(embeddings, present), labels)

    def objective_of_rows(
        self, embeddings: Mapping[str, Tensor], labels: Tensor, loss: TrainingLoss, rows: Mapping[str, Tensor]
    ) -> Tensor:
        """The loss to train on, of rows that some of the parties lack.

        Args:
            embeddings: Embeddings of all parties, in the job's order; zeros for the rows that a party lacks.
            labels: Labels of the rows, (n,).
            loss: Loss of the batch.
            rows: Which rows each party that lacks some has, bool (n,), by name.
        """
        if not self.reads_presence:
            return self.objective(embeddings, labels, loss)
        losses = []
        for names, chosen in _by_presence(embeddings, rows):
            part = {name: e[chosen] for name, e in embeddings.items()}
            mean = self.objective_of_sets(part, names, labels[chosen], loss.for_rows(chosen))
            losses.append(mean * (len(chosen) / len(labels)))
        return torch.stack(losses).sum()


def _by_presence(
    embeddings: Mapping[str, Tensor], rows: Mapping[str, Tensor]
) -> Iterator[tuple[frozenset[str], Tensor]]:
    """Each set of parties that have the same rows, with these rows, int64 (m,)."""
    always = {*embeddings} - {*rows}
    some = [name for name in embeddings if name in rows]
    matrix = torch.stack([rows[name] for name in some], dim=1).numpy()
    for pattern, chosen in distinct_rows(matrix) if len(matrix) else ():
        yield frozenset(always | {*compress(some, pattern)}), torch.from_numpy(chosen)


class Block(Module):
    """Several modules that are one layer to readers of layer outputs."""


class Dense(Block):
    """A linear map and its activation, one layer to readers of layer outputs."""

    def __init__(self, width_in: int, width_out: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.linear = nn.Linear(width_in, width_out)
        self.activation = activation()

    def forward(self, x: Tensor) -> Tensor:
        """Activation of the affine map of x (n, width_in)."""
        result: Tensor = self.activation(self.linear(x))
        return result


_ACTIVATIONS = {"relu": "ReLU", "gelu": "GELU", "tanh": "Tanh", "silu": "SiLU", "selu": "SELU", "mish": "Mish"}


def activation_of(name: str, cut: Cut = "activated") -> type[nn.Module]:
    """Class of an activation; under a linear cut, of the identity in place of it."""
    kind: type[nn.Module] = getattr(nn, "Identity" if cut == "linear" else _ACTIVATIONS[name])
    return kind


def dense_stack(width_in: int, hidden: tuple[int, ...], activation: str, cut: Cut = "activated") -> nn.Sequential:
    """A stack of `Dense` layers of the given widths; `cut` is of the last one."""
    sizes = list(pairwise((width_in, *hidden)))
    return nn.Sequential(
        *(Dense(a, b, activation_of(activation)) for a, b in sizes[:-1]),
        *(Dense(a, b, activation_of(activation, cut)) for a, b in sizes[-1:]),
    )


class FusedEmbedding(Module):
    """One table for all categorical columns, with an offset per column.

    A lookup in one table of the summed cardinalities costs one gather where a table per column costs one each.

    Args:
        cardinalities: Codes per column.
        dim: Columns of the result per categorical column.
    """

    offsets: Tensor

    def __init__(self, cardinalities: tuple[int, ...], dim: int) -> None:
        from cutlayer.models.embedding_table import EmbeddingTable

        super().__init__()
        self.table = EmbeddingTable(sum(cardinalities), dim)
        # By Python: a sum of tensors without memory would import PyTorch's compiler, as normal draws would.
        starts = [0, *accumulate(cardinalities[:-1])]
        self.register_buffer("offsets", torch.tensor(starts, dtype=torch.int32), persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        """Codes int32 (n, c) to float32 (n, c * dim)."""
        return self.by_column(codes).flatten(1)

    def by_column(self, codes: Tensor) -> Tensor:
        """Codes int32 (n, c) to float32 (n, c, dim)."""
        rows: Tensor = self.table(codes + self.offsets)
        return rows


def layers_of(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Every layer whose output an attack may read: a `Block` whole, and any other module without children."""
    for name, child in model.named_children():
        path = f"{prefix}{name}"
        if isinstance(child, nn.ModuleList) and not len(child):
            continue
        if isinstance(child, Block) or not any(True for _ in child.children()):
            yield path, child
        else:
            yield from layers_of(child, f"{path}.")


def collect_layer_outputs(model: nn.Module | None, rows: int) -> AbstractContextManager[dict[str, Tensor]]:
    """Collect the outputs (first `rows` rows, two axes, detached) of every layer while the context is open.

    Of maps (n, channels, height, width) it keeps the means over a grid of equal areas, as fine as `MAP_COLUMNS` columns
    allow: 2,048 rows of a layer are 4 MB, where the maps of one convolution may be 268 MB.
    """
    return nullcontext({}) if model is None else _tapped(model, rows)


@contextmanager
def _tapped(model: nn.Module, rows: int) -> Iterator[dict[str, Tensor]]:
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> object:
        def hook(_module: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and output.is_floating_point() and output.dim() >= 2:
                outputs[name] = _columns(output.detach()[:rows])

        return hook

    handles = [layer.register_forward_hook(keep(name)) for name, layer in layers_of(model)]  # type: ignore[arg-type]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _columns(output: Tensor) -> Tensor:
    """A layer's output (n, ...) as a matrix (n, d)."""
    if output.dim() == 4 and output[0].numel() > MAP_COLUMNS:
        side = max(1, math.isqrt(MAP_COLUMNS // output.shape[1]))
        height, width = output.shape[2:]
        output = nn.functional.adaptive_avg_pool2d(output, (min(side, height), min(side, width)))
    return output.flatten(1)
