"""The jobs a run is compared with: its undefended twin, and each protection alone."""

from __future__ import annotations

from collections.abc import Iterator

from cutlayer.config import Job


def with_protections(job: Job, kept: dict[str, set[str]]) -> Job:
    """The job with only the named protections of each party."""
    parties = {
        name: party.model_copy(
            update={"privacy": {key: value for key, value in party.privacy.items() if key in kept.get(name, set())}}
        )
        for name, party in job.parties.items()
    }
    return job.model_copy(update={"parties": parties, "compare": ()})


def compared_jobs(job: Job) -> Iterator[tuple[str, Job]]:
    """Names and jobs of the runs to train beside this one."""
    protections = [(name, key) for name, party in job.parties.items() for key in party.privacy]
    if "undefended" in job.compare and protections:
        yield "undefended", with_protections(job, {})
    if "each" in job.compare and len(protections) > 1:
        for party, key in protections:
            alone = [other for other, found in protections if found == key] == [party]
            yield key if alone else f"{key} of {party}", with_protections(job, {party: {key}})


def protections_of(job: Job) -> list[str]:
    """Names of a job's protections, in the order of its parties."""
    return [key for party in job.parties.values() for key in party.privacy]
