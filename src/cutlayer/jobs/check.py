"""The order of the checks of a job that need no data: they run before anything is read or written.

Each rule stands in the file of what it is about.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from cutlayer.attacks import attacks_of, gate_faults
from cutlayer.attacks.malicious import malicious_faults
from cutlayer.config import Job
from cutlayer.config.aggregate import aggregate_faults
from cutlayer.config.case import Case, Rules
from cutlayer.config.guard import guard_faults
from cutlayer.config.ids import partner_ids_faults, repeated_ids_faults, stated_rows_faults
from cutlayer.config.log import log_faults
from cutlayer.config.party import label_free_faults
from cutlayer.config.target import further_label_faults, target_faults
from cutlayer.config.train import release_faults, split_faults, weight_faults
from cutlayer.consent import check_allowed
from cutlayer.errors import ConfigError, CutlayerError
from cutlayer.models import check_models, fitted_top_faults, imports_of
from cutlayer.models.bottom_fits import fit_faults, grade_faults
from cutlayer.parties.session.plan import plan_of
from cutlayer.results.run import RunKind
from cutlayer.training.comparisons import alternative_job, compared_jobs
from cutlayer.training.run_ledger import chain_of


def check_job(job: Job, local_party: str | None = None) -> None:
    """Validate models, protections, attacks and privacy budgets of a job.

    Nothing is imported, called, read or written.

    Args:
        job: The whole job, or a job with a single party's private part.
        local_party: Only party whose models are built in this process; `None` where all are.

    Raises:
        ConfigError: An unknown kind, key or name, a value out of range, or a user's module that was not allowed.
        NotApplicable: An attack or protection that does not fit the task.
        BudgetExceeded: The run would cost a party more than its budget.
    """
    check_models({name: job.bottom_of(name) for name in job.parties}, job.top)
    for where, path in imports_of(job, local_party).items():
        check_allowed(path, where)
    for fault in _faults(job, local_party):
        raise ConfigError(fault)


def _faults(job: Job, local_party: str | None) -> Iterator[str]:
    """Faults of a job whose models are valid; the first is the error."""
    chain = cache(lambda name: chain_of(job, name))  # built when a rule first asks for it, and once
    case = Case(job, lambda name: chain(name).protections, local_party)
    for faults in RULES:
        yield from faults(case)
    for name, party in job.parties.items():
        chain(name).account(plan_of(job, name))
        yield from chain(name).faults(job)
        if party.role == "passive":
            attacks_of(job, name)
        yield from party.role_faults(name)
    attacks_of(job, job.active)
    _check_alternatives(job)
    yield from gate_faults(case)


def _device_faults(case: Case) -> Iterator[str]:
    """This machine has the devices of the parties here; those of other organisations are theirs, and unknown."""
    if any(party.device != "cpu" for party in case.job.parties.values()):
        from cutlayer.parties.compute.device import device_of  # which loads PyTorch

        for name, party in case.job.parties.items():
            device_of(party.device, f"parties.{name}.device")
    yield from ()


def _check_alternatives(job: Job) -> None:
    """Validate the jobs of the alternatives, and that each has a name of its own in the report.

    Raises:
        CutlayerError: An error of `check_job`, after the name of the alternative.
    """
    labels = [str(kind) for kind in RunKind] + [run.label for run, _ in compared_jobs(job)]
    for name in job.alternatives:
        if labels.count(name) > 1:
            raise ConfigError(f"alternatives.{name}: another run of the report has this name; choose another")
        try:
            check_job(alternative_job(job, name))
        except CutlayerError as refused:
            raise type(refused)(f"alternatives.{name}: {refused}") from None


RULES: tuple[Rules, ...] = (
    grade_faults,
    fitted_top_faults,
    release_faults,
    fit_faults,
    weight_faults,
    split_faults,
    target_faults,
    further_label_faults,
    label_free_faults,
    aggregate_faults,
    stated_rows_faults,
    repeated_ids_faults,
    partner_ids_faults,
    _device_faults,
    malicious_faults,
    guard_faults,
    log_faults,
)
"""Rules that do not belong to a single party's protections or audit, in their order."""
