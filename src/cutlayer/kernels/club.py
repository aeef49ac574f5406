"""CLUB: an upper estimate of the mutual information of embeddings and classes, from a predictor's log-probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.errors import DataError


def label_log_likelihood(log_probs: Tensor, labels: Tensor) -> Tensor:
    """L_A, the mean of log g(y_i | h_i): the predictor ascends it, the party whose embedding it reads descends it.

    Args:
        log_probs: log g(y | h_i), floating (n, classes), n >= 1.
        labels: the rows' classes, int64 (n,).

    Returns:
        A scalar, at most 0; differentiable.

    Raises:
        DataError: the shapes do not fit.
    """
    if log_probs.dim() != 2 or labels.shape != log_probs.shape[:1] or not len(labels):
        raise DataError.expected(
            "log-probabilities (n, classes) and labels (n,), n >= 1",
            f"{tuple(log_probs.shape)} and {tuple(labels.shape)}",
        )
    return log_probs.gather(1, labels[:, None]).mean()


def label_log_likelihood_gradient(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Gradient of L_A with respect to the logits of which `log_probs` are the log-softmax: (one-hot - g) / n.

    That of `drawn_label_loss` is the negative of this at the drawn labels; in the sum of both g cancels.

    Args:
        log_probs, labels: as in `label_log_likelihood`.

    Returns:
        (n, classes), without a graph.
    """
    n = len(labels)
    gradient = log_probs.detach().exp().div_(-n)
    return gradient.scatter_add_(1, labels[:, None], gradient.new_full((n, 1), 1 / n))


def drawn_label_loss(log_probs: Tensor, drawn: Tensor) -> Tensor:
    """L_R, the mean of -log g(y_k' | h_i) with a label drawn for each row, k' uniform over all training rows.

    Args:
        log_probs: as in `label_log_likelihood`.
        drawn: the drawn classes, int64 (n,).

    Returns:
        A scalar, at least 0; differentiable.

    Raises:
        DataError: the shapes do not fit.

    Reference: the sampled vCLUB (vCLUB-S) of Cheng et al. 2020 (arXiv 2006.12013), section 3.3.
    """
    return -label_log_likelihood(log_probs, drawn)


def expected_label_loss(log_probs: Tensor, shares: Tensor) -> Tensor:
    """The expectation of `drawn_label_loss` over the draw: the mean over rows of -sum_c share_c log g(c | h_i).

    It equals the mean over all n m pairs of a row and a training label, in n x classes operations.

    Args:
        log_probs: as in `label_log_likelihood`.
        shares: of each class among the training labels, floating (classes,).

    Returns:
        A scalar, at least 0; differentiable. A class without a training label counts nothing, whatever its
        log-probability.

    Raises:
        DataError: the shapes do not fit.
    """
    if log_probs.dim() != 2 or shares.shape != log_probs.shape[1:]:
        raise DataError.expected("one share per class", f"{tuple(shares.shape)} for {tuple(log_probs.shape)}")
    weighted = torch.where(shares > 0, log_probs, 0.0) * shares.to(log_probs.dtype)
    return -weighted.sum(1).mean()


def vclub(log_probs: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
    """vCLUB, the estimate mean_i [log g(y_i | h_i) - sum_c share_c log g(c | h_i)] of I(h; y), in nats.

    With the true conditional g = p(y | h) its expectation is an upper bound on the mutual information. With a fitted g
    it is an estimate that may lie below, also below 0.

    Args:
        log_probs, labels: as in `label_log_likelihood`.
        shares: as in `expected_label_loss`.

    Returns:
        A scalar; differentiable.

    Raises:
        DataError: the shapes do not fit.

    Reference: Cheng et al. 2020, CLUB: a contrastive log-ratio upper bound of mutual information (arXiv 2006.12013),
    sections 3.1 and 3.2; the sum over pairs is closed over classes here.
    """
    return label_log_likelihood(log_probs, labels) + expected_label_loss(log_probs, shares)
