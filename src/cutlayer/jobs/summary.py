"""What a run did, as plain values: the parts of `summary.json` and `audit.json` the report is built from."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import torch

from cutlayer.accounting import Entry
from cutlayer.attacks import REGISTRY as ATTACKS
from cutlayer.attacks.label.base import Target
from cutlayer.audit import Auditor, Cell, LeakFigure
from cutlayer.config import Job
from cutlayer.protections import Protection
from cutlayer.protections.base import Evidence
from cutlayer.training.run_ledger import chain_of, ledger_of
from cutlayer.training.together import Trained
from cutlayer.version import __version__


def run_facts(job: Job, trained: Trained, threads: int, folder: str, *, reproducible: bool) -> dict[str, Any]:
    """The `run` section."""
    active = trained.active
    return {
        "id": job.digest()[:12],
        "name": job.name,
        "created": (datetime.now(UTC) - timedelta(seconds=trained.seconds)).isoformat(timespec="seconds"),
        "cutlayer": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "threads": threads,
        "seed": job.train.seed,
        "seconds": trained.seconds,
        "epochs_run": active.epochs,
        "epochs_planned": job.train.epochs,
        "stopped_early": active.stopped_early,
        "kept": "best" if job.keeps_best else "last",
        "kept_epoch": active.kept_epoch + 1,
        "reproducible_noise": reproducible,
        "job_digest": job.digest(),
        "folder": folder,
    }


def data_facts(trained: Trained) -> dict[str, Any]:
    """The `task` and `data` sections."""
    active = trained.active
    task, split = active.task, active.split
    sizes = {"train": len(split.train), "validation": len(split.validation), "test": len(split.test)}
    return {
        "task": {"kind": task.kind, "classes": list(task.classes), "positive_share": active.positive_share},
        "data": {"common": sum(sizes.values()), **sizes},
    }


def party_facts(job: Job, trained: Trained) -> list[dict[str, Any]]:
    """The `parties` section."""
    facts = []
    for name, party in job.parties.items():
        outcome = trained.active if party.role == "active" else trained.passives.get(name)
        sent, received = trained.traffic[name]
        facts.append(
            {
                "name": name,
                "role": party.role,
                "rows_own": trained.rows_own[name],
                "numeric": outcome.numeric if outcome else None,
                "categorical": outcome.categorical if outcome else None,
                "width": trained.active.widths.get(name),
                "parameters": outcome.parameters if outcome else None,
                "released_once": name in job.passives and job.train.releases_once(name),
                "bytes_sent": sent,
                "bytes_received": received,
            }
        )
    return facts


def protection_facts(job: Job, evidence: Iterable[Evidence]) -> list[dict[str, Any]]:
    """The `protections` section: what each did, and what is guaranteed."""
    owned = {(name, one.name): one for name in job.parties for one in chain_of(job, name).protections}
    entries = {(entry.party, entry.protection): entry for entry in ledger_of(job).entries}
    return [_protection(item, owned.get(key := (item.party, item.protection)), entries.get(key)) for item in evidence]


def _protection(item: Evidence, protection: Protection[Any] | None, entry: Entry | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": item.protection,
        "party": item.party,
        "unit": item.unit,
        "covered": item.covered,
        "sent": item.sent,
        "changed": item.changed,
        "kinds": dict(item.kinds),
        "metrics": dict(item.metrics),
    }
    if protection is None or entry is None:
        told = f"none that this party can check: {item.party} states its own evidence and keeps its settings to itself"
        return {**facts, "protects": "features", "reference": "", "settings": {}, "formal": False, "statement": told}
    return {
        **facts,
        "protects": entry.protects,
        "reference": protection.reference,
        "settings": protection.settings.model_dump(mode="json"),
        "formal": entry.formal,
        "statement": entry.statement,
    }


def audit_cells(auditor: Auditor) -> list[dict[str, Any]]:
    """Every cell of the matrix at its worst epoch with its interval, and every layer at its worst epoch."""
    return [_cell(auditor, cell) for cell in sorted(auditor.series)]


def _cell(auditor: Auditor, cell: Cell) -> dict[str, Any]:
    series = auditor.series[cell]
    low, high = auditor.interval(cell) if cell.target is not Target.LAYER else (math.nan, math.nan)
    worst = asdict(series.worst)
    return {
        "party": cell.party,
        "message": str(cell.target),
        "attack": cell.attack,
        "layer": cell.layer,
        "index": cell.place,
        "leak": series.worst.value,
        "low": low,
        "high": high,
        "epoch": series.worst_epoch + 1,
        "epochs_seen": len(series.leaks),
        "first_epoch_leak": series.leaks[min(series.leaks)].value,
        "last_epoch_leak": series.leaks[max(series.leaks)].value,
        "knowledge": sorted(ATTACKS[cell.attack].needs),
        **worst,
    }


def leak_figures(cells: Iterable[Mapping[str, Any]]) -> list[LeakFigure]:
    """The cells about messages (not layers), as findings and gates read them."""
    return [
        LeakFigure(
            label=f"{cell['party']}/{cell['message']}/{cell['attack']}",
            attack=cell["attack"],
            value=_number(cell["leak"]),
            low=_number(cell["low"]),
            high=_number(cell["high"]),
            positives=cell["positives"],
            rows=cell["rows"],
        )
        for cell in cells
        if cell["message"] != Target.LAYER
    ]


def _number(value: float | None) -> float:
    return math.nan if value is None else value
