"""How many rows of whole steps a party records in an epoch."""

from __future__ import annotations

from cutlayer.config.job import Job

MIN_STEPS = 8
"""Steps that are recorded whatever their attacks cost: the mean AUC of fewer is a rough one."""

# Seconds of a step and of each of its rows, on one core of the machine of docs/results/speed.md: of the training, and
# of the attacks on one link. They are constants, so that all processes and a resumed run record the same steps; attacks
# on several classes take twice as long.
_TRAINED = 1.5e-3, 10e-6
_ATTACKED = 1e-3, 1.5e-6


def sampled_rows(job: Job, name: str, steps: int, batch_size: int) -> int:
    """Rows that a party records in an epoch; a fixed number as it is, a share by what training and attacks cost.

    Args:
        job: The job.
        name: Name of the party.
        steps: Steps of an epoch.
        batch_size: Rows of a step.
    """
    audit = job.parties[name].audit
    if audit.rows >= 1 or (name != job.active and audit.attacks != "auto"):
        return audit.most_rows  # attacks on its features come after the training
    trained, attacked = (fixed + batch_size * row for fixed, row in (_TRAINED, _ATTACKED))
    links = len(job.passives) * (2 if job.task == "multiclass" else 1)
    affordable = int(audit.rows * steps * trained / (links * attacked))
    return min(audit.most_rows, max(MIN_STEPS, affordable) * batch_size)
