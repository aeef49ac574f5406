"""The report as one JSON document: frozen records, written once, read by the page, the terminal and other programs."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from cutlayer.config import FrozenModel
from cutlayer.durable import write_whole
from cutlayer.errors import RunFolderError
from cutlayer.results.completion import CompletionResult
from cutlayer.results.departure import DepartureResult
from cutlayer.results.features import FeatureResult
from cutlayer.results.finding import Finding, Gate
from cutlayer.results.guarantee import GuaranteeTest
from cutlayer.results.leaks import LayerLeak, LeakResult
from cutlayer.results.ledger import LedgerResult
from cutlayer.results.protection import ProtectionResult
from cutlayer.results.run import DataInfo, EpochResult, PartyInfo, RunInfo, TaskInfo
from cutlayer.results.utility import UtilityResult

SCHEMA_VERSION = 1
THIS_RUN = "this run"
UNDEFENDED = "undefended"
CHANCE = "chance"


class Report(FrozenModel):
    """Everything a reviewer reads about one run.

    Attributes:
        history: all epochs of this run and of the runs it is compared with.
        leaks: the cells of the matrix protection x attack x message.
        guarantees: those that were tested with canaries.
        limits: which attacks were not possible, and why.
        job: the job as run, YAML.
    """

    schema_version: int = SCHEMA_VERSION
    run: RunInfo
    task: TaskInfo
    data: DataInfo
    parties: tuple[PartyInfo, ...]
    utility: UtilityResult
    departures: DepartureResult = DepartureResult()
    history: tuple[EpochResult, ...] = ()
    leaks: tuple[LeakResult, ...] = ()
    layers: tuple[LayerLeak, ...] = ()
    completions: tuple[CompletionResult, ...] = ()
    features: tuple[FeatureResult, ...] = ()
    protections: tuple[ProtectionResult, ...] = ()
    ledger: LedgerResult = LedgerResult()
    guarantees: tuple[GuaranteeTest, ...] = ()
    gates: tuple[Gate, ...] = ()
    findings: tuple[Finding, ...] = ()
    limits: tuple[str, ...] = ()
    job: str = ""

    @classmethod
    def read(cls, path: Path | str) -> Report:
        """Read `report.json`.

        Raises:
            RunFolderError: there is no such file, it is no JSON, or it is no report of this version.
        """
        path = Path(path)
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except OSError as failure:
            raise RunFolderError.expected(f"a report at {path}", failure.strerror or failure) from None
        except (ValueError, RecursionError) as failure:
            raise RunFolderError.expected(f"JSON in {path}", failure, "write the report again") from None
        version = raw.get("schema_version", SCHEMA_VERSION) if isinstance(raw, dict) else None
        if version != SCHEMA_VERSION:
            raise RunFolderError.expected(f"schema_version {SCHEMA_VERSION} in {path}", version)
        try:
            return cls.model_validate(raw)
        except ValidationError as failure:
            fault = failure.errors(include_url=False)[0]
            place = ".".join(str(part) for part in fault["loc"])
            raise RunFolderError.expected(f"a report in {path}", f"{place}: {fault['msg']}") from None

    def write(self, path: Path | str) -> Path:
        """Write `report.json` whole or not at all, readable by others since it is made to be passed on."""
        path = Path(path)
        write_whole(path, self.model_dump_json(indent=1) + "\n", mode=0o644)
        return path
