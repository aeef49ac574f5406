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
from cutlayer.report.markdown import escaped
from cutlayer.report.rounding import metric
from cutlayer.report.sections.protections import REPRODUCIBLE
from cutlayer.results.audit import UNMEASURED_BY_PASSIVE, Audit, PassiveAudit
from cutlayer.results.completion import best
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import LeakResult
from cutlayer.results.metric_names import name_of
from cutlayer.results.run import RunKind
from cutlayer.results.summary import Summary
from cutlayer.serving.export import CARD, ENCODER, WEIGHTS, Architecture, ExportResult
from cutlayer.serving.models import PartyModel
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import noise_key_path
from cutlayer.training.model_record import TrainedTask
from cutlayer.version import __version__


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
    party, active = architecture.party, architecture.role == "active"
    summary = folder.summary if folder.ended else None
    audit = _audit(folder)
    title = f"# {escaped(party)}'s part of {escaped(job.name)}"
    sections = {
        "": _description(architecture, job),
        "Files": _files(exported),
        "Data": _data(model, summary),
        "Metrics": _metrics(summary, active=active),
        "Leaks found": _leaks(audit, party, active=active),
        "Ledger": _ledger(folder, party, summary),
        "What this part can do alone": _alone(summary, audit, party, active=active),
        "Handle with care": _care(party, model, active=active),
    }
    written = [f"## {name}\n\n" + "\n".join(lines) if name else "\n".join(lines) for name, lines in _filled(sections)]
    return "\n\n".join([title, *written]) + "\n"


def _filled(sections: dict[str, Iterator[str]]) -> Iterator[tuple[str, list[str]]]:
    for name, lines in sections.items():
        listed = [*lines]
        yield name, listed or ["Not recorded."]


def _description(architecture: Architecture, job: Job) -> Iterator[str]:
    parts = [
        f"a bottom model ({escaped(str(architecture.bottom.section.get('kind')))}) that gives embeddings of "
        f"{architecture.bottom.width} columns"
        if architecture.bottom
        else "",
        f"the top model ({escaped(str(architecture.top.section.get('kind')))})" if architecture.top else "",
    ]
    yield f"The {architecture.role} party holds {' and '.join(filter(None, parts))}."
    digest = f"job digest `{architecture.job}`, task {job.task}, cutlayer {__version__}"
    yield f"Training `{architecture.training}`, {digest}."
    if architecture.top:
        yield _outputs(architecture.top.task)


def _outputs(task: TrainedTask) -> str:
    """How to read what the exported top model returns."""
    if task.kind == "regression":
        return f"The top model returns z; the predicted value is {task.center:.9g} + {task.scale:.9g} z."
    names = [escaped(name) for name in task.classes]
    if task.kind == "multiclass":
        return f"The top model returns logits of {', '.join(names)}, in this order; their softmax is the probability."
    negative, greater = names
    reading = f"The top model returns one logit z; 1 / (1 + exp(-z)) is the probability of {greater}"
    if task.positive:
        return f"{reading}, the positive class."
    return f"{reading}. The positive class is {negative}, of probability 1 / (1 + exp(z)), as in `cutlayer predict`."


def _files(exported: ExportResult) -> Iterator[str]:
    yield from (f"- `{name}`" for name in exported.files)
    yield from (f"- `{name}` was left out: {escaped(why)}" for name, why in exported.left_out.items())


def _data(model: PartyModel, summary: Summary | None) -> Iterator[str]:
    if model.encoder is not None:
        columns = model.encoder.columns
        yield f"- {len(columns.category_names)} categorical columns: {_listed(columns.category_names)}"
        yield f"- {len(columns.number_names)} numeric columns: {_listed(columns.number_names)}"
    yield f"- {model.record.rows:,} rows that all parties have"
    if summary is not None:
        data = summary.data
        yield f"- {data.train:,} rows trained, {data.validation:,} validated, {data.test:,} tested"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(escaped(name) for name in names) or "none"


def _metrics(summary: Summary | None, *, active: bool) -> Iterator[str]:
    """Metrics of the whole model; at a passive party the headline metric alone."""
    row = summary.utility.row(RunKind.THIS_RUN) if summary is not None else None
    if summary is None or row is None:
        return
    count, name = summary.data.reported
    shown = row.metrics if active else {summary.utility.metric: row.metrics.get(summary.utility.metric)}
    yield f"Of the whole model, with all parties, on {count:,} {name}:"
    yield ""
    yield from (f"- {escaped(name_of(key))} {metric(value)}" for key, value in shown.items())


