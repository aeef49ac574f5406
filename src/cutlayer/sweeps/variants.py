"""One job file with other values at some of its places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutlayer.attacks import resolve
from cutlayer.config import Job, near_miss, validated
from cutlayer.config.load import absolute, load_job, read_yaml
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.sweeps.space import Point, Range, Space, Varied, written


class Variants:
    """The jobs that differ from one job file by the values at some dotted paths.

    A path may lead to a key that the file leaves at its default, and into a list by number (`model.top.hidden.0`).

    Args:
        file: the job file.

    Raises:
        ConfigError: the file itself is wrong.
    """

    def __init__(self, file: Path) -> None:
        self.base = load_job(file)
        self._raw = absolute(read_yaml(file), file.parent.resolve())

    def job(self, point: Point) -> Job:
        """The job at a point, checked; without comparisons, which a sweep has no use for.

        Raises:
            ConfigError: there is no such place, or it cannot hold the value.
        """
        told = ", ".join(f"{path}={written(value)}" for path, value in point.items())
        try:
            raw = self._raw
            for path, value in point.items():
                raw = changed(raw, path.split("."), value)
            job = validated(Job, raw, "").model_copy(update={"compare": ()})
            check_job(job)
        except ConfigError as fault:
            raise ConfigError("\n".join(f"--vary {told}: {line}" for line in str(fault).splitlines())) from None
        return job

    def checked(self, space: Space, trials: int) -> Space:
        """Check every value and end, and every point that is known beforehand; learn which ranges are of whole numbers.

        Raises:
            ConfigError: a place that is not there, or a value that it cannot hold.
            NotApplicable: an attack or protection that does not fit.
        """
        first = {one.path: one.edges[0] for one in space.varied}
        for one in space.varied:
            for value in one.edges:
                self.job({one.path: value} if len(space.varied) == 1 else {**first, one.path: value})
        space = replace(space, varied=tuple(self._whole(one, first) for one in space.varied))
        for slot in range(trials):
            if point := space.fixed(slot):
                self.job(point)
        return space

    def _whole(self, one: Varied, first: Point) -> Varied:
        """A range whose ends are whole numbers, and whose place takes no half, is one of whole numbers."""
        if isinstance(one, Range) and isinstance(one.low, int) and isinstance(one.high, int):
            try:
                self.job({**first, one.path: one.low + 0.5})
            except ConfigError:
                return replace(one, whole=True)
        return one


def check_measured(job: Job, messages: tuple[str, ...]) -> None:
    """Refuse a job whose audit cannot measure a leak of these messages.

    Raises:
        ConfigError: nothing is recorded, or no attack reads them.
    """
    audit = job.parties[job.active].audit
    where = f"parties.{job.active}.audit"
    if audit.every == "never":
        raise ConfigError.expected(f"{where}.every: epoch or end", "never", "a sweep needs a measured leak")
    attacks = resolve(audit.attacks, job.task)
    if not any(str(target) in messages for attack in attacks for target in attack.reads):
        named = ", ".join(attack.name for attack in attacks) or "none"
        raise ConfigError.expected(
            f"an attack on the {' or '.join(messages)} messages of a {job.task} job in {where}.attacks",
            named,
            "name one there, or choose another --leak",
        )


def changed(raw: Any, parts: list[str], value: Any) -> Any:
    """A copy of plain values with one of them replaced; mappings that are not there are made.

    A key may contain dots, as the name of a party may: the longest key that is there counts.

    Raises:
        ConfigError: the path leads past a single value, or to a place that a list or the parties do not have.
    """
    if not parts:
        return value
    if isinstance(raw, list):
        if not (parts[0].isdecimal() and int(parts[0]) < len(raw)):
            raise ConfigError.expected(f"a place in the list, 0 to {len(raw) - 1}", parts[0])
        place = int(parts[0])
        return [changed(item, parts[1:], value) if number == place else item for number, item in enumerate(raw)]
    if raw is not None and not isinstance(raw, Mapping):
        raise ConfigError.expected(f"keys above {'.'.join(parts)}", repr(raw), "the path is too long")
    known: Mapping[str, Any] = raw or {}
    lengths = (n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in known)
    length = next(lengths, 1)
    key = ".".join(parts[:length])
    inner = changed(known.get(key), parts[length:], value)
    if key == "parties" and isinstance(inner, Mapping) and isinstance(known.get(key), Mapping):
        for name in inner.keys() - known[key].keys():
            raise ConfigError(f"parties.{name}: no such party{near_miss(name, list(known[key]))}")
    return {**known, key: inner}
