"""The bilinear attack: a gradient is a class residual times a function of the embedding that was sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.blocks import Blocks, nonzero
from cutlayer.attacks.label.history import (
    HistoryAttack,
    HistoryView,
    epoch_agreement,
    orient,
    run_scores,
    unit_variance,
)
from cutlayer.attacks.label.joint_spectral import joint_scores
from cutlayer.attacks.label.mixture import log_odds
from cutlayer.attacks.label.spectra import Spectra, spectra
from cutlayer.errors import NotApplicable
from cutlayer.kernels.statistics.spectral import gram
from cutlayer.lazy import Tensor, torch

ROUNDS = 3
RIDGE = 20.0
_GRADIENT_DIRECTIONS, _EMBEDDING_DIRECTIONS = 12, 6
_FEW_ROWS = 2000  # blocks below this size get fewer products
_CLIP_GRADIENT, _CLIP_EMBEDDING = 6.0, 5.0
_MIN_CORRELATION = 1e-3  # a block that is not fitted at all counts next to nothing


class Bilinear(HistoryAttack):
    """Score a row by a ridge regression on the products of its gradient and its embedding.

    With a top model that is smooth in the embedding e, the gradient is g = (p - y) w(e): the sign of the residual is in
    every direction in which w(e) varies, and noise in one direction leaves it in all others. The regression explains
    the score of the row's other epochs by the whitened top directions of g and their products with those of e. It is
    fitted in two folds of each batch, so that no row's own target is in its fit. `mixture` has the log-odds of a
    two-component mixture over the epochs.

    Reference: the residual form of the gradient is that of Liu, Zou et al. 2021 (arXiv 2112.05409) and of Kariyappa and
    Qureshi 2021 (arXiv 2112.01299); the regression is this project's.
    """

    name = "bilinear"
    reference = "Kariyappa and Qureshi 2021 (arXiv 2112.01299), by regression over epochs"
    needs = frozenset({Need.POSITIVE_SHARE})
    quick = False
    costly = True

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: No epoch has both gradients and embeddings.
        """
        share, seen = knowledge.share, view.gradients.seen
        variants = [_regressed(view, share, whole=whole) for whole in (False, True)]
        best, other = sorted(variants, key=epoch_agreement, reverse=True)
        mean, other_mean = (orient(scores.sum(dim=1), share) for scores in (best, other))
        mixture = log_odds(best, seen, share)
        return run_scores(view, mean, seen, mixture=mixture, other_blocks=other_mean)


def _regressed(view: HistoryView, share: float, *, whole: bool) -> Tensor:
    """Scores by epoch, float64 (n, epochs), with a regression for each epoch, or for each block of it."""
    blocks = view.gradients.whole_epochs() if whole else view.gradients.blocks
    products = _products(view, blocks, whole=whole)
    scores = joint_scores(view, share)[0]
    fits = [(epoch, _TwoFolds.of(products[epoch], parts)) for epoch, parts in enumerate(blocks) if parts]
    for _ in range(ROUNDS):
        total = scores.sum(dim=1)
        updated = torch.zeros_like(scores)
        for epoch, fit in fits:
            rest = total - scores[:, epoch] if scores.shape[1] > 1 else total
            updated[:, epoch] = fit.scores(unit_variance(rest - rest.mean()))
        scores = updated
    return scores


