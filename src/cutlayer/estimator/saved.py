"""A fitted estimator in a folder: what it needs of its run, and what the run does not say of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cutlayer.accounting import MARKER, log_of_run
from cutlayer.config import Job
from cutlayer.errors import RunFolderError
from cutlayer.estimator.job import KEYS
from cutlayer.estimator.privacy import config_of
from cutlayer.parties.agreement.split import SPLIT_FILE
from cutlayer.results.document import Document
from cutlayer.storage.durable import check_new, locked, make_folder, write_whole
from cutlayer.training.folder import RunFolder
from cutlayer.training.model_record import ModelRecord

_ESTIMATOR = "estimator.json"
_FILES: tuple[str, ...] = ("job.yaml", "summary.json", "audit.json", "ledger.json", "history.jsonl", _ESTIMATOR)
_FILES += ("predictions.parquet", "report.json", "report.html")
_PARTY_FILES = ("model.json", SPLIT_FILE, "noise.key", "keys.fingerprint")


class EstimatorRecord(Document):
    """Record of an estimator's fit besides its run.

    Attributes:
        columns: Columns of each party where one table was divided; `None` for tables by party. A slice is a list of its
            start, stop and step, under the key `slice`.
        names: Names of the columns of that table; `None` where they are numbered.
        count: Number of columns of that table.
    """

    title: ClassVar[str] = "the record of an estimator"

    columns: Mapping[str, list[int | str] | str | Mapping[str, list[int | None]]] | None = None
    names: tuple[str, ...] | None = None
    count: int | None = None


def write_record(folder: RunFolder, columns: Mapping[str, Any] | None, names: Any, count: int | None) -> None:
    """Write the record of a fit into its run folder."""
    plain = None if columns is None else {name: _plain(wanted) for name, wanted in columns.items()}
    named = None if names is None else tuple(map(str, names))
    EstimatorRecord(columns=plain, names=named, count=count).write(folder.path / _ESTIMATOR)


def read_record(folder: RunFolder) -> EstimatorRecord:
    """The record of a fit; that of tables by party where a run was not made by an estimator."""
    path = folder.path / _ESTIMATOR
    return EstimatorRecord.read(path) if path.exists() else EstimatorRecord()


def columns_of(record: EstimatorRecord) -> dict[str, Any] | None:
    """The columns of each party as an estimator takes them."""
    if record.columns is None:
        return None
    return {name: slice(*each["slice"]) if isinstance(each, Mapping) else each for name, each in record.columns.items()}


def _plain(wanted: Any) -> Any:
    if isinstance(wanted, str):
        return wanted
    if isinstance(wanted, slice):
        return {"slice": [wanted.start, wanted.stop, wanted.step]}
    return [column if isinstance(column, str) else int(column) for column in wanted]


def parameters_of(job: Job) -> dict[str, Any]:
    """Parameters of an estimator whose fit would be this job."""
    content = job.model_dump()
    parties = job.parties.items()
    features = {name: party.features.model_dump(exclude_defaults=True) for name, party in parties}
    return {argument: _at(content, key) for argument, key in KEYS.items()} | {
        "active": job.active,
        "features": {name: settings for name, settings in features.items() if settings} or None,
        "protections": {
            name: [config_of(kind)(**(options or {})) for kind, options in party.privacy.items()]
            for name, party in parties
            if party.privacy
        },
        "attacks": job.parties[job.active].audit.attacks,
        "optimizer": job.train.optimizer.model_dump(exclude_defaults=True, exclude={"lr"}) or None,
        "bottom_fit": {name: dict(party.fit) for name, party in parties if party.fit is not None} or None,
        **({"task": job.target if job.target != "value" else "regression"} if job.task == "regression" else {}),
        "coverage": job.parties[job.active].coverage,
        "predictions": max((job.parties[name].serving for name in job.passives), default=0),
    }


def _at(content: Any, key: str) -> Any:
    """The value at a dotted key; `None` where a section above it is."""
    for part in key.split("."):
        content = None if content is None else content[part]
    return content


def classes_of(record: ModelRecord) -> npt.NDArray[Any]:
    """Classes of a trained model, of the type of its labels."""
    if record.task is None:
        raise RunFolderError.expected("the record of the active party", f"that of {record.party}")
    classes, kind = record.task.task.classes, record.task.labels
    if kind == "integer":
        return np.array([int(name) for name in classes])
    if kind == "number":
        return np.array([float(name) for name in classes])
    if kind == "boolean":
        return np.array([name == "true" for name in classes])
    return np.array(classes)


def save(job: Job, source: RunFolder, target: Path, temporary: Path | None) -> None:
    """Copy what predictions need out of a run folder; transcripts, encoded columns and comparisons stay behind.

    The count of releases is not copied: there is one log, and both folders name it.

    Args:
        job: Job of the run.
        source: Folder of the run.
        target: New or empty folder.
        temporary: Folder that will be removed with the estimator, if there is one.

    Raises:
        RunFolderError: The target is not empty, or cannot be made.
    """
    check_new(target)
    make_folder(target)
    for party in job.parties:
        party_folder = source.path / "checkpoint" / party
        copied = target / "checkpoint" / party
        make_folder(copied)
        if (party_folder / MARKER).exists() or (party_folder / "releases").exists():
            _share_log(party_folder, copied, temporary)
        _copy(party_folder, copied, (*_PARTY_FILES, f"{_final(job, party_folder)}.safetensors"))
        if source.data(party).exists():
            make_folder(target / "data" / party)
            _copy(source.data(party), target / "data" / party, ("encoder.json",))
    _copy(source.path, target, _FILES)


def _final(job: Job, party_folder: Path) -> str:
    """Name of the checkpoint that the run ended with."""
    return "best" if job.keeps_best else max(path.stem for path in party_folder.glob("epoch-*.safetensors"))


def _copy(source: Path, target: Path, names: Sequence[str]) -> None:
    for name in names:
        if (source / name).exists():
            shutil.copy2(source / name, target / name)


def _share_log(party_folder: Path, copied: Path, temporary: Path | None) -> None:
    """Have both folders name one release log: two would each allow the planned number of predictions.

    A log in a temporary folder is moved into the copy.
    """
    log = shared = log_of_run(party_folder)
    if temporary is not None and log.resolve().is_relative_to(temporary.resolve()):
        shared = copied.resolve() / "releases" / log.name
        make_folder(shared.parent)
        with locked(log.with_suffix(".lock"), "saving a model"):
            shutil.copy2(log, shared)
            write_whole(party_folder / MARKER, json.dumps({"log": str(shared)}) + "\n")
            log.unlink()
    write_whole(copied / MARKER, json.dumps({"log": str(shared.resolve())}) + "\n")
