"""Columns for the linear models of attacks, standardised as scikit-learn does, but for constant ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import StandardScaler

from cutlayer.kernels.ties import RESOLUTION


class Scaler(StandardScaler):  # type: ignore[misc]
    """Columns of mean 0 and deviation 1; a column that is constant up to rounding becomes 0, not rounding errors."""

    def fit(self, x: npt.NDArray[np.float64], y: object = None, sample_weight: object = None) -> Scaler:
        """Take mean and deviation of x (n, d), finite."""
        super().fit(x, y, sample_weight)
        self.scale_[x.std(axis=0) <= RESOLUTION * np.abs(self.mean_)] = np.inf
        return self