@dataclass(frozen=True, eq=False)
class _TwoFolds:
    """Ridge regressions in two folds of each block; targets change from round to round, the inputs do not.

    Attributes:
        group: The blocks of an epoch.
        split_halves: Inputs of the rows of each fold, float64 (b, m, features).
        factors: Cholesky factor of each fold's normal matrix, float64 (b, features, features).
    """

    group: Blocks
    split_halves: tuple[Tensor, Tensor]
    factors: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, products: Tensor, parts: Sequence[Tensor]) -> _TwoFolds:
        group = Blocks.of(parts)
        x = group.gather(products).double()
        ridge = RIDGE * torch.eye(x.shape[2], dtype=torch.float64)
        even, odd = x[:, 0::2].contiguous(), x[:, 1::2].contiguous()
        factors = torch.linalg.cholesky(even.mT @ even + ridge), torch.linalg.cholesky(odd.mT @ odd + ridge)
        return cls(group, (even, odd), factors)

    def scores(self, targets: Tensor) -> Tensor:
        """Predictions of each row (n,) from the rows of its block's other fold, scaled by how well a block is fitted.

        Args:
            targets: What is predicted, float64 (n,); each block is centred.
        """
        wanted = self.group.centred(self.group.gather(targets))
        fitted = torch.zeros_like(wanted)
        for own, other in ((0, 1), (1, 0)):
            moment = self.split_halves[other].mT @ wanted[:, other::2, None]
            fitted[:, own::2] = (self.split_halves[own] @ torch.cholesky_solve(moment, self.factors[other]))[:, :, 0]
        moved = self.group.centred(fitted)
        spread = self.group.deviations(moved)
        covariance = self.group.deviations(wanted) * spread
        correlation = (moved * wanted).sum(dim=1, keepdim=True) / self.group.real.sum(dim=1, keepdim=True)
        strength = (correlation / nonzero(covariance)).clamp_min(_MIN_CORRELATION)
        return self.group.scatter(fitted / nonzero(spread) * strength, len(targets))


def _products(view: HistoryView, blocks: Sequence[Sequence[Tensor]], *, whole: bool) -> list[Tensor]:
    """Whitened directions of g and their products with those of e, float32 (n, features) by epoch."""
    gradients = view.gradients
    embeddings = _whitened_embeddings(view)
    if missing := set(gradients.epochs) - set(embeddings):
        wanted = "the embeddings of every epoch with gradients"
        raise NotApplicable.expected(wanted, f"none of epoch {min(missing) + 1}")
    largest = max(len(part) for parts in blocks for part in parts)
    of_gradient, of_embedding = (6, 4) if largest < _FEW_ROWS else (_GRADIENT_DIRECTIONS, _EMBEDDING_DIRECTIONS)
    made = []
    for number, (parts, spectrum) in enumerate(zip(blocks, spectra(view, whole=whole), strict=True)):
        own = embeddings[gradients.epochs[number]][:, :of_embedding]
        features = torch.zeros(len(own), of_gradient * (1 + own.shape[1]))
        variances = spectrum.variances[:, :of_gradient]
        directions = spectrum.directions[:, :, :of_gradient]
        for block, part in enumerate(parts):
            rows = gradients.matrices[number][part].double()
            top = _unit_coordinates(rows, variances[block], directions[block], _CLIP_GRADIENT)
            both = torch.cat([top, (top[:, :, None] * own[part][:, None, :]).flatten(1)], dim=1)
            features[part, : both.shape[1]] = both
        made.append(features)
    return made


def _whitened_embeddings(view: HistoryView) -> dict[int, Tensor]:
    """The embeddings along their top directions, of unit variance and clipped, float32 (n, directions) by epoch."""

    def compute() -> dict[int, Tensor]:
        return {epoch.epoch: _whitened(matrix) for epoch, matrix in view.matrices(Target.EMBEDDING)}

    return view.once("whitened embeddings", compute)


def _whitened(x: Tensor) -> Tensor:
    rows = (x - x.mean(dim=0)).double()
    spectrum = Spectra.of(gram(rows)[None], torch.tensor([len(rows)]))
    variances, directions = spectrum.variances[0], spectrum.directions[0]
    return _unit_coordinates(
        rows, variances[:_EMBEDDING_DIRECTIONS], directions[:, :_EMBEDDING_DIRECTIONS], _CLIP_EMBEDDING
    )


def _unit_coordinates(rows: Tensor, variances: Tensor, directions: Tensor, limit: float) -> Tensor:
    """Coordinates of centred rows (n, d) along directions (d, k), of unit variance and clipped, float32 (n, k)."""
    spread = variances.clamp_min(1e-12 * float(variances[0])).sqrt()
    along: Tensor = (rows @ directions) / (spread + torch.finfo(torch.float64).tiny)
    return along.clamp(-limit, limit).float()
