"""All that can be known to be wrong with a job before anything is read or written, and a forecast of its cost."""

from __future__ import annotations

from cutlayer.attacks import resolve
from cutlayer.config import Job
from cutlayer.errors import ConfigError
from cutlayer.models import check_models
from cutlayer.protections import build_chain


def check_job(job: Job) -> None:
    """Validate models, protections and attacks by their own sections.

    Raises:
        ConfigError: an unknown kind, key or name, or a value out of range.
        NotApplicable: an attack or protection that does not fit the task.
    """
    check_models({name: job.model.bottom_of(name) for name in job.parties}, job.model.top)
    for name, party in job.parties.items():
        chain = build_chain(name, party.role, party.privacy, f"parties.{name}.privacy")
        for protection in chain.protections:
            if job.task not in protection.tasks:
                kinds = " or ".join(sorted(protection.tasks))
                where = f"parties.{name}.privacy.{protection.name}"
                raise ConfigError.expected(f"{where} on a task of kind {kinds}", job.task, "leave it out")
        if party.role == "passive" and party.audit.fail_above:
            raise ConfigError(
                f"parties.{name}.audit.fail_above: only the active party, which holds the labels, can measure label_auc"
            )
    audit = job.parties[job.active].audit
    if not resolve(audit.attacks, job.task) and audit.fail_above:
        wanted = f"an attack that measures what parties.{job.active}.audit.fail_above limits"
        raise ConfigError.expected(
            wanted, f"none for task {job.task}", "name one in audit.attacks, or leave the gate out"
        )
