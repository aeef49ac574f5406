"""What a log receives of a run: settings, figures and the report. Nothing of it is of a single row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cutlayer.config import FrozenModel, Job
from cutlayer.parties.observer import EpochRecord
from cutlayer.report.matrix import matrix_of
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind

MAX_LENGTH = 500
"""Characters of a setting, which older servers of MLflow take."""
_OF_JOB = ("name", "task", "rows", "alignment", "channel", "model", "train", "compare")
_OF_PARTY = ("role", "on_absent", "privacy", "fit")


def settings_of(job: Job) -> dict[str, str]:
    """The job's settings by dotted key: no path, column, address or key, and of the parties only what is known here."""
    whole = job.model_dump(mode="json")
    parties = {name: {key: party[key] for key in _OF_PARTY} for name, party in whole["parties"].items()}
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
    """The report without images, which are rows, and with rounded thresholds and means, which can be a row's score."""
    features = tuple(result.model_copy(update={"pictures": ()}) for result in report.features)
    curves = ("thresholds", "curve", "own_curve")
    rounded = {name: _rounded(getattr(report.quality, name), "threshold") for name in curves}
    rounded |= {
        "bins": _rounded(report.quality.bins, "predicted", "observed"),
        "confusions": _rounded(report.quality.confusions, "threshold"),
    }
    quality = report.quality.model_copy(update=rounded)
    return report.model_copy(update={"features": features, "quality": quality})


def _rounded(points: Iterable[FrozenModel], *fields: str) -> tuple[FrozenModel, ...]:
    return tuple(
        point.model_copy(
            update={name: None if (value := getattr(point, name)) is None else round(value, 2) for name in fields}
        )
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
