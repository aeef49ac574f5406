"""Changes of a job file: other values at its keys, and other protections in place of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cutlayer.config import Job, near_miss
from cutlayer.config.job import BOTTOM
from cutlayer.config.load import job_from_values, load_job, read_yaml
from cutlayer.config.party import LABEL_FREE
from cutlayer.config.phases import grades_rows
from cutlayer.errors import ConfigError
from cutlayer.jobs.further_labels import first_label_job
from cutlayer.jobs.private_part import PRIVATE_NUMBERS, grade_bottom, grade_fit
from cutlayer.models.bottom_fits import private_fit
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.base import Asset

Value = bool | int | float | str
"""A value in a job file, as the command line has it."""
WIDTHS, NARROW = (32, 64, 128), 8
"""Columns of the sketch of each passive party in a release without labels; with noise, fewer may predict better."""
EPSILONS, DELTA = (64.0, 16.0, 8.0), 1e-5
"""Budgets of `dp_embedding` on the releases of each passive party."""
GRADES = (8.0, 4.0)
"""Epsilons of a row's grade, where partners release grades of drawn labels."""
INTERVALS = 16
"""Quantiles of each number of a passive party where intervals alone are released."""

REMOVED = object()
"""A value for `with_value`."""
Change = tuple[tuple[str, ...], Any]
"""A path into the job file, and the value to write there; see `with_value`."""


@dataclass(frozen=True)
class JobChanges:
    """Changes of one job file to other protections; of several labels the jobs have the first alone.

    Attributes:
        base: The job as in the file.
        raw: The file's plain values.
        folder: Folder of the file.
        columns: Whether protections of the partners' columns are changed too.
    """

    base: Job
    raw: Mapping[str, Any]
    folder: Path
    columns: bool = True

    @classmethod
    def of(cls, file: Path, *, columns: bool = True) -> Self:
        """Changes of a file.

        Raises:
            ConfigError: The file is wrong.
        """
        return cls(first_label_job(load_job(file)), read_yaml(file), file.parent, columns)

    def job(self, changes: Sequence[Change]) -> Job:
        """The job of the file with some changes."""
        return first_label_job(job_from_values(with_changes(self.raw, changes), self.folder))

    def protecting(self, what: str) -> Job:
        """The job with the protections of `init --protect` in place of its own; where they are its own, as it is.

        Args:
            what: `labels`, `columns`, `both`, `proof` or `nothing`.

        Raises:
            ConfigError: It is trained by steps, and the task is not, or a partner's row is in many batches.
        """
        referring = "partner_ids" if self.base.parties[self.base.active].partner_ids else ""
        of = referring or (f"task {self.base.target}" if self.base.target != "value" else "")
        if what in ("columns", "nothing") and of:
            remedy = "the others are trained by steps, which no such job is"
            raise ConfigError.expected(f"labels or both with {of}", what, remedy)
        base, changes = self.base, [*self.without_defence()]
        kinds = {(base.parties[name].fit or {}).get("kind") for name in base.passives}
        private = all(private_fit(base.parties[name].fit) is not None for name in base.passives)
        label = (base.parties[base.active].privacy.get("label_dp") or {}).get("eps", 1.0)
        if what == "labels":
            is_so = kinds == {"sketch"} and LABEL_FREE in base.parties[base.active].privacy
            changes = [*self.without_column_protections()] if is_so else [*changes, *self.label_free(WIDTHS[-1])]
        elif what == "both":
            changes = [] if kinds == {"grade"} and not private else [*changes, *self.graded(label, GRADES[0])]
        elif what == "proof":
            changes = [] if private else [*changes, *self.graded(label, GRADES[0], private=True)]
        elif what == "columns":
            changes += self.with_noise(EPSILONS[-1])
        return self.job(changes).uncompared()

    def protections(self, party: str, asset: Asset) -> list[str]:
        """The protections of an asset that a party has."""
        keys = self.base.parties[party].protections
        return [key for key in keys if key in REGISTRY and REGISTRY[key].protects is asset]

    def without_column_protections(self) -> Iterator[Change]:
        """Changes that leave no protection of the partners' columns, where these are changed."""
        for name in self.base.passives if self.columns else ():
            for key in self.protections(name, Asset.FEATURES):
                yield ("parties", name, "privacy", key), REMOVED

    def without_defence(self) -> Iterator[Change]:
        """Changes that leave no protection of what is limited, and train every step with gradients."""
        yield from self.without_column_protections()
        for key in (*self.protections(self.base.active, Asset.LABELS), LABEL_FREE):
            yield ("parties", self.base.active, "privacy", key), REMOVED
        for name in self.base.passives:
            yield ("parties", name, "fit"), REMOVED
            if self._numbers(name) == PRIVATE_NUMBERS:
                yield ("parties", name, "features", "numbers"), REMOVED  # other models need a scale
            if grades_rows(self.base, name):  # no gradient trains a grade
                yield ("parties", name, "privacy", "grade_dp"), REMOVED
                yield ("model", "bottom", name), dict(BOTTOM)
        for key in ("release", "warmup_epochs"):
            yield ("train", key), REMOVED
        if self.base.fits_top:  # by no gradient
            yield ("model", "top"), REMOVED
            yield ("parties", self.base.active, "coverage"), REMOVED

    def _numbers(self, name: str) -> Mapping[str, Any]:
        """How the file has a party's numbers encoded."""
        return (self.raw["parties"][name].get("features") or {}).get("numbers") or {}

    def label_free(self, width: int, *, intervals: bool = False) -> Iterator[Change]:
        """Changes to a single release of a sketch, of which no message depends on a label, and to the best model of it.

        With `intervals` it holds the interval of each number in place of the number. A top model that is no network of
        the default kind stays.
        """
        job = self.base
        yield ("parties", job.active, "privacy", LABEL_FREE), None
        for name in job.passives:
            yield ("parties", name, "fit"), {"kind": "sketch", **({"numbers": False} if intervals else {})}
            if intervals:
                yield ("parties", name, "features", "numbers"), {"quantiles": INTERVALS}
            elif self._numbers(name) in ({}, PRIVATE_NUMBERS):
                yield ("parties", name, "features", "numbers"), {"scale": "robust"}
        yield from self._once({"kind": "linear", "width": width})

    def with_noise(self, epsilon: float) -> Iterator[Change]:
        """Changes to releases of every partner with Gaussian noise."""
        for name in self.base.passives:
            yield ("parties", name, "privacy", "dp_embedding"), {"clip": 1.0, "epsilon": epsilon, "delta": DELTA}

    def graded(self, label: float, epsilon: float, *, private: bool = False) -> Iterator[Change]:
        """Changes to a single release of one drawn grade a row, of a model of drawn labels, as `init` writes it."""
        yield ("parties", self.base.active, "privacy", "label_dp"), {"eps": label}
        for name in self.base.passives:
            yield ("parties", name, "fit"), grade_fit(private=private)
            if private:
                yield ("parties", name, "features", "numbers"), {**PRIVATE_NUMBERS}
            yield ("parties", name, "privacy", "grade_dp"), {"epsilon": epsilon}
        yield from self._once(grade_bottom(label))

    def _once(self, bottom: Mapping[str, Any]) -> Iterator[Change]:
        """Changes to a single release by a bottom model of each partner, and to the best model of it."""
        job = self.base
        fitted = job.fits_top or job.top.get("kind") == "mlp"
        own = {"kind": "auto"} if fitted else dict(job.bottom_of(job.active))
        yield ("model", "bottom"), {name: dict(bottom) if name in job.passives else own for name in job.parties}
        if fitted:
            yield ("model", "top"), dict(job.model.top) if job.fits_top else {"kind": "auto"}
        if coverage := job.parties[job.active].coverage:
            yield ("parties", job.active, "coverage"), coverage
        yield ("train", "release"), "once"


