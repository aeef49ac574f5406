"""Estimators in the style of scikit-learn: all parties in one process, tables in memory."""

from cutlayer.estimator.prediction import Evaluation
from cutlayer.estimator.vertical import VerticalClassifier, VerticalRegressor

__all__ = ["Evaluation", "VerticalClassifier", "VerticalRegressor"]
