"""Pydantic models of a job; unknown keys are errors."""

from cutlayer.config.base import FrozenModel, registered, validated
from cutlayer.config.ids import IdConfig
from cutlayer.config.job import Job
from cutlayer.config.limits import LimitsConfig
from cutlayer.config.party import AuditConfig, BudgetConfig, LabelFreeConfig, PartyConfig, PrivateFile, PrivatePart
from cutlayer.config.serve import CallerConfig, ServeConfig
from cutlayer.config.table import CategoriesConfig, FeaturesConfig, NumbersConfig, TableConfig
from cutlayer.config.train import OptimizerConfig, SplitConfig, TrainConfig
from cutlayer.config.wording import near_miss

__all__ = [
    "AuditConfig",
    "BudgetConfig",
    "CallerConfig",
    "CategoriesConfig",
    "FeaturesConfig",
    "FrozenModel",
    "IdConfig",
    "Job",
    "LabelFreeConfig",
    "LimitsConfig",
    "NumbersConfig",
    "OptimizerConfig",
    "PartyConfig",
    "PrivateFile",
    "PrivatePart",
    "ServeConfig",
    "SplitConfig",
    "TableConfig",
    "TrainConfig",
    "near_miss",
    "registered",
    "validated",
]
