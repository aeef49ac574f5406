"""The settings that a comparison names, and the job of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cutlayer.config import Job, near_miss
from cutlayer.config.names import PROTECT_CHOICES
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.protections import REGISTRY
from cutlayer.protections.grade_dp import GradeDP
from cutlayer.training.comparisons import alternative_job, undefended_job
from cutlayer_sweep.changes import JobChanges, parse_value

NONE, CONFIGURED = "none", "as configured"
_WANTED = "expected none, a protection, what init --protect names, or an alternative of the job"


def jobs_of(every: JobChanges, names: Sequence[str]) -> dict[str, Job]:
    """The job of each setting, by name.

    Args:
        every: Changes of the job file.
        names: `none`, `as configured`, an alternative of the job, what `init --protect` names, or protections as
            `max_norm` or `label_dp eps=1`, several of them joined by `+`. Without settings, a protection has those of
            its `start`.

    Raises:
        ConfigError: One name, one twice, or a name that is none of these; a protection that does not fit the job, or a
            plugin's without consent.
        NotApplicable: A protection is not defined for the task.
    """
    given = [" ".join(name.split()) for name in names]
    if len(given) < 2:
        raise ConfigError.expected("--protect twice or more", len(given), "such as --protect none --protect max_norm")
    if repeated := [name for name in given if given.count(name) > 1]:
        raise ConfigError.expected("every --protect once", f"{repeated[0]!r} twice")
    return {name: _job(every, name) for name in given}


def _job(every: JobChanges, name: str) -> Job:
    try:
        named = name in PROTECT_CHOICES and name not in every.base.alternatives
        job = every.protecting(name) if named else _changed(every.base, name)
        check_job(job)
    except ConfigError as refused:
        raise type(refused)(f"--protect {name!r}: {refused}") from None
    return job


def _changed(base: Job, name: str) -> Job:
    if name == CONFIGURED:
        return base.uncompared()
    if name in base.alternatives:
        return alternative_job(base, name)
    if name == NONE:
        return undefended_job(base)
    chosen = [_protection(part, base) for part in re.split(r"\s*\+\s*", name)]
    # Grades are drawn where the job of the file releases grades; any other protection acts on what trains end to end.
    job = base.uncompared() if any(key == GradeDP.name for key, _ in chosen) else undefended_job(base)
    privacy: dict[str, dict[str, Any]] = {party: {} for party in job.parties}
    for key, settings in chosen:
        kind = REGISTRY[key]
        owners = [party for party in job.parties if (party == job.active) == (kind.side == "active")]
        for owner in owners:
            privacy[owner][key] = settings or kind.start.model_dump(exclude_unset=True)
    return job.with_parties({party: {"privacy": protections} for party, protections in privacy.items()})


def _protection(part: str, base: Job) -> tuple[str, Mapping[str, Any]]:
    key, *settings = part.split(" ")
    others = near_miss(key, [NONE, CONFIGURED, *PROTECT_CHOICES, *base.alternatives, *REGISTRY])
    REGISTRY.look_up(key, "privacy", f"{_WANTED}, got {key!r}{others}")
    pairs = [setting.partition("=") for setting in settings]
    if wrong := [setting for setting, (name, equals, _) in zip(settings, pairs, strict=True) if not (name and equals)]:
        raise ConfigError.expected("settings as NAME=VALUE after the name", repr(wrong[0]), "such as label_dp eps=1")
    return key, {name: parse_value(value) for name, _, value in pairs}