def _leaks(audit: Audit | PassiveAudit | None, party: str, *, active: bool) -> Iterator[str]:
    if audit is None:
        return
    if active and isinstance(audit, Audit):
        run = audit.runs.get(RunKind.THIS_RUN)
        for leak in _worst(run.leaks if run is not None else ()):
            link = f"of {escaped(leak.attacker)}" if leak.together else f"on the link of {escaped(leak.party)}"
            where = f"labels, from {leak.message}s {link}"
            needed = condition(leak.knowledge)
            how = f"{leak.attack}, with {needed}" if needed else leak.attack
            yield f"- {where}: {metric(leak.leak)} ({how}; 0.5 is chance)"
        yield from (
            f"- {finding.code} {escaped(finding.title)}: {escaped(finding.detail)}"
            for finding in audit.findings
            # About no column and no protection of a passive party, which an audit of all parties here may name.
            if finding.owner in ("", party)
        )
    elif not active:
        yield from (_feature(result) for result in audit.features if _is_own(result, party))
        yield f"- {UNMEASURED_BY_PASSIVE}"


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
    column = f" of {escaped(result.column)}" if result.column else ""
    value = f"{name_of(result.metric)} {metric(result.value)}, without embeddings {metric(result.baseline)}"
    return f"- features{column}, by {result.attack} ({escaped(result.release)}): {value}"


def _ledger(folder: RunFolder, party: str, summary: Summary | None) -> Iterator[str]:
    """The party's own entries: those of its peers are theirs to show."""
    try:
        entries: Any = folder.read_json("ledger.json")["entries"]
    except (RunFolderError, KeyError, TypeError):
        return
    party_entries = [entry for entry in entries if entry.get("party") == party]
    if not party_entries:
        yield f"{escaped(party)} had no protection: nothing bounds what its messages reveal."
    yield from (f"- {escaped(str(entry['protection']))}: {escaped(str(entry['statement']))}" for entry in party_entries)
    # The folder of a passive party has no summary; a key of the run's own is in it.
    supplied = not noise_key_path(folder.path, party).exists() if summary is None else summary.run.reproducible_noise
    if party_entries and supplied:
        yield f"- {REPRODUCIBLE}"


def _alone(summary: Summary | None, audit: Audit | PassiveAudit | None, party: str, *, active: bool) -> Iterator[str]:
    if not active:
        yield "It gives embeddings. It predicts nothing without the top model, or labels to train a head with:"
        yield ""
        completions = audit.completions if isinstance(audit, Audit) else ()
        party_results = [result for result in completions if (result.party, result.run) == (party, RunKind.THIS_RUN)]
        for result in party_results:
            completed, scratch = best(result.variants), best(result.scratch)
            values = [metric(value.value if value else None) for value in (completed, scratch)]
            yield f"- {result.attack} with {result.labels:,} labels reaches {values[0]}, from scratch {values[1]}"
        if not party_results:
            yield "- what it reaches then was not measured (attacks `model_completion`, `active_model_completion`)"
        return
    rows = summary.departures.rows if summary is not None else ()
    yield "It predicts with whichever parties answer:"
    yield ""
    for row in rows:
        name = summary.utility.metric if summary is not None else ""
        absent = f"without {', '.join(map(escaped, row.absent))}" if row.absent else "with all parties"
        yield f"- {absent}: {name_of(name)} {metric(row.metrics.get(name))}"


def _care(party: str, model: PartyModel, *, active: bool) -> Iterator[str]:
    if model.encoder is not None:
        yield f"- `{ENCODER}` holds values of training rows (categories, means, ranges): for {escaped(party)} alone."
    yield f"- `{WEIGHTS}` was fitted on training rows, and may reveal some of them to a holder."
    if active:
        yield "- The class names and the scale of the targets in `architecture.json` come from labels."
    yield "- No protection acts on what these models compute: embeddings are as private as the columns they come from."


def write_card(text: str, exported: ExportResult) -> None:
    """Write the card next to the other files."""
    path = exported.folder / CARD
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


def _audit(folder: RunFolder) -> Audit | PassiveAudit | None:
    try:
        return PassiveAudit.read(folder.path / "audit.json") if folder.of_passive else folder.audit
    except RunFolderError:
        return None
