"""Contents of a log: settings, figures and the report of a run. Nothing of it is of a single row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cutlayer.config import Job
from cutlayer.parties.session.observer import EpochRecord
from cutlayer.report.matrix import matrix_of
from cutlayer.results.quality import Confusion, OperatingPoint
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind

MIN_GROUP = 5
"""Rows below which the means of a group say too much of each of them."""
MAX_LENGTH = 500
"""Characters of a setting, which older servers of MLflow take."""
_OF_JOB = ("name", "task", "rows", "alignment", "channel", "model", "train", "compare")
_OF_PARTY = ("role", "on_absent", "privacy", "fit")


def settings_of(job: Job) -> dict[str, str]:
    """The job's settings by dotted key: no path, column, address or key, and of the parties only what is known here."""
    whole = job.model_dump(mode="json")
    parties = {name: {key: party[key] for key in _OF_PARTY} for name, party in whole["parties"].items()}
    if whole["train"]["split"]["by"] is not None:
        whole["train"]["split"]["by"] = "a column"
    chosen = {key: whole[key] for key in _OF_JOB} | {"parties": parties}
    return {key: value[:MAX_LENGTH] for key, value in _flat(chosen)}


def epoch_values(record: EpochRecord) -> dict[str, float]:
    """Loss, held-out metrics and worst leak of an epoch."""
    metrics = {f"{record.part}/{name}": value for name, value in record.metrics.items()}
    leak = max(record.leak.values(), default=None)
    return _finite({"loss": record.loss, **metrics, "worst_leak": leak})


def final_values(report: Report) -> dict[str, float]:
    """Metrics of the final model, worst leak, and the formal guarantees under a name of their own."""
    own, matrix = report.utility.row(RunKind.THIS_RUN), matrix_of(report)
    worst = matrix.worst(RunKind.THIS_RUN)
    metrics = {f"final/{name}": value for name, value in (own.metrics if own else {}).items()}
    leaks = {
        "final/worst_leak": worst.leak if worst else None,
        "final/worst_excess": max(matrix.excesses, default=None),
    }
    guarantees: dict[str, float] = {}
    for total in report.ledger.totals:
        name = f"guarantee/epsilon/{total.party}/{total.protects}"
        if total.epsilon is not None:
            guarantees[name] = max(total.epsilon, guarantees.get(name, 0.0))
    return _finite({**metrics, **leaks, **guarantees})


def without_rows(report: Report) -> Report:
    """The report without images and groups of a few rows, and with thresholds rounded, each the score of a row."""
    features = tuple(result.model_copy(update={"pictures": ()}) for result in report.features)
    curves = ("thresholds", "curve", "own_curve", "confusions")
    rounded = {name: _rounded(getattr(report.quality, name)) for name in curves}
    bins = tuple(group for group in report.quality.bins if group.rows >= MIN_GROUP)
    quality = report.quality.model_copy(update={**rounded, "bins": bins})
    return report.model_copy(update={"features": features, "quality": quality})


def _rounded(points: Iterable[OperatingPoint | Confusion]) -> tuple[OperatingPoint | Confusion, ...]:
    return tuple(
        point if point.threshold is None else point.model_copy(update={"threshold": round(point.threshold, 2)})
        for point in points
    )


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def _finite(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
