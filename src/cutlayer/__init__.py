"""Train one model across organisations that may not share data; measure what leaks at the cut layer, and stop it."""

from importlib import import_module
from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.config import BudgetConfig as BudgetConfig
    from cutlayer.config import Job as Job
    from cutlayer.config import LabelFreeConfig as LabelFreeConfig
    from cutlayer.errors import CutlayerError as CutlayerError
    from cutlayer.estimator import VerticalClassifier as VerticalClassifier
    from cutlayer.estimator import VerticalRegressor as VerticalRegressor
    from cutlayer.protections.catalogue import *  # noqa: F403 (the section of each protection)
    from cutlayer.protections.label_dp import LabelDP as LabelDP
    from cutlayer.results.report import Report as Report
    from cutlayer.version import __version__ as __version__
else:
    _MODULES = {
        "BudgetConfig": ".config",
        "CutlayerError": ".errors",
        "Job": ".config",
        "LabelDP": ".protections.label_dp",
        "LabelFreeConfig": ".config",
        "Report": ".results.report",
        "VerticalClassifier": ".estimator",
        "VerticalRegressor": ".estimator",
        "__version__": ".version",
    }
    _attribute, _ = on_first_use(__name__, _MODULES)

    def _exported() -> dict[str, object]:
        """The section of each protection, by name."""
        registered = vars(import_module(".protections.catalogue", __name__))
        return {name: section for name, section in registered.items() if name.endswith("Config")}

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return sorted({*_MODULES, *_exported()})
        if name.endswith("Config") and name not in _MODULES and name in _exported():
            return _exported()[name]
        return _attribute(name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
