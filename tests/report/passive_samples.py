"""Reports of passive parties with chosen figures."""

from __future__ import annotations

from typing import Any

from cutlayer.accounting import Ledger
from cutlayer.alignment.disclosure import AlignmentRecord, LinkIds, TableSize
from cutlayer.attacks.knowledge import Need
from cutlayer.results.features import ColumnValue, FeatureResult
from cutlayer.results.passive import MessageCount, PartReleases, PassiveReport, PassiveRun, RowsOfTable
from cutlayer.results.privacy_card import PartyColumns

ALIGNED = AlignmentRecord(
    method="psi",
    rows="common",
    active="bank",
    passives=("telco",),
    links=(
        LinkIds(
            party="telco",
            active=TableSize(rows=None, stated=200),
            passive=TableSize(rows=230, stated=230),
            common=180,
            run=180,
        ),
    ),
)
_RUN: dict[str, Any] = {
    "party": "telco",
    "active": "bank",
    "passives": ("telco",),
    "name": "loans",
    "job_digest": "5f2b9c0e8d7a41f6b3c2d1e0f9a8b7c6",
    "training": "7c1e",
    "created": "2026-03-01T14:05:09+00:00",
    "cutlayer": "0.1.0",
    "device": "cpu",
    "epochs": 10,
    "parameters": 0,
    "numeric": 3,
    "categorical": 1,
    "rows": RowsOfTable(table=230, run=180),
    "releases": (PartReleases(part="training", rows=140, releases=1), PartReleases(part="test", rows=40, releases=1)),
    "messages": (
        MessageCount(kind="release", sent=2, rows=180, bytes_sent=5_760, received=0, bytes_received=0),
        MessageCount(kind="request", sent=0, rows=0, bytes_sent=0, received=2, bytes_received=0),
    ),
    "label_free": True,
    "sees_end": False,
    "split_sent": False,
    "alignment": ALIGNED,
}


def passive_run(**changes: Any) -> PassiveRun:
    """`outcome.json` of a party that released its rows once."""
    return PassiveRun(**_RUN | changes)


def passive_report(**changes: Any) -> PassiveReport:
    """A report of that party, whose columns nothing protects and no attack has read."""
    rest = {
        "folder": "runs/loans-telco",
        "ledger": Ledger(()),
        "columns": PartyColumns(party="telco", used=("calls", "minutes"), available=None, rows=230),
    }
    return PassiveReport(**_RUN | rest | changes)


def exact(read: int, columns: int, knowledge: tuple[Need, ...] = (), **changes: Any) -> FeatureResult:
    """An attack that reads some columns exactly."""
    values = tuple(
        ColumnValue(column=f"column {index}", value=float(index < read), baseline=0.1) for index in range(columns)
    )
    about: dict[str, Any] = {
        "run": "this run",
        "party": "telco",
        "attack": "lattice",
        "release": "single release",
        "known": 0,
        "rows": 180,
        "metric": "exact",
        "value": read / columns,
        "low": read / columns,
        "high": 1.0,
        "baseline": 0.1,
        "metrics": {"columns_read": float(read), "columns": float(columns)},
        "columns": values,
        "knowledge": knowledge,
    }
    return FeatureResult(**about | changes)


def rebuilt(value: float, known: int = 512, knowledge: tuple[Need, ...] = (Need.AUXILIARY_FEATURES,)) -> FeatureResult:
    """An inversion with some known rows."""
    r2 = {"metric": "r2", "value": value, "low": value - 0.01, "high": value, "baseline": 0.0}
    about = {"run": "this run", "party": "telco", "attack": "inversion", "release": "single release", "rows": 180}
    return FeatureResult(**about, **r2, known=known, knowledge=knowledge)
