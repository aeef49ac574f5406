"""Builds the report of a finished run from the files in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cutlayer.config.load import load_closed_job
from cutlayer.errors import RunFolderError
from cutlayer.report.carried import carried_of
from cutlayer.report.matrix import matrix_of
from cutlayer.report.run_columns import columns_of
from cutlayer.results.audit import Conclusions
from cutlayer.results.report import FurtherLabel, Report
from cutlayer.results.run import EpochResult, RunKind
from cutlayer.training.file_digests import compare_files
from cutlayer.training.folder import RunFolder


def build_report(path: Path) -> Report:
    """Put together summary, history, audit and job of a run.

    Raises:
        RunFolderError: The run has not ended, or a file of it is damaged.
    """
    folder = RunFolder.open(path)
    summary, audit, files = folder.summary, folder.audit, compare_files(path)
    return Report(
        **dict(summary.model_copy(update={"run": summary.run.model_copy(update={"folder": str(path)})})),
        history=tuple(epoch for label in audit.runs for epoch in _history(folder, label)),
        leaks=tuple(leak for run in audit.runs.values() for leak in run.leaks),
        baselines=audit.runs[RunKind.THIS_RUN].baselines,
        curves=audit.runs[RunKind.THIS_RUN].curves,
        layers=tuple(layer for run in audit.runs.values() for layer in run.layers),
        **{name: getattr(audit, name) for name in Conclusions.model_fields if name != "findings"},
        findings=(*(files.findings if files else ()), *audit.findings),
        files=files,
        limits=tuple(
            f"{label}: {attack.label}: {attack.reason}"
            for label, run in audit.runs.items()
            for attack in (*run.skipped, *run.unneeded)
        ),
        columns=tuple(columns_of(folder, summary.parties)),
        carried=carried_of(folder, [party.name for party in summary.parties]),
        further_labels=tuple(_further_labels(folder)),
        job=_job(folder.path / "job.yaml"),
    )


def _further_labels(folder: RunFolder) -> Iterator[FurtherLabel]:
    """What the reports of the further labels of a run state, of those whose model is trained."""
    if not (folder.path / "labels").is_dir():  # then the job is shown as the text that it is, also if it is damaged
        return
    owners = load_closed_job(folder.path / "job.yaml").parties.values()
    for label in (label for owner in owners for label in owner.further_labels):
        if not (place := folder.of_label(label)).has_ended:
            continue
        report = build_report(place.path)
        utility, worst = report.utility, matrix_of(report).worst(RunKind.THIS_RUN)
        own = utility.row(RunKind.THIS_RUN)
        yield FurtherLabel(
            label=label,
            value=own and own.metrics.get(utility.metric),
            low=own and own.low,
            high=own and own.high,
            gain=utility.gain,
            leak=worst and worst.leak,
            failed=report.failed,
        )


def _job(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RunFolderError.expected(f"text in UTF-8 in {path}", "other bytes", "run the job again") from None


def _history(folder: RunFolder, label: str) -> Iterator[EpochResult]:
    fields = ("loss", "seconds", "rows_per_second", "metrics", "leak")
    run_folder = folder.of_run(label)
    for line in run_folder.history():
        try:
            yield EpochResult(run=label, epoch=line["epoch"] + 1, **{key: line[key] for key in fields})
        except (KeyError, ValueError) as damage:
            path = run_folder.path / "history.jsonl"
            raise RunFolderError(f"{path} is damaged ({damage}); run the job again") from None
