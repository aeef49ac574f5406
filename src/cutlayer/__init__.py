"""Train one model across organisations that may not share data; measure what leaks at the cut layer, and stop it."""

from importlib import import_module
from typing import TYPE_CHECKING

from cutlayer.version import __version__

if TYPE_CHECKING:
    from cutlayer.config import Job
    from cutlayer.errors import CutlayerError
    from cutlayer.estimator import VerticalClassifier, VerticalRegressor
    from cutlayer.protections import LabelDP, LabelDPConfig, MaxNormConfig
    from cutlayer.report import Report
else:
    _MODULES = {
        "CutlayerError": "errors",
        "Job": "config",
        "LabelDP": "protections",
        "LabelDPConfig": "protections",
        "MaxNormConfig": "protections",
        "Report": "report",
        "VerticalClassifier": "estimator",
        "VerticalRegressor": "estimator",
    }

    # Names are imported on first use: the command line sets up its process before the tensor library is loaded.
    def __getattr__(name):
        """Import a public name."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"cutlayer.{_MODULES[name]}"), name)

    def __dir__():
        """Names of the package, those not imported yet included."""
        return sorted({*globals(), *_MODULES})


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
