"""Fits of the parts of a top model, by its section of a job."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from cutlayer.models.top_estimators.additive import AdditivePart
from cutlayer.models.top_estimators.boosting import fit_boosting
from cutlayer.models.top_estimators.choice import FitPart
from cutlayer.models.top_estimators.estimator import EstimatorPart, fit_estimator
from cutlayer.models.top_estimators.forest import ForestPart
from cutlayer.models.top_estimators.linear import LinearPart, fit_linear
from cutlayer.models.top_estimators.network import NetworkPart, fit_network
from cutlayer.models.top_estimators.rows import FittedPart, OwnColumns
from cutlayer.models.top_estimators.sections import AutoTopConfig, BoostingTopConfig, FittedConfig, SklearnTopConfig
from cutlayer.models.top_estimators.trees import TreeEnsemble
from cutlayer.plugins import import_class

_PARTS: Mapping[str, type[FittedPart]] = {
    part.kind: part for part in (LinearPart, TreeEnsemble, NetworkPart, ForestPart, AdditivePart)
}
"""Fitted models by their name in a checkpoint."""

_CANDIDATES: Mapping[str, FitPart] = {"linear": fit_linear, "boosting": fit_boosting, "network": fit_network}


def fits_of(section: FittedConfig) -> Mapping[str, FitPart]:
    """Candidates of a section, by name.

    Raises:
        ConfigError: A user's class may not, or cannot, be imported.
    """
    if isinstance(section, AutoTopConfig):
        return {name: _CANDIDATES[name] for name in section.candidates}
    if isinstance(section, SklearnTopConfig):
        kind = import_class(section.path, "model.top")
        return {kind.__name__: partial(fit_estimator, kind, section.path, section.args)}
    if isinstance(section, BoostingTopConfig):
        return {"boosting": partial(fit_boosting, settings=section.model_dump(exclude={"kind", "folds"}))}
    return {"linear": fit_linear}


def empty_part(kind: str, section: FittedConfig) -> FittedPart:
    """A part to load a state into; an estimator is of the class of the job, whatever a file says.

    Args:
        kind: Name of the part in a checkpoint.
        section: Section of the job.

    Raises:
        KeyError: The section has no part of this name.
    """
    if kind == EstimatorPart.kind and isinstance(section, SklearnTopConfig):
        return EstimatorPart(import_class(section.path, "model.top"), section.path)
    own, _, part = kind.rpartition(OwnColumns.PREFIX)
    return OwnColumns(_PARTS[part]()) if kind == OwnColumns.PREFIX + part and not own else _PARTS[kind]()
