"""The plan of a party's releases, by the job alone."""

from __future__ import annotations

from cutlayer.accounting import ReleasePlan
from cutlayer.accounting.plan import Bottom, Encoding
from cutlayer.config import Job
from cutlayer.models.fitting import is_independent
from cutlayer.protections import REGISTRY
from cutlayer.protections.base import Protection


def plan_of(job: Job, party: str) -> ReleasePlan:
    """Plan of a party's releases, predictions included, and whether bottom model and encoding depend on the rows."""
    once, part = job.train.release_of(party) == "once", job.parties[party]
    encoding: Encoding = "public" if part.features.public_encoding else "fitted"
    bottom: Bottom = "fitted"
    if once and is_independent(part.fit):
        bottom = "independent"
    elif not once and any(_trains(name) for name in part.protections):
        bottom = "private"
    return ReleasePlan.of(job.train, once=once, bottom=bottom, encoding=encoding, serving=part.serving)


def _trains(protection: str) -> bool:
    """Whether a protection sets the updates of the bottom model and accounts for their cost."""
    return protection in REGISTRY and REGISTRY[protection].update is not Protection.update
