"""One job file with other values for some of its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutlayer.attacks import resolve
from cutlayer.attacks.base import Attack
from cutlayer.config import Job, near_miss
from cutlayer.config.load import load_job, opened, read_yaml
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.further_labels import of_first_label
from cutlayer.sweeps.space import Point, Range, Space, Varied, format_value

REMOVED = object()
"""A value for `changed`."""


class Variants:
    """The jobs that differ from one job file by the values at some dotted paths.

    Of several labels they have the first alone. A path may lead to a key that the file leaves at its default, and into a list by number (`model.top.hidden.0`).

    Args:
        file: The job file.

    Raises:
        ConfigError: The file itself is wrong.
    """

    def __init__(self, file: Path) -> None:
        self.base = of_first_label(load_job(file))
        self._raw = read_yaml(file)
        self._folder = file.parent

    def job(self, point: Point) -> Job:
        """The job at a point, checked; without comparisons, which a sweep does not need.

        Raises:
            ConfigError: There is no such key, or it cannot hold the value.
        """
        values = ", ".join(f"{path}={format_value(value)}" for path, value in point.items())
        try:
            raw = self._raw
            for path, value in point.items():
                raw = changed(raw, path.split("."), value)
            job = of_first_label(opened(raw, self._folder)).uncompared()
            check_job(job)
        except ConfigError as error:
            raise ConfigError("\n".join(f"--vary {values}: {line}" for line in str(error).splitlines())) from None
        return job

    def checked(self, space: Space, trials: int) -> Space:
        """Check every value and end, and every point that is known beforehand; find the ranges of whole numbers.

        Raises:
            ConfigError: There is no such key, or it cannot hold a value.
            NotApplicable: An attack or protection does not fit.
        """
        first = {dimension.path: dimension.edges[0] for dimension in space.varied}
        for dimension in space.varied:
            for value in dimension.edges:
                self.job({**first, dimension.path: value})
        space = replace(space, varied=tuple(self._whole(dimension, first) for dimension in space.varied))
        for slot in range(trials):
            if point := space.fixed(slot):
                self.job(point)
        return space

    def _whole(self, dimension: Varied, first: Point) -> Varied:
        """Restrict a range with integer ends to whole numbers where the job refuses a fraction."""
        if isinstance(dimension, Range) and isinstance(dimension.low, int) and isinstance(dimension.high, int):
            try:
                self.job({**first, dimension.path: dimension.low + 0.5})
            except ConfigError:
                return replace(dimension, whole=True)
        return dimension


def check_measured(job: Job, messages: tuple[str, ...]) -> None:
    """Refuse a job whose audit cannot measure a leak of these messages.

    Raises:
        ConfigError: Nothing is recorded, or no attack reads them.
    """
    audit = job.parties[job.active].audit
    where = f"parties.{job.active}.audit"
    if audit.every == "never":
        raise ConfigError.expected(f"{where}.every: epoch or end", "never", "a sweep needs a measured leak")
    resolved = resolve(audit.catalogue, job.task)
    attacks: tuple[Attack[Any, Any], ...] = (*resolved.labels, *resolved.histories)
    if not any(str(target) in messages for attack in attacks for target in attack.reads):
        raise ConfigError.expected(
            f"an attack on the {' or '.join(messages)} messages of a {job.task} job in {where}.attacks",
            ", ".join(attack.name for attack in attacks) or "none",
            "name one there, or choose another --leak",
        )


def changed(raw: Any, parts: Sequence[str], value: Any) -> Any:
    """A copy of plain values with one of them replaced; missing mappings are created.

    A key may contain dots, as the name of a party may: the longest existing key counts. `REMOVED` as the value deletes
    the key if it is there, and the mappings that this leaves empty.

    >>> changed(changed({"a": {"b": 1}, "c": None}, ["a", "b"], REMOVED), ["c", "d"], 2)
    {'c': {'d': 2}}

    Raises:
        ConfigError: The path leads past a single value, past the end of a list, or to a party that does not exist.
    """
    if not parts:
        return value
    if isinstance(raw, list):
        if not (parts[0].isdecimal() and int(parts[0]) < len(raw)):
            raise ConfigError.expected(f"an index of the list, 0 to {len(raw) - 1}", parts[0])
        at = int(parts[0])
        return [changed(item, parts[1:], value) if index == at else item for index, item in enumerate(raw)]
    if raw is not None and not isinstance(raw, Mapping):
        raise ConfigError.expected(f"keys above {'.'.join(parts)}", repr(raw), "the path is too long")
    known: Mapping[str, Any] = raw or {}
    lengths = (n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in known)
    length = next(lengths, 1)
    key = ".".join(parts[:length])
    inner = changed(known.get(key), parts[length:], value)
    if value is REMOVED and (key not in known or inner is REMOVED or (known[key] and not inner)):
        return {name: other for name, other in known.items() if name != key} if key in known else raw
    if key == "parties" and isinstance(inner, Mapping) and isinstance(known.get(key), Mapping):
        for name in inner.keys() - known[key].keys():
            raise ConfigError(f"parties.{name}: no such party{near_miss(name, list(known[key]))}")
    return {**known, key: inner}
