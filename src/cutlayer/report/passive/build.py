"""Builds the report of a passive party from the files of its own run folder."""

from __future__ import annotations

from pathlib import Path

from cutlayer.accounting import Ledger
from cutlayer.attacks import resolve
from cutlayer.config.load import load_closed_job
from cutlayer.data.encoding import Encoder
from cutlayer.errors import RunFolderError
from cutlayer.report.carried import carried_of
from cutlayer.results.audit import PassiveAudit
from cutlayer.results.passive import PassiveReport, PassiveRun
from cutlayer.results.privacy_card import PartyColumns
from cutlayer.training.file_digests import compare_files
from cutlayer.training.folder import OUTCOME_FILE, RunFolder


def build_passive(path: Path) -> PassiveReport:
    """Put together what a passive party has of a run; no table is opened: the folder may come from anybody.

    Raises:
        RunFolderError: The run has not ended, or a file of it is damaged.
        ConfigError: The job in the folder is none.
    """
    folder = RunFolder.open(path)
    job = load_closed_job(path / "job.yaml")
    run = PassiveRun.read(path / OUTCOME_FILE)
    if run.party not in job.passives:
        wanted = f"a passive party of the job ({', '.join(job.passives)}) in {path / OUTCOME_FILE}"
        raise RunFolderError.expected(wanted, ascii(run.party[:80]), PassiveRun.remedy)
    files = compare_files(path)
    audit = PassiveAudit.read(path / "audit.json")
    encoder = folder.data(run.party) / "encoder.json"
    used = Encoder.from_json(encoder.read_bytes(), str(encoder)).names if encoder.exists() else None
    catalogue = job.parties[run.party].audit.catalogue
    return PassiveReport(
        **dict(run),
        features=audit.features,
        skipped=audit.skipped,
        guarantees=audit.guarantees,
        findings=(*(files.findings if files else ()), *audit.findings),
        files=files,
        folder=str(path),
        asked=tuple(attack.name for attack in resolve(catalogue, job.task, "passive").features),
        ledger=Ledger.from_json(folder.read_json("ledger.json")),
        columns=PartyColumns(party=run.party, used=used, available=None, rows=run.rows.table),
        carried=carried_of(folder, (run.party,)),
    )
