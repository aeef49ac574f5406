"""Gradient matching: dummy labels and a dummy top model that would have sent the same gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Guess, LabelAttack, LabelView, Scores, Target, concatenate_guesses, is_finite
from cutlayer.attacks.label.blocks import scaled
from cutlayer.attacks.label.spectral import name_by_size
from cutlayer.kernels.fits.k_means import distances, k_means
from cutlayer.kernels.statistics.spectral import project_on_top
from cutlayer.kernels.statistics.ties import merge_ties
from cutlayer.lazy import Tensor, functional, torch

ROUNDS = 300
_RATE, _LABEL_RATE = 0.05, 0.03
_CERTAINTY = 6.0
"""Initial logit of a dummy label for the class of its cluster: almost one-hot."""


class GradientMatch(LabelAttack):
    """Optimise dummy labels and a dummy top model until they would have sent the batch's gradients.

    The paper's attacker sees the gradients of its own weights and matches those. They are sum_i J_i' g_i, a fixed
    linear map of the cut gradients g_i by the Jacobians J_i of its bottom model, so matching each g_i matches the
    weight gradients too; the converse holds where the batch has fewer cut values than the bottom model has weights and
    their Jacobians are independent. Here nothing hides the g_i, so the attack matches them directly, from the
    embeddings it sent and the gradients it received alone.

    The dummy top model is linear with a softmax, its gradient of row i (softmax(V e_i + b) - y_i) V times a free
    factor; y_i is the softmax of free logits. Both are optimised by Adam on the squared distance, relative to the
    gradients' own size, starting from the clusters of the gradients' directions. (From random starts, with a hidden
    layer, or with a free output of the other parties per row as in the paper, the gradients fit better and fewer labels
    are right: ten classes of digits 45 to 90 % instead of 96 to 100 %. It cannot match a top model far from linear over
    the batch, such as a new one over widely spread embeddings.) The objective is the same whichever
    class is called which, so the classes are named by their sizes, as in `spectral`.

    Reference: Liu, Zou et al., Batch label inference and replacement attacks in black-boxed vertical federated learning
    (arXiv 2112.05409, 2021), section 3.
    """

    name = "gradient_match"
    reference = "Liu, Zou et al. 2021 (arXiv 2112.05409), section 3"
    needs = frozenset({Need.CLASS_SHARES})
    tasks = frozenset({"binary", "multiclass"})
    live = False
    thorough = True

    def run(self, view: LabelView, knowledge: Knowledge) -> Scores:
        """Match each sampled step on its own."""
        binary = view.task.kind == "binary"
        return concatenate_guesses(
            (number, rows, named_guess(match(embeddings, gradients, len(knowledge.shares)), knowledge.shares, binary))
            for number, embeddings, gradients, rows in _steps(view)
        )


def _steps(view: LabelView) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    for number, gradients, rows in view.finite_steps():
        embeddings = view.steps[number].matrix(view.party, Target.EMBEDDING).flatten(1)
        if is_finite(embeddings):
            yield number, embeddings, gradients, rows


def match(embeddings: Tensor, gradients: Tensor, classes: int) -> Tensor:
    """Log-probabilities of the dummy labels of one batch, the classes in no known order.

    Args:
        embeddings: Embeddings, float (n, d), finite, of any scale.
        gradients: Cut gradients, float (n, d), finite, of any scale.
        classes: Number of classes, two or more.

    Returns:
        float (n, classes); zeros where all gradients are equal, since then there is nothing to match.
    """
    # Adam takes steps of full size along a gradient of roundings, so rows that are equal up to those are made equal.
    return match_blocks([_merged_rows(embeddings)], [_merged_rows(gradients)], classes)[0]


def match_blocks(embeddings: Sequence[Tensor], gradients: Sequence[Tensor], classes: int) -> list[Tensor]:
    """`match` of several batches, each with a dummy top model of its own, optimised side by side.

    Args:
        embeddings: Embeddings of each batch, float (n, d).
        gradients: Cut gradients of each batch, float (n, d).
        classes: Number of classes, two or more.

    Returns:
        Log-probabilities of each batch, float (n, classes).
    """
    from torch.nn.utils.rnn import pad_sequence

    logs = [g.new_zeros(len(g), classes) for g in gradients]
    varying = [number for number, g in enumerate(gradients) if not bool((g == g[:1]).all())]
    if varying:
        sizes = [len(gradients[number]) for number in varying]
        e = pad_sequence([scaled(embeddings[number] - embeddings[number].mean(dim=0)) for number in varying], True)
        lengthened = [scaled(gradients[number]) / gradients[number].shape[1] ** 0.5 for number in varying]
        for number, optimised, size in zip(varying, _optimised(e, lengthened, classes), sizes, strict=True):
            logs[number] = optimised[:size]
    return logs


def _optimised(e: Tensor, gradients: Sequence[Tensor], classes: int) -> Tensor:
    """Log-probabilities (b, n, classes) of b padded batches; `gradients` have rows of length 1 on average."""
    from torch.nn.utils.rnn import pad_sequence

    from cutlayer.kernels.fits.optimizers import Adam

    clusters = [_clusters(g, classes) for g in gradients]
    means = [_means(g, own, classes) for g, own in zip(gradients, clusters, strict=True)]
    certain = [(functional.one_hot(own, classes) * _CERTAINTY).to(e.dtype) for own in clusters]
    g = pad_sequence(list(gradients), True)
    sizes = torch.tensor([len(own) for own in gradients])[:, None]
    # Weights of a mean over each batch; a padded row counts nothing.
    root = ((torch.arange(g.shape[1]) < sizes) / sizes).sqrt().to(e.dtype)[:, None]
    g = g * root.mT
    transposed = e.mT.contiguous()
    # Classes before rows: a softmax over two adjacent numbers is five times slower.
    labels = pad_sequence(certain, True).mT.contiguous()
    weight = -torch.stack(means)
    bias = g.new_zeros(len(g), classes, 1)
    factor = g.new_zeros(len(g), 1, 1)
    groups = [{"params": [weight, bias, factor], "lr": _RATE}, {"params": [labels], "lr": _LABEL_RATE}]
    optimizer = Adam(groups, fused=True)
    for _ in range(ROUNDS):
        weight.grad, bias.grad, factor.grad, labels.grad = _derivatives(
            e, transposed, g, root, weight, bias, factor, labels
        )
        optimizer.step()
    return torch.log_softmax(labels, dim=1).mT


def _derivatives(
    e: Tensor, transposed: Tensor, g: Tensor, root: Tensor, weight: Tensor, bias: Tensor, factor: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Derivatives of |sent' weight - g|^2 by weight, bias, factor and labels, in half the time of a recorded graph.

    `sent` (b, classes, n) is what the dummy model sends but for its weights. No matrix of the size of g is formed.
    """
    predicted = torch.softmax(torch.baddbmm(bias, weight, transposed), dim=1)
    dummy = torch.softmax(labels, dim=1)
    lengths = factor.exp() * root
    sent = lengths * (predicted - dummy)
    by_sent = 2 * (weight @ weight.mT @ sent - weight @ g.mT)
    by_residual = by_sent * lengths
    by_logits = _through_softmax(predicted, by_residual)
    by_weight = 2 * (sent @ sent.mT @ weight - sent @ g) + by_logits @ e
    by_factor = (by_sent * sent).sum(dim=(1, 2), keepdim=True)
    return by_weight, by_logits.sum(dim=2, keepdim=True), by_factor, _through_softmax(dummy, -by_residual)


