"""Max norm alignment: a random factor that gives every gradient the norm of the longest, or its expectation."""

from __future__ import annotations

from cutlayer.lazy import Tensor, torch


def max_norm(g: Tensor, norms: Tensor, normal: Tensor, isotropic: Tensor) -> Tensor:
    """Row i becomes g_i (1 + sigma_i eps_i), sigma_i = sqrt(max(M^2 / |g_i|^2 - 1, 0)), M the largest norm.

    Unbiased, with E|.|^2 = M^2 for every row. A row of zero norm has no direction of its own and gets an isotropic
    vector of norm M (the paper leaves it open); a batch of zeros stays as it is.

    Args:
        g: float (n, d).
        norms: `row_norms(g)`.
        normal: Standard normal eps (n,).
        isotropic: Standard normal (z, d), one row for each of the z rows of zero norm.

    Returns:
        (n, d) of the same dtype.

    Reference: Li, Sun et al., Label leakage and protection in two-party split learning (arXiv 2102.08504), section 4.
    """
    largest = norms.max() if len(norms) else norms.new_zeros(())
    if not bool(largest > 0):
        return g.clone()
    zero = norms == 0
    sigma = ((largest / norms.masked_fill(zero, 1.0)) ** 2 - 1).clamp_(min=0).sqrt_()
    factor = (1 + sigma * normal).unsqueeze(1)
    out = g * factor.to(g.dtype)
    beyond = (factor.abs() > torch.finfo(torch.float32).max).squeeze(1)
    if bool(beyond.any()):
        # A saturated loss leaves rows near 1e-40, whose factor only float64 can hold; their product fits again.
        out[beyond] = (g[beyond].double() * factor[beyond]).to(g.dtype)
    if len(isotropic):
        out[zero] = _of_length(isotropic, largest).to(g.dtype)
    return out


def aligned_rows(g: Tensor, norms: Tensor, uniform: Tensor, others: Tensor, length: float) -> Tensor:
    """Row i becomes s_i M g_i / |g_i| with a random sign s_i, so that every row has the same length M.

    s_i is 1 with probability (1 + |g_i| / M) / 2. That is unbiased, and has the mean and the variance of `max_norm`,
    whose normal factor it replaces by one of two values. Rows longer than M are shortened to it. A row of zero norm
    gets the direction of its row of `others`, and norm M.

    Args:
        g: float (n, d).
        norms: `row_norms(g)`.
        uniform: Numbers (n,) in [0, 1], one of each row: s_i is 1 where it is below the probability.
        others: Directions (z, d), of any length above 0, one row for each of the z rows of zero norm.
        length: M, above 0.

    Returns:
        (n, d) of the same dtype.

    Reference: the first two moments are those of Li, Sun et al. (arXiv 2102.08504), section 4; the signs are ours.
    """
    zero = norms == 0
    norms = norms.masked_fill(zero, 1.0)
    factor = torch.where(uniform < 0.5 + norms / (2.0 * length), length, -length) / norms
    out = (g.double() * factor.unsqueeze(1)).to(g.dtype)
    if len(others):
        out[zero] = _of_length(others, length).to(g.dtype)
    return out


def _of_length(directions: Tensor, length: Tensor | float) -> Tensor:
    """The directions (z, d), each scaled to a length."""
    from cutlayer.kernels.rows.row_norms import row_norms

    return directions * (length / row_norms(directions).clamp_(min=torch.finfo(torch.float64).tiny).unsqueeze(1))
