"""How many rows' messages are recorded, in whole steps of an epoch, by the share of the work that attacks may take.

It is counted, not measured, so that all processes and a resumed run record the same. What is sent once, before a top
model that is fitted at once, is attacked once: it is recorded whole up to `MAX_SAMPLED_ROWS` rows, which is 8 MB of 256
columns.
"""

from __future__ import annotations

from cutlayer.config.job import Job

ATTACK_SHARE = 0.1
"""Share of an epoch's work that the attacks on its sampled steps may take."""
MIN_STEPS = 4
"""Steps that are recorded whatever their attacks cost: the mean AUC of fewer is a rough one."""

# Seconds of a step and of each of its rows, on one core of the machine of docs/results/speed.md: of the training, and
# of the attacks on one link.
_TRAINING_COST = 0.7e-3, 5e-6
_ATTACK_COST = 1e-3, 1.5e-6
_MULTICLASS_FACTOR = 4
"""Attacks on several classes take so many times as long as on two."""


def sampled_rows(job: Job, name: str, steps: int, batch_size: int) -> int:
    """Rows that a party records in an epoch: a fixed number as it is, else what `ATTACK_SHARE` affords.

    Args:
        job: The job.
        name: Name of the party.
        steps: Steps of an epoch.
        batch_size: Rows of a step.
    """
    audit = job.parties[name].audit
    if audit.rows is not None or job.fits_top or (name != job.active and audit.attacks != "auto"):
        return audit.most_rows  # attacks come once, after the training
    links = len(job.passives) * (_MULTICLASS_FACTOR if job.task == "multiclass" else 1)
    trained, attacked = _seconds(_TRAINING_COST, batch_size), _seconds(_ATTACK_COST, batch_size)
    affordable = int(ATTACK_SHARE * steps * trained / (links * attacked))
    return min(audit.most_rows, max(MIN_STEPS, affordable) * batch_size)


def _seconds(cost: tuple[float, float], times: int) -> float:
    fixed, each = cost
    return fixed + each * times
