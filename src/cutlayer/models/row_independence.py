"""Whether a bottom model embeds every row on its own: what guarantees per row rest on, tried out before training."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.problem.inputs import Inputs

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel


_ROWS, _LATER_ROWS = 4, 2
# Rows of a further, larger batch: what a module does to small batches need not be what it does to those of a training.
_MANY_ROWS = 33
_STEPS_BEFORE = 1
_WEIGHT_NOISE = 0.1
_LARGE_FACTOR = 1e3
_SEED = 0

Batch = tuple[Tensor, Tensor]
"""Codes int32 (n, c) and numbers float32 (n, d)."""


def check_row_independence(bottom: BottomModel, inputs: Inputs, needed_by: str, *, repeatable: bool = False) -> None:
    """Refuse a bottom model in which one row moves the releases of other rows.

    Sensitivities are those of one row: a row of the embedding moves by at most 2C if that row is replaced. Under batch
    normalisation, `x - x.mean(0)` or attention over the batch all rows of the batch move, and the noise is for one of
    them. A batch is embedded, one row is replaced, and the other rows must be equal to the bit: tensors of one shape
    and layout take the same path through the kernels, whatever they hold. Dropout passes, since both passes begin at
    one random state and masks do not depend on the rows.

    The training pass must leave nothing of its rows behind, either: running statistics, which batch and instance
    normalisation may keep, let a row move every later release, of other rows too, and no noise is added to them.
    Evaluation mode alone would show none of this, since statistics are then constants; they were still taken from rows.

    It is tried with the weights as they are, and again after some steps of training with all weights moved, since a
    gate that begins at zero opens in training and a module may count its calls. Training passes are made as in
    training, with gradients and a backward pass, which may keep something of the rows as well. What passes was tried on
    a few batches; it is not a proof, and a module can be written that passes and mixes rows.

    Args:
        bottom: Is not changed, nor is the process's random state.
        inputs: Its columns; the rows are made up.
        needed_by: Name of the protection, for the error.
        repeatable: Whether the bottom model must not draw random numbers either.

    Raises:
        ConfigError: Rows are mixed, remembered from one batch to the next, or random numbers drawn.
    """
    generator = torch.Generator().manual_seed(_SEED)
    batch, later = _rows(inputs, _ROWS, generator), _rows(inputs, _LATER_ROWS, generator)
    large_batch = _rows(inputs, _MANY_ROWS, generator)
    with torch.random.fork_rng(devices=[]):
        original = _copied(bottom, needed_by)
        for model, steps in ((original, 0), (_with_noisy_weights(original, generator), _STEPS_BEFORE)):
            for training, changes in ((True, _ROWS), (False, 1)):
                trial = _Trial(model.train(training), steps, later, needed_by, repeatable)
                trial.check(batch, changes, generator)
                if steps:
                    trial.check(large_batch, 1, generator)


class _Trial:
    """One model in one mode.

    Args:
        model: Copied before every pass, so that none sees what another left behind.
        steps: Number of batches that it is trained on before each pass.
        later: A batch that is embedded after each pass, in both modes.
        needed_by: Name of the protection, for the error.
        repeatable: Whether the model must not draw random numbers.
    """

    def __init__(self, model: BottomModel, steps: int, later: Batch, needed_by: str, repeatable: bool) -> None:
        self.model = model
        self.steps = steps
        self.later = later
        self.needed_by = needed_by
        self.repeatable = repeatable

    def check(self, batch: Batch, changes: int, generator: torch.Generator) -> None:
        """Embed a batch, then with the first of its rows replaced, each in another way."""
        embedded, afterwards = self._pass(batch)
        if not _same(embedded, self._pass(batch)[0]):
            self._refuse("a bottom model that repeats itself from one random state", "other numbers in a second pass")
        for row, changed in zip(range(changes), _changed(batch, generator), strict=False):
            others = torch.arange(len(embedded)) != row
            moved, moved_afterwards = self._pass(changed)
            if not _same(embedded[others], moved[others]):
                wanted = "a bottom model that embeds every row on its own"
                self._refuse(wanted, "one in which a replaced row moves other rows of its batch")
            if not _same(afterwards, moved_afterwards):
                wanted = "a bottom model that keeps nothing of the rows it embeds"
                self._refuse(wanted, "one in which a replaced row moves embeddings of later batches")

    def _pass(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The embedding of a batch, and those of the batch after it in both modes."""
        model = copy.deepcopy(self.model)
        training = self.model.training
        torch.default_generator.manual_seed(_SEED)
        # On the copy: what a module keeps of a training pass, such as a graph, cannot always be copied.
        for _ in range(self.steps):
            _embedded(model.train(), self.later)
        model.train(training)
        before = torch.get_rng_state()
        embedded = _embedded(model, batch)
        if self.repeatable and not torch.equal(before, torch.get_rng_state()):
            self._refuse("a bottom model that draws no random numbers", "one that does, such as dropout")
        # The random numbers go on from here: had the rows decided how many were drawn, later masks would show it.
        return embedded, torch.cat([_embedded(model, self.later), _embedded(model.eval(), self.later)])

    def _refuse(self, wanted: str, got: str) -> None:
        remedy = f"use another kind, or group normalisation (norm: group of resnet18), or leave {self.needed_by} out"
        raise ConfigError.expected(f"{wanted}, for {self.needed_by}", got, remedy)


