"""Train one model across organisations that may not share data; measure what leaks at the cut layer, and stop it."""

# Before torch is imported: its idle worker threads then sleep. Waiting busily, as they do otherwise, two threads fell
# to a third of one thread's speed as soon as anything else ran on the machine.
import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from cutlayer.config import Job
from cutlayer.errors import CutlayerError
from cutlayer.estimator import VerticalClassifier, VerticalRegressor
from cutlayer.protections import LabelDP, LabelDPConfig, MaxNormConfig
from cutlayer.report import Report
from cutlayer.version import __version__

__all__ = [
    "CutlayerError",
    "Job",
    "LabelDP",
    "LabelDPConfig",
    "MaxNormConfig",
    "Report",
    "VerticalClassifier",
    "VerticalRegressor",
    "__version__",
]
