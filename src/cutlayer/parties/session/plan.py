"""The plan of a party's releases, by the job alone."""

from __future__ import annotations

from cutlayer.accounting import ReleasePlan
from cutlayer.accounting.plan import Bottom, Encoding
from cutlayer.config import Job
from cutlayer.models.bottom_fits import is_independent
from cutlayer.protections import REGISTRY


def plan_of(job: Job, party: str) -> ReleasePlan:
    """Plan of a party's releases, predictions included, and whether bottom model and encoding depend on the rows."""
    once, part = job.train.release_of(party) == "once", job.parties[party]
    encoding: Encoding = "public" if part.features.public_encoding else "fitted"
    bottom: Bottom = "fitted"
    if once and is_independent(part.fit):
        bottom = "independent"
    elif not once and any(name in REGISTRY and REGISTRY[name].acts_at("update") for name in part.protections):
        bottom = "private"  # a protection sets the model's updates, and accounts for their cost
    return ReleasePlan.of(job.train, once=once, bottom=bottom, encoding=encoding, serving=part.serving)
