"""What quadratic relations of one-hot columns add to the search for levels in a rotation, on drawn tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.kernels.fits import two_valued
from cutlayer.kernels.fits.quadratic_relations import one_hot_part

ROWS, SEEDS = 8_192, range(1, 4)
TABLES = (((31, 12, 24), 5), ((31, 12, 24), 15), ((20, 20), 10), ((8, 8, 8, 8), 20))
"""Levels of each category, all as frequent, and number of exponential numbers."""
Matrix = npt.NDArray[np.float64]


def rotation(levels: tuple[int, ...], numbers: int, rows: int = ROWS) -> tuple[Matrix, Matrix]:
    """A rotation of standardised one-hot columns and numbers, and the one-hot columns."""
    draw = np.random.default_rng(0)
    hot = np.concatenate([np.eye(count)[draw.integers(count, size=rows)] for count in levels], axis=1)
    table = np.concatenate([hot, draw.exponential(size=(rows, numbers))], axis=1)
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    turn, _ = np.linalg.qr(draw.normal(size=(table.shape[1],) * 2))
    return (table @ turn).astype(np.float32).astype(float), hot


def levels_found(release: Matrix, hot: Matrix, seed: int) -> float:
    """Share of the levels that the search finds with a certificate."""
    found, certain = two_valued.two_valued_vectors(release, np.random.default_rng(seed))
    read = {column.tobytes() for column in found[:, certain].T}
    return float(np.mean([(column > 0).tobytes() in read for column in hot.T]))


def main() -> None:
    """Print the share of the levels found, without and with the relations."""
    with_relations = one_hot_part
    for levels, numbers in TABLES:
        release, hot = rotation(levels, numbers)
        for name, part in (("without", lambda *_: None), ("with", with_relations)):
            setattr(two_valued, "one_hot_part", part)  # noqa: B010 (a function of the module, for this figure alone)
            shares = [levels_found(release, hot, seed) for seed in SEEDS]
            print(levels, numbers, name, *(f"{share:.2f}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
