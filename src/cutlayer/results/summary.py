"""`summary.json`: what a training was, how good its model is, and what its protections did."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from cutlayer.accounting import Ledger
from cutlayer.config.guard import Alarm
from cutlayer.models.top_estimators.result import PartnerPilot
from cutlayer.results.departure import DepartureResult
from cutlayer.results.document import Document
from cutlayer.results.protection import ProtectionResult
from cutlayer.results.quality import Quality
from cutlayer.results.run import DataInfo, PartyInfo, RunInfo, TaskInfo
from cutlayer.results.utility import UtilityResult


class Summary(Document):
    """Results of a run without its audit.

    Attributes:
        run: Settings and schedule of the run.
        task: Prediction task.
        data: The common rows and their split.
        parties: All parties in the job's order.
        utility: Held-out metrics of this run and its references.
        quality: Ranking, calibration and errors of this run's model.
        departures: Held-out metrics while parties are absent.
        protections: Result of each protection.
        ledger: Formal privacy cost.
        alarms: What the parties' guards saw, in the order of the steps.
        alternatives: Totals of the ledger of each alternative, in words, by name.
        pilot: What each partner would add at full size, of a pilot; else empty.
    """

    run: RunInfo
    task: TaskInfo
    data: DataInfo
    parties: tuple[PartyInfo, ...]
    utility: UtilityResult
    quality: Quality = Quality()
    departures: DepartureResult = DepartureResult()
    protections: tuple[ProtectionResult, ...] = ()
    ledger: Ledger = Ledger(())
    alarms: tuple[Alarm, ...] = ()
    alternatives: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    pilot: tuple[PartnerPilot, ...] = ()

    @property
    def active(self) -> PartyInfo:
        """The active party."""
        return next(party for party in self.parties if party.role == "active")

    @property
    def passives(self) -> list[str]:
        """Names of the passive parties in the job's order."""
        return [party.name for party in self.parties if party.role == "passive"]
