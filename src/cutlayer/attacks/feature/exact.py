"""Reconstruction by matching: which value of each column best explains the embedding, under a model of the bottom."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutlayer.attacks.feature.base import FeatureAttack, Reconstruction, encoded_matrix, encoded_slices
from cutlayer.attacks.feature.inversion import Inversion, kernel_shares
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge, Need
from cutlayer.errors import NotApplicable
from cutlayer.lazy import Tensor, nn, torch

if TYPE_CHECKING:
    from cutlayer.data.encoded import ColumnSpec


MAX_CODES, MAX_COLUMNS = 64, 64
"""Maximum number of codes of a category, and of columns: every value of every column is tried for every row."""
QUANTILES = 40
"""Values of a number that are tried."""
SWEEPS = 2
"""Rounds over all columns."""
VALIDATION_SHARE = 0.2
"""Share of the auxiliary rows that the model of the bottom is not fitted to."""
STEPS = 1500
STEPS_PER_CHECK = 50
BATCH = 128
LR = 2e-3


class Exact(FeatureAttack[Reconstruction]):
    """Reconstruct all columns of a row by trying their values in a bottom model trained from the same initial weights.

    The initial bottom model is trained by squared error to give the embeddings of the auxiliary rows. The covariance of
    its errors on a fifth of these rows, which it was not trained on, says how far an embedding may be from that of its
    row. A row starts at the reconstruction of `inversion`. Then, column by column, every code of a category, or 40
    quantiles of a number, is tried with the other columns fixed, and is weighted by its frequency times the normal
    density of the embedding: the result is the mean of a number and the probability of each code. Finally each column
    is averaged with that of `inversion`, with the weight that is best on the fifth.

    Where this differs from the paper: it matches gradients at the cut, over all combinations of the private values; we
    match the embedding, which is what a feature owner sends, column by column.

    Reference: Qiu et al., Evaluating privacy leakage in split learning (arXiv 2305.12997), the attack EXACT.
    """

    name = "exact"
    reference = "Qiu et al. 2023 (arXiv 2305.12997), EXACT"
    needs = frozenset({Need.INITIAL_WEIGHTS})

    def check(self, view: FeatureView, knowledge: Knowledge) -> None:
        """Raise `NotApplicable` without auxiliary rows, for images, and for more values than can be tried."""
        super().check(view, knowledge)
        columns = knowledge.auxiliary.columns
        number = columns.numeric + len(columns.cardinalities)
        if columns.image is not None or number > MAX_COLUMNS or max(columns.cardinalities, default=0) > MAX_CODES:
            wanted = f"up to {MAX_COLUMNS} columns, categories of up to {MAX_CODES} codes and no image for {self.name}"
            raise NotApplicable.expected(wanted, f"{number} columns", "try inversion")

    def run(self, view: FeatureView, knowledge: Knowledge) -> Reconstruction:
        """Fit the model of the bottom, match the embeddings, and average with `inversion`."""
        known = knowledge.auxiliary
        order = torch.randperm(len(known.indices))
        judged, fitted = order.tensor_split([int(len(order) * VALIDATION_SHARE)])
        part = Auxiliary(known.columns, known.indices[fitted], known.codes[fitted], known.numbers[fitted])
        start = Inversion().run(view, Knowledge(auxiliary_rows=part))
        unfitted = part.unknown(len(view.rows))
        model = fit_bottom(knowledge.initial, known, view.embeddings[known.indices], fitted, judged)
        with torch.no_grad():
            errors = model(known.codes[judged], known.numbers[judged]).flatten(1)
            errors -= view.embeddings[known.indices[judged]]
            matched = Matcher(model, part, view.embeddings[unfitted], precision_root(errors)).match(start.values)
        where = torch.searchsorted(unfitted, known.indices[judged])
        truth = encoded_matrix(known.columns, known.codes[judged], known.numbers[judged])
        share = kernel_shares(start.values[where], matched[where], truth, encoded_slices(known.columns))
        rebuilt = Inversion().run(view, knowledge)
        attacked = torch.searchsorted(unfitted, known.unknown(len(view.rows)))
        return Reconstruction(rebuilt.rows, rebuilt.values + share * (matched[attacked] - rebuilt.values))


@dataclass(frozen=True, eq=False)
class Matcher:
    """Rows whose embeddings are known, and a model of the bottom that computed them.

    Attributes:
        model: The model, from codes and numbers to embeddings.
        known: Rows whose features are known: their values are tried, their frequencies are the prior.
        embeddings: Embeddings to explain, (n, width).
        root: Matrix whose product with its transpose is the inverse covariance of the model's errors, (width, width).
    """

    model: nn.Module
    known: Auxiliary
    embeddings: Tensor
    root: Tensor

    def match(self, start: Tensor) -> Tensor:
        """Encoded features that explain the embeddings, float32 (n, entries).

        Args:
            start: A first reconstruction, (n, entries).
        """
        columns = self.known.columns
        result, (codes, numbers) = start.clone(), codes_and_numbers(columns, start)
        slices = list(encoded_slices(columns).values())
        for _ in range(SWEEPS):
            for index in range(columns.numeric):
                values = self.known.numbers[:, index].quantile(torch.linspace(0, 1, QUANTILES))
                numbers[:, index] = self._weights(codes, numbers, numbers, index, values) @ values
                result[:, index] = numbers[:, index]
            for index, entries in enumerate(slices[columns.numeric :]):
                values = torch.arange(columns.cardinalities[index])
                counts = torch.bincount(self.known.codes[:, index].long(), minlength=len(values))
                prior = ((counts + 0.1) / len(self.known.indices)).log()
                result[:, entries] = self._weights(codes, numbers, codes, index, values, prior)
                codes[:, index] = result[:, entries].argmax(dim=1)
        return result

    def _weights(
        self, codes: Tensor, numbers: Tensor, varied: Tensor, index: int, values: Tensor, prior: Tensor | None = None
    ) -> Tensor:
        """Probability of each value of one column, the other columns fixed, (n, values).

        Args:
            codes: Codes, int (n, c).
            numbers: Numbers, (n, d).
            varied: The one of the two that holds the column; it is as before afterwards.
            index: Index of the column in it.
            values: Values to try.
            prior: Logarithm of the frequency of each value; `None` if all are alike.
        """
        before = varied[:, index].clone()
        logs = []
        for value in values:
            varied[:, index] = value
            errors = (self.model(codes, numbers).flatten(1) - self.embeddings) @ self.root
            logs.append(-errors.square().sum(dim=1) / 2)
        varied[:, index] = before
        scores = torch.stack(logs, dim=1)
        return torch.softmax(scores if prior is None else scores + prior, dim=1)


def codes_and_numbers(columns: ColumnSpec, values: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, int32 (n, c), the largest entry of each category, and numbers, float32 (n, d), of encoded features."""
    slices = list(encoded_slices(columns).values())[columns.numeric :]
    codes = torch.zeros(len(values), len(slices), dtype=torch.int32)
    for index, entries in enumerate(slices):
        codes[:, index] = values[:, entries].argmax(dim=1)
    return codes, values[:, : columns.numeric].clone()


