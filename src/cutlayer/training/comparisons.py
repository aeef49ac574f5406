"""The jobs a run is compared with: its undefended twin, each protection alone, and its malicious twin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cutlayer.attacks import resolve
from cutlayer.attacks.completion.base import OptimizerHook
from cutlayer.config import Job


def with_protections(job: Job, kept: dict[str, set[str]]) -> Job:
    """The job with only the named protections of each party."""
    parties = {
        name: party.model_copy(
            update={"privacy": {key: value for key, value in party.protections.items() if key in kept.get(name, set())}}
        )
        for name, party in job.parties.items()
    }
    return job.model_copy(update={"parties": parties, "compare": ()})


def compared_jobs(job: Job) -> Iterator[tuple[str, Job]]:
    """Names and jobs of the runs to train beside this one."""
    protections = [(name, key) for name, party in job.parties.items() for key in party.protections]
    if "undefended" in job.compare and protections:
        yield "undefended", with_protections(job, {})
    if "each" in job.compare and len(protections) > 1:
        for party, key in protections:
            alone = [other for other, found in protections if found == key] == [party]
            yield key if alone else f"{key} of {party}", with_protections(job, {party: {key}})
    if _wraps(job):
        yield malicious_run(job), job.model_copy(update={"compare": ()})


def malicious_run(job: Job) -> str:
    """Name of the run in which the passive parties' own optimisers are wrapped by an attack."""
    passives = job.passives
    return f"malicious {passives[0]}" if len(passives) == 1 else "malicious passive parties"


def wraps_of(job: Job, name: str) -> Mapping[str, OptimizerHook]:
    """What each party does to its own optimiser in the compared run of that name; nothing in an honest one."""
    return dict.fromkeys(job.passives, _wraps(job)[0]) if name == malicious_run(job) else {}


def _wraps(job: Job) -> list[OptimizerHook]:
    """The optimiser hooks of the attacks that the active party's audit names."""
    named = resolve(job.parties[job.active].audit.attacks, job.task).completions
    return [hook for attack in named if (hook := attack.optimizer_hook()) is not None]


def protections_of(job: Job) -> list[str]:
    """Names of a job's protections, in the order of its parties."""
    return [key for party in job.parties.values() for key in party.protections]
