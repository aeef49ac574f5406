"""Train one model across organisations that may not share data; measure what leaks at the cut layer, and stop it."""

from cutlayer.config import Job
from cutlayer.errors import CutlayerError
from cutlayer.estimator import VerticalClassifier, VerticalRegressor
from cutlayer.protections import LabelDPConfig, MaxNormConfig
from cutlayer.report import Report
from cutlayer.version import __version__

__all__ = [
    "CutlayerError",
    "Job",
    "LabelDPConfig",
    "MaxNormConfig",
    "Report",
    "VerticalClassifier",
    "VerticalRegressor",
    "__version__",
]
