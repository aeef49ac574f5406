"""Pydantic models of a job; unknown keys are errors. They are imported on first use: help needs no pydantic."""

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.config.base import FrozenModel as FrozenModel
    from cutlayer.config.base import registered as registered
    from cutlayer.config.base import validated as validated
    from cutlayer.config.ids import IdConfig as IdConfig
    from cutlayer.config.job import Job as Job
    from cutlayer.config.limits import LimitsConfig as LimitsConfig
    from cutlayer.config.party import AuditConfig as AuditConfig
    from cutlayer.config.party import BudgetConfig as BudgetConfig
    from cutlayer.config.party import LabelFreeConfig as LabelFreeConfig
    from cutlayer.config.party import PartyConfig as PartyConfig
    from cutlayer.config.party import PrivateFile as PrivateFile
    from cutlayer.config.party import PrivatePart as PrivatePart
    from cutlayer.config.serve import CallerConfig as CallerConfig
    from cutlayer.config.serve import ServeConfig as ServeConfig
    from cutlayer.config.table import CategoriesConfig as CategoriesConfig
    from cutlayer.config.table import FeaturesConfig as FeaturesConfig
    from cutlayer.config.table import NumbersConfig as NumbersConfig
    from cutlayer.config.table import TableConfig as TableConfig
    from cutlayer.config.train import OptimizerConfig as OptimizerConfig
    from cutlayer.config.train import SplitConfig as SplitConfig
    from cutlayer.config.train import TrainConfig as TrainConfig
    from cutlayer.config.wording import near_miss as near_miss
else:
    _NAMES = {
        "base": "FrozenModel registered validated",
        "ids": "IdConfig",
        "job": "Job",
        "limits": "LimitsConfig",
        "party": "AuditConfig BudgetConfig LabelFreeConfig PartyConfig PrivateFile PrivatePart",
        "serve": "CallerConfig ServeConfig",
        "table": "CategoriesConfig FeaturesConfig NumbersConfig TableConfig",
        "train": "OptimizerConfig SplitConfig TrainConfig",
        "wording": "near_miss",
    }
    _MODULES = {name: f".{module}" for module, names in _NAMES.items() for name in names.split()}
    __all__ = list(_MODULES)
    __getattr__, __dir__ = on_first_use(__name__, _MODULES)
