"""The directions in which the rows of a matrix vary most."""

from __future__ import annotations

from cutlayer.lazy import Tensor, torch

_MAX_EIGH = 512  # above this side length ARPACK is faster than a full eigendecomposition
_MAX_STACKED = 64  # up to this side length the calls cost more than what they compute
_TOLERANCE = 1e-4  # of an eigenvalue; the error of its vector is far below what ranks rows differently


def project(x: Tensor) -> Tensor:
    """Projections s_i = <x_i - mean, v> of the rows on the top right singular vector of the centred rows.

    From the d x d covariance, or the n x n Gram matrix where n < d; matrices larger than 512 on their shorter
    side use the Lanczos iteration of ARPACK instead. The largest coordinate of v is positive.

    Args:
        x: float (n, d), finite, of any scale.

    Returns:
        float64 (n,); zeros where the rows are all equal.
    """
    moved, scale = _centred(x)
    return (moved @ _direction(moved, scale)).double().mul_(scale)


def project_on_top(x: Tensor, directions: int) -> Tensor:
    """Coordinates of the centred rows along their top right singular vectors.

    From the covariance or the Gram matrix, whichever is smaller; beyond 512 on the shorter side by ARPACK.

    Args:
        x: float (n, d), finite, of any scale.
        directions: Number of directions, 1 or more; at most the shorter side of x.

    Returns:
        float64 (n, min(directions, n, d)), the direction of most variance first; zeros where the rows are all equal.
    """
    moved, scale = _centred(x)
    shorter = min(x.shape)
    directions = min(directions, shorter)
    if not scale:
        return torch.zeros(len(x), directions, dtype=torch.float64)
    if shorter <= _MAX_EIGH:
        try:
            return _decomposed(moved, directions).mul_(scale)
        except RuntimeError:  # LAPACK did not converge, which torch raises as its LinAlgError
            pass
    return (moved @ _leading(moved, directions)).double().mul_(scale)


def project_each(x: Tensor) -> Tensor:
    """`project` of several matrices of one shape at once, float (b, n, d); float64 (b, n)."""
    if len(x) == 1 or min(x.shape[1:]) > _MAX_STACKED:
        return torch.stack([project(matrix) for matrix in x])
    moved, scale = _centred_each(x)
    n, d = x.shape[1:]
    products = (moved.mT @ moved if d <= n else moved @ moved.mT).double()
    try:
        top = torch.linalg.eigh(products).eigenvectors[..., -1:].to(x.dtype)
    except RuntimeError:  # as in `project_on_top`
        return torch.stack([project(matrix) for matrix in x])
    top = top if d <= n else moved.mT @ top
    top = top / _nonzero(torch.linalg.vector_norm(top, dim=1, keepdim=True))
    largest = top.take_along_dim(top.abs().argmax(dim=1, keepdim=True), dim=1)
    return (moved @ torch.where(largest > 0, top, -top)).squeeze(2).double() * scale[:, 0]


def project_on_top_each(x: Tensor, directions: int) -> Tensor:
    """`project_on_top` of several matrices of one shape at once, float (b, n, d); float64 (b, n, directions)."""
    if len(x) == 1 or min(x.shape[1:]) > _MAX_STACKED:
        return torch.stack([project_on_top(matrix, directions) for matrix in x])
    moved, scale = _centred_each(x)
    try:
        return _decomposed(moved, min(directions, *x.shape[1:])) * scale
    except RuntimeError:  # as in `project_on_top`
        return torch.stack([project_on_top(matrix, directions) for matrix in x])


def gram(x: Tensor) -> Tensor:
    """Products x' x of the columns of x (n, d), (d, d), without a graph.

    On the processor by NumPy, which computes half of this product, since it is symmetric.
    """
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return x.T @ x
    rows = x.detach().numpy()
    return torch.from_numpy(rows.T @ rows)


def _centred(x: Tensor) -> tuple[Tensor, float]:
    """The rows minus their mean, divided by their largest absolute value, and that value.

    Without the scale, squares of gradients near 1e-25 would vanish in float32.
    """
    if not x.numel():
        return x, 0.0
    moved = x - x[0]  # first, so that equal rows give exact zeros
    moved -= moved.mean(dim=0)
    low, high = moved.aminmax()
    scale = max(-float(low), float(high))
    return (moved.div_(scale) if scale else moved), scale


def _centred_each(x: Tensor) -> tuple[Tensor, Tensor]:
    """`_centred` of every matrix, and the largest absolute values, float64 (b, 1, 1)."""
    moved = x - x[:, :1]
    moved -= moved.mean(dim=1, keepdim=True)
    scale = moved.abs().amax(dim=(1, 2), keepdim=True)
    return moved / _nonzero(scale), scale.double()


def _nonzero(values: Tensor) -> Tensor:
    """The values with 1 in place of 0, to divide by."""
    return values.masked_fill(values == 0, 1.0)


def _direction(moved: Tensor, scale: float) -> Tensor:
    n, d = moved.shape
    if not scale:
        return moved.new_zeros(d)
    if min(n, d) > _MAX_EIGH:
        top = _leading(moved, 1)[:, 0]
    elif d <= n:
        top = _last_eigenvector(gram(moved), moved)
    else:
        top = moved.T @ _last_eigenvector(gram(moved.T), moved.T)
    top /= torch.linalg.vector_norm(top)
    # LAPACK leaves the sign open; fixing it keeps repeated audits equal.
    return top if bool(top[top.abs().argmax()] > 0) else -top


def _last_eigenvector(products: Tensor, factor: Tensor) -> Tensor:
    """Eigenvector of the largest eigenvalue of `products` = factor.T @ factor, in float64.

    One vector takes a third of the time of all. LAPACK's float32 routine did not converge on a covariance of nearly
    collinear gradients; the Lanczos iteration does not decompose it.
    """
    from scipy import linalg

    last = len(products) - 1
    matrix = products.double().cpu().numpy()
    try:
        _, vectors = linalg.eigh(matrix, subset_by_index=(last, last), check_finite=False)
    except linalg.LinAlgError:
        return _leading(factor, 1)[:, 0]
    return torch.from_numpy(vectors[:, 0]).to(products)


def _decomposed(moved: Tensor, directions: int) -> Tensor:
    """From the covariances (..., d, d), or the Gram matrices (..., n, n) where these are smaller, in float64."""
    n, d = moved.shape[-2:]
    if d <= n:
        top: Tensor = torch.linalg.eigh((moved.mT @ moved).double()).eigenvectors[..., -directions:].flip(-1)
        return (moved @ top.to(moved.dtype)).double()
    values, vectors = torch.linalg.eigh((moved @ moved.mT).double())
    along: Tensor = vectors * values.clamp_min(0).sqrt()[..., None, :]
    return along[..., -directions:].flip(-1)


def _leading(moved: Tensor, directions: int) -> Tensor:
    """Top right singular vectors (d, directions) without a decomposition, by ARPACK from a fixed start.

    Reference: Lehoucq, Sorensen and Yang 1998, ARPACK users' guide.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    rows = moved.numpy()
    width = moved.shape[1]
    if directions == width:  # ARPACK leaves one out
        every: Tensor = torch.linalg.svd(moved, full_matrices=False).Vh.mT
        return every
    covariance = LinearOperator((width, width), matvec=lambda vector: rows.T @ (rows @ vector), dtype=rows.dtype)
    start = torch.randn(width, generator=torch.Generator().manual_seed(0), dtype=moved.dtype)
    _, vectors = eigsh(covariance, directions, v0=start.numpy(), tol=_TOLERANCE)
    return torch.from_numpy(vectors).flip(1)
