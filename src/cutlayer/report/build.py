"""Builds the report of a finished run from the files in its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cutlayer.config import validated
from cutlayer.errors import RunFolderError
from cutlayer.jobs.execute import THIS_RUN, compared_folder
from cutlayer.results.leaks import LeakResult
from cutlayer.results.report import Report
from cutlayer.training.folder import RunFolder


def build(path: Path) -> Report:
    """Put together summary, history, audit and job of a run.

    Raises:
        RunFolderError: the run has not ended, or a file of it is damaged.
    """
    folder = RunFolder.open(path)
    facts, audit = folder.read_json("summary.json"), folder.read_json("audit.json")
    try:
        raw = _raw(folder, facts, audit)
    except (KeyError, TypeError, AttributeError) as damage:
        files = f"{path / 'summary.json'} or {path / 'audit.json'}"
        raise RunFolderError(f"{files} is damaged ({type(damage).__name__}: {damage}); run the job again") from None
    return validated(Report, raw, str(path))


def _raw(folder: RunFolder, facts: Mapping[str, Any], audit: Mapping[str, Any]) -> dict[str, Any]:
    runs: Mapping[str, Any] = audit["runs"]
    return {
        **facts,
        "run": {**facts["run"], "folder": str(folder.path)},
        "history": [line for name in runs for line in _history(folder, name)],
        "leaks": [leak for name, found in runs.items() for leak in _leaks(name, found)],
        "layers": [layer for name, found in runs.items() for layer in _layers(name, found, facts)],
        "completions": audit["completions"],
        "features": audit.get("features", []),
        "guarantees": audit.get("guarantees", []),
        "gates": audit["gates"],
        "findings": audit["findings"],
        "limits": [
            f"{name}: {label}: {why}" for name, found in runs.items() for label, why in found["skipped"].items()
        ],
        "job": (folder.path / "job.yaml").read_text(encoding="utf-8"),
    }


def _history(folder: RunFolder, name: str) -> Iterator[dict[str, Any]]:
    own = folder if name == THIS_RUN else RunFolder(compared_folder(folder, name))
    for line in own.history():
        kept = {key: line[key] for key in ("loss", "seconds", "rows_per_second", "metrics", "leak")}
        yield {"run": name, "epoch": line["epoch"] + 1, **kept}


def _leaks(name: str, found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for cell in found["cells"]:
        if cell["message"] != "layer" and cell["leak"] is not None:
            kept = {key: value for key, value in cell.items() if key in LeakResult.model_fields}
            yield {"run": name, "protections": found["protections"], **kept}


def _layers(name: str, found: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    roles = {party["name"]: party["role"] for party in facts["parties"]}
    order: dict[str, int] = {}
    cells = [cell for cell in found["cells"] if cell["message"] == "layer" and cell["leak"] is not None]
    for cell in sorted(cells, key=lambda cell: cell["index"]):
        place = order[cell["party"]] = order.get(cell["party"], -1) + 1
        yield {
            "run": name,
            "party": cell["party"],
            "side": roles[cell["party"]],
            "layer": cell["layer"],
            "index": place,
            "leak": cell["leak"],
            "epoch": cell["epoch"],
        }
