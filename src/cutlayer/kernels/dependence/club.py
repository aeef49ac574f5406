"""CLUB: an upper estimate of the mutual information of embeddings and classes, from a predictor's log-probabilities."""

from __future__ import annotations

from cutlayer.errors import DataError
from cutlayer.lazy import Tensor, torch


def label_log_likelihood_gradient(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Gradient of L_A, the mean of log g(y_i | h_i), with respect to the logits: (one-hot - g) / n.

    The predictor ascends L_A; the party whose embedding it reads descends it. The gradient of L_R, the mean of
    -log g(y' | h_i) with a label y' of a random training row for each row, is the negative of this at the drawn labels;
    in the sum of both g cancels.

    Args:
        log_probs: log g(y | h_i), the log-softmax of the logits, floating (n, classes), n >= 1.
        labels: Class of each row, int64 (n,).

    Returns:
        (n, classes), without a graph.
    """
    n = len(labels)
    gradient = log_probs.detach().exp().div_(-n)
    gradient[torch.arange(n, device=labels.device), labels] += 1 / n
    return gradient


def vclub(log_probs: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
    """vCLUB, the estimate mean_i [log g(y_i | h_i) - sum_c share_c log g(c | h_i)] of I(h; y), in nats.

    With the true conditional g = p(y | h) its expectation is an upper bound on the mutual information. With a fitted g
    it is an estimate that may lie below, also below 0. The second term equals the mean over all pairs of a row and a
    training label.

    Args:
        log_probs: log g(y | h_i), floating (n, classes), n >= 1.
        labels: Class of each row, int64 (n,).
        shares: Share of each class among the training labels, floating (classes,). A class without a training label
            counts nothing, whatever its log-probability.

    Returns:
        A scalar; differentiable.

    Raises:
        DataError: The shapes do not fit.

    Reference: Cheng et al. 2020, CLUB: a contrastive log-ratio upper bound of mutual information (arXiv 2006.12013),
    sections 3.1 and 3.2; the sum over pairs is closed over classes here.
    """
    if log_probs.dim() != 2 or labels.shape != log_probs.shape[:1] or not len(labels):
        got = f"{tuple(log_probs.shape)} and {tuple(labels.shape)}"
        raise DataError.expected("log-probabilities (n, classes) and labels (n,), n >= 1", got)
    if shares.shape != log_probs.shape[1:]:
        raise DataError.expected("one share per class", f"{tuple(shares.shape)} for {tuple(log_probs.shape)}")
    expected = torch.where(shares > 0, log_probs, 0.0) * shares.to(log_probs.dtype)
    return log_probs.gather(1, labels[:, None]).mean() + -expected.sum(1).mean()
