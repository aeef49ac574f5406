"""Train one model across organisations that may not share data; measure what leaks at the cut layer, and stop it."""

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.config import Job
    from cutlayer.errors import CutlayerError
    from cutlayer.estimator import VerticalClassifier, VerticalRegressor
    from cutlayer.protections import LabelDP, LabelDPConfig, MaxNormConfig
    from cutlayer.report import Report
    from cutlayer.version import __version__
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "CutlayerError": ".errors",
            "Job": ".config",
            "LabelDP": ".protections",
            "LabelDPConfig": ".protections",
            "MaxNormConfig": ".protections",
            "Report": ".report",
            "VerticalClassifier": ".estimator",
            "VerticalRegressor": ".estimator",
            "__version__": ".version",
        },
    )

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
