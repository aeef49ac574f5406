"""The jobs that a run is compared with: without some or all protections, alternatives, and the malicious run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cutlayer.attacks import resolve
from cutlayer.attacks.completion.base import OptimizerHook
from cutlayer.config import Job, near_miss
from cutlayer.config.job import BOTTOM, TOP, ChannelConfig
from cutlayer.config.party import LABEL_FREE, AuditConfig, GatesConfig
from cutlayer.config.phases import Phase, grades_rows
from cutlayer.errors import ConfigError
from cutlayer.results.run import RunId, RunKind
from cutlayer.training.malicious_runs import attacked_jobs

BRIEF_FOLLOWED_ROWS, BRIEF_EPOCH_STRIDE = 2048, 5
"""Rows that are followed at most in the training by steps that a single release is compared with, and the number of its
epochs of which one is recorded."""


def with_protections(job: Job, names: dict[str, set[str]]) -> Job:
    """The job with only the named protections of each party."""
    changes = {}
    for name, party in job.parties.items():
        chosen = {key: value for key, value in party.protections.items() if key in names.get(name, ())}
        changes[name] = {"privacy": chosen}
    return job.uncompared(changes)


def compared_jobs(job: Job) -> Iterator[tuple[RunId, Job]]:
    """The runs to train for comparison with this one, and their jobs."""
    protections = [(name, key) for name, party in job.parties.items() for key in party.protections]
    if "undefended" in job.compare and (protections or is_label_free(job)):
        yield RunId(RunKind.UNDEFENDED), undefended_job(job)
    if "uncompressed" in job.compare and job.channel.compress:
        yield RunId(RunKind.UNCOMPRESSED), job.uncompared(channel=ChannelConfig())
    if "each" in job.compare and len(protections) > 1:
        for party, key in protections:
            unique = [other for other, protection in protections if protection == key] == [party]
            run = RunId(RunKind.PROTECTION, () if unique else (party,), key)
            yield run, _with_one_protection(job, party, key)
    for name in job.alternatives:
        yield RunId(RunKind.ALTERNATIVE, (), name), alternative_job(job, name)
    if _optimizer_hooks(job):
        yield malicious_run(job), job.uncompared()
    yield from attacked_jobs(job)


def _with_one_protection(job: Job, party: str, key: str) -> Job:
    """The job with one protection, and with the draw of labels that partners are sent, without which they get none."""
    names = {party: {key}}
    if Phase.LABELS in job.phases:
        names[job.active] = {*names.get(job.active, ()), "label_dp"}
    return with_protections(job, names)


def compared_job(job: Job, label: str) -> Job:
    """The job of the run of this label; the job itself for its own."""
    return next((other for run, other in compared_jobs(job) if run.label == label), job)


def alternative_job(job: Job, name: str) -> Job:
    """The job with the protections and releases of one of its alternatives.

    Raises:
        ConfigError: The alternative names a party that the job does not have.
    """
    others = job.alternatives[name]
    for party in others:
        if party not in job.parties:
            raise ConfigError(f"alternatives.{name}.{party}: no such party{near_miss(party, list(job.parties))}")
    changes = {
        party: {"privacy": other.privacy} | ({} if other.fit is None else {"fit": other.fit})
        for party, other in others.items()
    }
    bottoms = {party: other.bottom for party, other in others.items() if other.bottom is not None}
    model = job.model
    if bottoms:
        every = {name: bottoms.get(name, model.bottom_of(name)) for name in job.parties}
        model = model.model_copy(update={"bottom": every})
    return job.uncompared(changes, model=model)


def undefended_job(job: Job) -> Job:
    """The job without protections.

    Where `label_free` is the condition, or partners release grades, releasing once is the defence: the baseline trains
    the same models end to end, every step with gradients, or models of kind `auto` in place of grades, so that the
    price of the condition and what it hides can be read off. Its messages are attacked briefly, by the quick attacks on
    few followed rows and epochs: what it leaks is seen as well, and is no claim of the job.
    """
    plain = with_protections(job, {})
    graded = [name for name in job.passives if grades_rows(job, name)]
    if not is_label_free(job) and not graded:
        return plain
    train = plain.train.model_copy(update={"release": "every_step"}).for_comparison()
    model = plain.model
    if job.fits_top:  # no step trains it, so that a network stands in its place
        model = model.model_copy(update={"top": TOP})
    if graded:  # no gradient trains a grade
        bottoms = {name: BOTTOM if name in graded else model.bottom_of(name) for name in job.parties}
        model = model.model_copy(update={"bottom": bottoms})
    audits = {name: _of_few_epochs(party.audit) for name, party in job.parties.items()}
    followed = min(audits[job.active].followed, BRIEF_FOLLOWED_ROWS)
    audits[job.active] = audits[job.active].model_copy(update={"followed": followed})
    parties: dict[str, dict[str, object]] = {name: {"fit": None, "audit": audit} for name, audit in audits.items()}
    parties[job.active]["coverage"] = 0  # the rows that its margin would be of choose the epoch
    return plain.with_parties(parties, train=train, model=model)


def _of_few_epochs(audit: AuditConfig) -> AuditConfig:
    """The same audit of few epochs, without its longest attacks and its gates, unless attacks are named."""
    if audit.attacks != "auto":
        return audit
    every = BRIEF_EPOCH_STRIDE if audit.every == "epoch" else audit.every
    return audit.model_copy(update={"depth": "quick", "every": every, "fail_above": GatesConfig()})


def is_label_free(job: Job) -> bool:
    """Whether the active party demands that no message to a passive party depends on a label."""
    return LABEL_FREE in job.parties[job.active].privacy


def malicious_run(job: Job) -> RunId:
    """The run in which an attack wraps the passive parties' own optimisers."""
    return RunId(RunKind.MALICIOUS, job.passives)


def optimizer_hooks_of(job: Job, run: RunId) -> Mapping[str, OptimizerHook]:
    """Optimiser hook of each party in a run; empty in an honest run."""
    return dict.fromkeys(job.passives, _optimizer_hooks(job)[0]) if run == malicious_run(job) else {}


def _optimizer_hooks(job: Job) -> list[OptimizerHook]:
    """The optimiser hooks of the attacks that the active party's audit names."""
    named = resolve(job.parties[job.active].audit.catalogue, job.attacked_kind).completions
    return [hook for attack in named if (hook := attack.optimizer_hook()) is not None]


def protections_of(job: Job) -> list[str]:
    """Names of a job's protections, in the order of its parties, and `label_free` where that is the condition."""
    condition = [LABEL_FREE] if is_label_free(job) else []
    return condition + [key for party in job.parties.values() for key in party.protections]
