"""Forward correction: the loss of a classifier of true labels that is trained on randomised ones."""

from __future__ import annotations

from cutlayer.lazy import Tensor, torch


def forward_corrected_loss(log_probabilities: Tensor, drawn: Tensor, transition: Tensor) -> Tensor:
    """Mean negative log-likelihood of drawn labels, given a model's probabilities of the true ones.

    A label is drawn as class j with probability q_j = sum over i of p_i T_ij. The loss is -log q_j of the drawn class.
    Its minimum over all p is the true label's distribution if T has full rank: the model is calibrated for the true
    label, not for the drawn one.

    Args:
        log_probabilities: log p of every class, float (n, classes).
        drawn: Drawn class codes, int64 (n,).
        transition: T, probability of each drawn class (column) given the true one (row), (classes, classes).

    Returns:
        A scalar, 0 or more.

    Reference: Patrini et al. 2017, Making deep neural networks robust to label noise (arXiv 1609.03683), section 4.2,
    theorem 2. T is estimated there, and known here.
    """
    return likelihood_loss(log_probabilities, transition.T[drawn])


def likelihood_loss(log_probabilities: Tensor, likelihood: Tensor) -> Tensor:
    """Mean negative log-likelihood of labels that each row drew in its own way.

    Args:
        log_probabilities: log p of every class, float (n, classes).
        likelihood: Probability of the row's drawn label by its true class, (n, classes). A row of equal numbers has no
            effect on the model.

    Returns:
        A scalar, 0 or more.
    """
    # In logarithms: the probability of a class may be too small for a float32, and so may a flip at a large eps.
    log_likelihood = likelihood.to(log_probabilities.dtype).log()
    return -torch.logsumexp(log_probabilities + log_likelihood, dim=1).mean()
