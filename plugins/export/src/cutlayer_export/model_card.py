"""The model card of one party's part of a trained model, as Markdown.

The card goes with the part, so it holds what its party may know. A passive party's card has no class name, no leak of
labels, and no protection of the active party: a defence is not shown to whom it defends against. An active party's card
has no column of any other party.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cutlayer.attacks.knowledge import condition
from cutlayer.config import Job
from cutlayer.errors import RunFolderError
from cutlayer.report.html import environment
from cutlayer.report.markdown import escape_markdown
from cutlayer.report.rounding import metric
from cutlayer.report.sections.protections import REPRODUCIBLE_NOT_PRIVATE
from cutlayer.results.audit import UNMEASURED_BY_PASSIVE, Audit, PassiveAudit
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import LeakResult
from cutlayer.results.metric_names import name_of
from cutlayer.results.run import RunKind
from cutlayer.results.summary import Summary
from cutlayer.serving.models import PartyModel
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import noise_key_path
from cutlayer.version import __version__
from cutlayer_export.part import CARD, ENCODER, WEIGHTS, Architecture, ExportResult


def model_card(
    job: Job, folder: RunFolder, model: PartyModel, architecture: Architecture, exported: ExportResult
) -> str:
    """The card of an exported part.

    Args:
        job: Job of the run.
        folder: Folder of the run.
        model: The party's part.
        architecture: Content of its `architecture.json`.
        exported: The files that were written.
    """
    party = architecture.party
    active = architecture.role == "active"
    summary = folder.summary if folder.has_ended else None
    audit = _audit(folder)
    completions = audit.completions if isinstance(audit, Audit) else ()
    # The folder of a passive party has no summary; a key of the run's own is in it.
    supplied = not noise_key_path(folder.path, party).exists() if summary is None else summary.run.reproducible_noise
    return (
        environment("cutlayer_export")
        .get_template("model_card.md.j2")
        .render(
            card=architecture,
            job=job,
            version=__version__,
            exported=exported,
            columns=None if model.encoder is None else model.encoder.columns,
            rows=model.record.rows,
            summary=summary,
            metrics=_metrics(summary, active=active),
            leaks=[*_leaks(audit, party, active=active)],
            entries=_entries(folder, party),
            supplied=supplied,
            reproducible=REPRODUCIBLE_NOT_PRIVATE,
            active=active,
            completions=[each for each in completions if (each.party, each.run) == (party, RunKind.THIS_RUN)],
            encoder=ENCODER,
            weights=WEIGHTS,
        )
        .rstrip()
        + "\n"
    )


def _metrics(summary: Summary | None, *, active: bool) -> dict[str, float | None]:
    """Metrics of the whole model; at a passive party the headline metric alone."""
    row = summary.utility.row(RunKind.THIS_RUN) if summary is not None else None
    if summary is None or row is None:
        return {}
    return dict(row.metrics) if active else {summary.utility.metric: row.metrics.get(summary.utility.metric)}


def _leaks(audit: Audit | PassiveAudit | None, party: str, *, active: bool) -> Iterator[str]:
    if audit is None:
        return
    if active and isinstance(audit, Audit):
        run = audit.runs.get(RunKind.THIS_RUN)
        for leak in _worst(run.leaks if run is not None else ()):
            link = (
                f"of {escape_markdown(leak.attacker)}"
                if leak.together
                else f"on the link of {escape_markdown(leak.party)}"
            )
            where = f"labels, from {leak.message}s {link}"
            needed = condition(leak.knowledge)
            how = f"{leak.attack}, with {needed}" if needed else leak.attack
            yield f"{where}: {metric(leak.leak)} ({how}; 0.5 is chance)"
        yield from (
            f"{finding.code} {escape_markdown(finding.title)}: {escape_markdown(finding.detail)}"
            for finding in audit.findings
            # About no column and no protection of a passive party, which an audit of all parties here may name.
            if finding.owner in ("", party)
        )
    elif not active:
        yield from (_feature(result) for result in audit.features if _is_own(result, party))
        yield UNMEASURED_BY_PASSIVE


def _worst(leaks: tuple[LeakResult, ...]) -> list[LeakResult]:
    """The largest leak of each party, and of all of them together."""
    worst: dict[str, LeakResult] = {}
    for leak in leaks:
        if leak.party not in worst or leak.leak > worst[leak.party].leak:
            worst[leak.party] = leak
    return [*worst.values()]


def _is_own(result: FeatureResult, party: str) -> bool:
    return (result.party, result.run) == (party, RunKind.THIS_RUN)


def _feature(result: FeatureResult) -> str:
    column = f" of {escape_markdown(result.column)}" if result.column else ""
    value = f"{name_of(result.metric)} {metric(result.value)}, without embeddings {metric(result.baseline)}"
    return f"features{column}, by {result.attack} ({escape_markdown(result.release)}): {value}"


def _entries(folder: RunFolder, party: str) -> list[Any] | None:
    """The party's own entries of the ledger, since those of its peers are theirs to show; `None` without a ledger."""
    try:
        entries: Any = folder.read_json("ledger.json")["entries"]
        return [entry for entry in entries if entry.get("party") == party]
    except (RunFolderError, KeyError, TypeError):
        return None


def write_card(text: str, exported: ExportResult) -> None:
    """Write the card next to the other files."""
    path = exported.folder / CARD
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


def _audit(folder: RunFolder) -> Audit | PassiveAudit | None:
    try:
        return PassiveAudit.read(folder.path / "audit.json") if folder.is_passive else folder.audit
    except RunFolderError:
        return None