def _through_softmax(values: Tensor, derivative: Tensor) -> Tensor:
    """Derivative by the logits, of a softmax over dimension 1."""
    product = values * derivative
    return product - values * product.sum(dim=1, keepdim=True)


def named_guess(logs: Tensor, shares: Sequence[float], binary: bool) -> Guess:
    """Dummy labels (n, classes) with their classes named by size."""
    clusters = logs.argmax(dim=1)
    named = name_by_size(clusters, shares)
    values = logs[:, named].double()
    hard = named.argsort()[clusters]
    if binary:
        return Guess(values[:, 1] - values[:, 0], hard=hard == 1, scale=1.0)
    return Guess(values, hard=hard, scale=1.0)


def _merged_rows(x: Tensor) -> Tensor:
    """Entries of a column (n, d) that differ by less than their rows' rounding errors made equal."""
    return merge_ties(x, torch.linalg.vector_norm(x, dim=1, dtype=torch.float64)).to(x.dtype)


def _clusters(g: Tensor, classes: int) -> Tensor:
    """Cluster of each row (n, d) by the direction of its gradient, int64 (n,)."""
    points = merge_ties(project_on_top(functional.normalize(g, dim=1), classes - 1), 1.0)
    return distances(points, k_means(points, classes)).argmin(dim=1)


def _means(g: Tensor, clusters: Tensor, classes: int) -> Tensor:
    """Mean gradient of each cluster (classes, d); zeros for a cluster without rows."""
    sizes = torch.bincount(clusters, minlength=classes)
    return g.new_zeros(classes, g.shape[1]).index_add_(0, clusters, g) / sizes.clamp_min(1)[:, None]
