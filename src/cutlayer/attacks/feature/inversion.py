"""Model inversion: a decoder from embeddings back to features, fitted on rows whose features are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutlayer.attacks.feature.base import FeatureAttack, Reconstruction, encoded_matrix, encoded_slices
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.lazy import Tensor, torch

if TYPE_CHECKING:
    from cutlayer.attacks.feature.decoder import Linear, Loss


STRENGTHS = np.logspace(-2, 6, 17)
"""Penalties of the ridge regression that are tried."""


class Inversion(FeatureAttack[Reconstruction]):
    """Reconstruct all columns of a row from its embedding.

    The decoder, a ridge regression and a perceptron that starts from it, is fitted to the numbers, the pixels and the
    one-hot categories of the auxiliary rows by squared error, each column weighted by the inverse of its variance, so
    that no column outweighs another. Its output for a category is about the probability of each of its codes. A fifth
    of the auxiliary rows chooses the epoch; the rows that are rebuilt choose nothing. For each column the decoder is
    then averaged with a kernel ridge regression, with the weight that is best on the rows that chose the epoch. Outputs
    are clamped to the range of the auxiliary rows. The bottom model's weights are not known to the attacker.

    Where this differs from the papers: images are rebuilt by the same perceptron and not by transposed convolutions,
    and the kernel ridge regression, which does better with few known rows, is ours.

    Reference: He, Zhang and Lee, Model inversion attacks against collaborative inference (ACSAC 2019), section 5.2, the
    inverse network; Mi et al. 2023 (arXiv 2308.02362), section 4.3, which attacks embeddings by it.
    """

    name = "inversion"
    reference = "He, Zhang and Lee 2019 (ACSAC), section 5.2"

    def run(self, view: FeatureView, knowledge: Knowledge) -> Reconstruction:
        """Fit on the auxiliary rows, rebuild all other rows."""
        from cutlayer.attacks.feature.decoder import fit_decoder
        from cutlayer.attacks.feature.kernel_ridge import fit_kernel_ridge

        known = knowledge.auxiliary
        targets = encoded_matrix(known.columns, known.codes, known.numbers)
        slices = encoded_slices(known.columns)
        embeddings = view.embeddings[known.indices]
        decoder = fit_decoder(embeddings, targets, ridge, squared_error(column_weights(targets, slices)))
        kernels = fit_kernel_ridge(embeddings, targets, slices)
        attacked = known.unknown(len(view.rows))
        judged = decoder.validation
        with torch.no_grad():
            decoded = decoder(embeddings[judged])
            rebuilt = decoder(view.embeddings[attacked])
        left_out = kernels.left_out[judged].float()
        share = kernel_shares(decoded, left_out, targets[judged], slices)
        rebuilt += share * (kernels(view.embeddings[attacked]).float() - rebuilt)
        return Reconstruction(view.rows[attacked], rebuilt.clamp(targets.amin(dim=0), targets.amax(dim=0)))


def kernel_shares(decoded: Tensor, kernels: Tensor, targets: Tensor, slices: dict[str, slice]) -> Tensor:
    """Weight of the second of two predictions in the average with the least squared error, by column, (entries,).

    Args:
        decoded: Predictions of rows that the decoder was not fitted to, (n, entries).
        kernels: Predictions of a kernel ridge regression without each row, (n, entries).
        targets: Encoded features of these rows, (n, entries).
        slices: Entries of each column.
    """
    shares = torch.zeros(targets.shape[1])
    step, missing = kernels - decoded, targets - decoded
    gains, sizes = (step * missing).sum(dim=0), step.square().sum(dim=0)
    for entries in slices.values():
        shares[entries] = (gains[entries].sum() / sizes[entries].sum().clamp_min(1e-12)).clamp(0, 1)
    return shares


def ridge(x: Tensor, targets: Tensor) -> Linear:
    """Ridge regression of every entry, its strength chosen by leaving one row out.

    Args:
        x: Standardised embeddings, (n, width).
        targets: Encoded features, (n, entries).
    """
    from sklearn.linear_model import RidgeCV

    model = RidgeCV(STRENGTHS, alpha_per_target=True).fit(x.double().numpy(), targets.double().numpy())
    weight = torch.from_numpy(model.coef_).float().reshape(targets.shape[1], x.shape[1])
    return weight, torch.from_numpy(model.intercept_).float().reshape(-1)


def squared_error(weights: Tensor) -> Loss:
    """The mean over rows of the weighted sum of squared errors; weights (entries,)."""
    from cutlayer.attacks.feature.decoder import Loss

    def mean(rebuilt: Tensor, wanted: Tensor) -> Tensor:
        return ((rebuilt - wanted).square() * weights).sum(dim=1).mean()

    def slope(rebuilt: Tensor, wanted: Tensor) -> Tensor:
        return (rebuilt - wanted) * (weights * (2 / len(wanted)))

    return Loss(mean, slope)


def column_weights(targets: Tensor, slices: dict[str, slice]) -> Tensor:
    """One over the variance of each column (all entries of a category, or of an image, together), over their number.

    Args:
        targets: Encoded features, (m, entries).
        slices: Entries of each column.

    Returns:
        Weights, (entries,); 0 for a column that is constant here.
    """
    variances = targets.var(dim=0, correction=0)
    weights = torch.zeros_like(variances)
    for entries in slices.values():
        total = float(variances[entries].sum())
        weights[entries] = 1 / total / len(slices) if total > 1e-12 else 0.0
    return weights
