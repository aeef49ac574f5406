"""Top models that are fitted at once: linear models, boosting, networks, and their average."""

from cutlayer.models.fitted.choice import Candidate
from cutlayer.models.fitted.kinds import AutoTopConfig, BoostingTopConfig, LinearTopConfig, SklearnTopConfig
from cutlayer.models.fitted.top import FitResult, FittedTop

__all__ = [
    "AutoTopConfig",
    "BoostingTopConfig",
    "Candidate",
    "FitResult",
    "FittedTop",
    "LinearTopConfig",
    "SklearnTopConfig",
]