def with_changes(raw: Any, changes: Sequence[Change]) -> Any:
    """A copy of nested mappings with some keys written or removed, in order."""
    for path, value in changes:
        raw = with_value(raw, path, value)
    return raw


def with_value(raw: Any, parts: Sequence[str], value: Any) -> Any:
    """A copy of plain values with one of them replaced; missing mappings are created.

    A key may contain dots, as the name of a party may: the longest existing key counts. `REMOVED` as the value deletes
    the key if it is there, and the mappings that this leaves empty.

    >>> with_value(with_value({"a": {"b": 1}, "c": None}, ["a", "b"], REMOVED), ["c", "d"], 2)
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
        return [with_value(item, parts[1:], value) if index == at else item for index, item in enumerate(raw)]
    if raw is not None and not isinstance(raw, Mapping):
        raise ConfigError.expected(f"keys above {'.'.join(parts)}", repr(raw), "the path is too long")
    known: Mapping[str, Any] = raw or {}
    lengths = (n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in known)
    length = next(lengths, 1)
    key = ".".join(parts[:length])
    inner = with_value(known.get(key), parts[length:], value)
    if value is REMOVED and (key not in known or inner is REMOVED or (known[key] and not inner)):
        return {name: other for name, other in known.items() if name != key} if key in known else raw
    if key == "parties" and isinstance(inner, Mapping) and isinstance(known.get(key), Mapping):
        for name in inner.keys() - known[key].keys():
            raise ConfigError(f"parties.{name}: no such party{near_miss(name, list(known[key]))}")
    return {**known, key: inner}


def parse_value(word: str) -> Value:
    """A value as a word of the command line: true or false, a number, or the word itself."""
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
