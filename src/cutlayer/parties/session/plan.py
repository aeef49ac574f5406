"""The plan of a party's releases, by the job alone."""

from __future__ import annotations

from cutlayer.accounting import ReleasePlan
from cutlayer.accounting.plan import Bottom, Encoding
from cutlayer.config import Job
from cutlayer.models.bottom_fits import is_independent, private_fit
from cutlayer.protections import REGISTRY


def plan_of(job: Job, party: str) -> ReleasePlan:
    """Plan of a party's releases, predictions included, and whether bottom model and encoding depend on the rows."""
    once, part = job.train.release_of(party) == "once", job.parties[party]
    fit = private_fit(part.fit)
    public = part.features.fixed_encoding if fit is not None else part.features.public_encoding
    encoding: Encoding = "public" if public else "fitted"
    bottom: Bottom = "fitted"
    if once and is_independent(part.fit):
        bottom = "independent"
    elif fit is not None:
        bottom = "private"  # by noisy sums, at the cost of the fit
    elif not once and any(name in REGISTRY and REGISTRY[name].acts_at("update") for name in part.protections):
        bottom = "private"  # a protection sets the model's updates, and accounts for their cost
    return ReleasePlan.of(job.train, once=once, bottom=bottom, encoding=encoding, serving=part.serving, fit=fit)