def precision_root(errors: Tensor) -> Tensor:
    """A matrix whose product with its transpose is the inverse of the second moment of errors (n, width)."""
    errors = errors.double()
    moment = errors.T @ errors / len(errors)
    ridge = 1e-4 * moment.diagonal().mean().clamp_min(1e-12)
    inverse = torch.linalg.inv(moment + ridge * torch.eye(len(moment), dtype=torch.float64))
    root: Tensor = torch.linalg.cholesky((inverse + inverse.T) / 2).float()
    return root


def fit_bottom(initial: nn.Module, known: Auxiliary, embeddings: Tensor, fitted: Tensor, judged: Tensor) -> nn.Module:
    """Train a copy of the initial bottom model to give the embeddings of known rows.

    Args:
        initial: Bottom model with its initial weights.
        known: The auxiliary rows.
        embeddings: Their embeddings, (m, width).
        fitted: Indices among them of the rows to train on, int64.
        judged: Indices of the rows that choose the step, int64.
    """
    from cutlayer.kernels.fits.optimizers import Adam

    model = copy.deepcopy(initial)
    spread = embeddings.std(dim=0).clamp_min(1e-3 * float(embeddings.std()) + 1e-12)

    def loss(rows: Tensor) -> Tensor:
        errors: Tensor = model(known.codes[rows], known.numbers[rows]).flatten(1) - embeddings[rows]
        return (errors / spread).square().mean()

    if not (parameters := list(model.parameters())):
        return model.eval()
    best, best_state = float("inf"), copy.deepcopy(model.state_dict())
    optimizer = Adam(parameters, lr=LR)
    for step in range(STEPS):
        if step % STEPS_PER_CHECK == 0:
            model.eval()
            with torch.no_grad():
                value = float(loss(judged))
            model.train()
            if value < best:
                best, best_state = value, copy.deepcopy(model.state_dict())
        optimizer.zero_grad()
        loss(fitted[torch.randint(len(fitted), (BATCH,))]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.load_state_dict(best_state)
    return model.eval()