def _copied(bottom: BottomModel, needed_by: str) -> BottomModel:
    try:
        return copy.deepcopy(bottom)
    except Exception as failure:
        wanted = f"a bottom model that can be copied, to check it for {needed_by}"
        raise ConfigError.expected(wanted, f"{type(failure).__name__}: {failure}") from failure


def _embedded(model: BottomModel, batch: Batch) -> Tensor:
    """The embedding of a batch; in training mode a backward pass follows, whose gradients are dropped."""
    with torch.set_grad_enabled(model.training):
        embedding: Tensor = model(*batch)
    if embedding.requires_grad:
        torch.autograd.backward([embedding.square().sum()])
        model.zero_grad(set_to_none=True)
    return embedding.detach()


def _with_noisy_weights(bottom: nn.Module, generator: torch.Generator) -> BottomModel:
    """A copy with every weight moved at random."""
    model: BottomModel = copy.deepcopy(bottom)  # type: ignore[assignment]
    for parameter in model.parameters():
        parameter.data.add_(_WEIGHT_NOISE * torch.randn(parameter.shape, generator=generator))
    return model


def _rows(inputs: Inputs, count: int, generator: torch.Generator) -> Batch:
    codes = [torch.randint(cardinality, (count,), generator=generator) for cardinality in inputs.cardinalities]
    stacked = torch.stack(codes, dim=1).int() if codes else torch.zeros(count, 0, dtype=torch.int32)
    return stacked, torch.randn(count, inputs.numbers, generator=generator)


def _changed(batch: Batch, generator: torch.Generator) -> Iterator[Batch]:
    """The batch with one row replaced: by another, by a large one, by zeros, and in its codes alone.

    The codes of a replaced row are not those it had, wherever a column has two in the batch or more.
    """
    codes, numbers = batch
    ways = (
        torch.randn(numbers.shape[1], generator=generator),
        _LARGE_FACTOR * numbers[1],
        torch.zeros_like(numbers[2]),
        numbers[3],
    )
    highest = codes.amax(dim=0)
    for row, values in enumerate(ways):
        new_codes, new_numbers = codes.clone(), numbers.clone()
        new_codes[row] = torch.where(codes[row] < highest, highest, codes.amin(dim=0))
        new_numbers[row] = values
        yield new_codes, new_numbers


def _same(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are equal to the bit, NaN as good as NaN."""
    return first.shape == second.shape and bool(((first == second) | (first.isnan() & second.isnan())).all())
