"""The protections that a recommendation compares: combinations and strengths, each as changes of the job file.

Protections of the labels are compared always, those of the partners' columns where their share is limited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cutlayer.attacks import column_attacks
from cutlayer.config import Job
from cutlayer.config.party import LABEL_FREE
from cutlayer.config.phases import Phase, grades_rows
from cutlayer.errors import ConfigError, NotApplicable
from cutlayer.jobs.check import check_job
from cutlayer.protections.contract.base import Asset
from cutlayer.training.run_ledger import ledger_of
from cutlayer_sweep.changes import EPSILONS, GRADES, NARROW, WIDTHS, Change, JobChanges
from cutlayer_sweep.recommend.result import Limits
from cutlayer_sweep.space import Point

UNDEFENDED, CONFIGURED = "none", "as configured"
_GRADIENTS: Mapping[str, Mapping[str, Mapping[str, Any] | None]] = {
    "marvell 4": {"marvell": {"sum_kl": 4.0}},
    "marvell 1": {"marvell": {"sum_kl": 1.0}},
    "marvell 0.16": {"marvell": {"sum_kl": 0.16}},
    "max_norm": {"max_norm": None},
    "iso_noise 4": {"iso_noise": {"ratio": 4.0}},
    "dcor 0.03 + max_norm": {"dcor": {"alpha": 0.03}, "max_norm": None},
    "dcor 0.03 + marvell 1": {"dcor": {"alpha": 0.03}, "marvell": {"sum_kl": 1.0}},
}
"""Combinations without a theorem. A penalty on embeddings alone hides no gradient, so it comes with noise on them."""
_GRADIENTS_OF_VALUES: Mapping[str, Mapping[str, Mapping[str, Any] | None]] = {
    "iso_noise 1": {"iso_noise": {"ratio": 1.0}},
    "iso_noise 16": {"iso_noise": {"ratio": 16.0}},
    "dcor 0.03 + iso_noise 4": {"dcor": {"alpha": 0.03}, "iso_noise": {"ratio": 4.0}},
    "dcor 0.3 + iso_noise 16": {"dcor": {"alpha": 0.3}, "iso_noise": {"ratio": 16.0}},
}
"""Further combinations for a regression, which `marvell` and `label_dp` do not protect."""
_LABEL_DP = (4.0, 2.0, 1.0, 0.5)
_WITH_LABEL_DP: Mapping[str, Mapping[str, Mapping[str, Any] | None]] = {
    "": {},
    " + max_norm": {"max_norm": None},
    " + marvell 1": {"marvell": {"sum_kl": 1.0}},
}


@dataclass(frozen=True)
class Candidate:
    """One way to protect the labels, the columns or both.

    Attributes:
        name: Name in tables.
        changes: Keys and values to write into the job file, in order.
        epsilon: Largest total epsilon of a label towards a passive party; `None` where no theorem holds for one.
        statements: The ledger's totals, in words.
        checked: Job of the candidate, with the whole audit.
    """

    name: str
    changes: tuple[Change, ...]
    epsilon: float | None
    statements: tuple[str, ...]
    checked: Job = field(repr=False)

    @property
    def adds_nothing(self) -> bool:
        """Whether a theorem says that messages reveal no more of the labels than the receiver's own columns.

        Where partners are sent which rows a column of the owner puts into the test, that can reveal more.
        """
        return self.epsilon == 0 and self.checked.train.split.by is None


class Candidates:
    """The candidates of one job file, and the job of each.

    Args:
        file: The job file.
        limits: What is asked for.

    Attributes:
        base: The job as in the file.
        of_file: Changes of the file.
        left_out: Candidates that the job cannot take, or without the guarantee, with the reason.

    Raises:
        ConfigError: The file is wrong, or rows refer to each partner by ids of its own.
    """

    def __init__(self, file: Path, limits: Limits) -> None:
        self.of_file = JobChanges.of(file, columns=limits.max_rebuilt is not None)
        self.base = self.of_file.base
        if self.base.parties[self.base.active].partner_ids:
            wanted = "one id for all partners, since the job without protection, the reference, trains end to end"
            raise ConfigError.expected(wanted, "partner_ids", "search with the id of each partner by itself")
        self.guarantee = limits.guarantee
        self.left_out: dict[str, str] = {}

    @cached_property
    def changes(self) -> Mapping[str, Sequence[Change]]:
        """What each proposed candidate writes into the job file, also those that the job cannot take."""
        return dict(self._proposed())

    @cached_property
    def by_name(self) -> Mapping[str, Candidate]:
        """The candidates that the job can take and that have the guarantee, and the undefended one."""
        named: dict[str, Candidate] = {}
        for name, changes in self.changes.items():
            try:
                named[name] = self._candidate(name, changes)
            except (ConfigError, NotApplicable) as refused:
                if name == UNDEFENDED:
                    raise
                self.left_out[name] = str(refused).splitlines()[0]
                continue
            if (present := named.get(CONFIGURED)) and name != CONFIGURED and named[name].checked == present.checked:
                self.left_out[name] = "it is the job as configured"
                del named[name]
        for name, candidate in list(named.items()):
            epsilon = candidate.epsilon
            if self.guarantee is not None and name != UNDEFENDED and (epsilon is None or epsilon > self.guarantee):
                stated = "no theorem" if epsilon is None else f"epsilon {epsilon:g}"
                self.left_out[name] = f"{stated} for the labels"
                del named[name]
        return named

    def job(self, point: Point, max_followed: int | None = None) -> Job:
        """The job of one trial: a candidate by name, for so many epochs, with a seed.

        Its audit is that of the default catalogue at least, and `column_attacks` at a passive party that names none.

        Args:
            point: Values by path.
            max_followed: Largest number of rows that the audit follows, with the quick catalogue; `None` leaves the
                job's number, with the whole catalogue.

        Raises:
            ConfigError: The job is wrong.
        """
        candidate = self.by_name[str(point["protection"])]
        train = {key: point[f"train.{key}"] for key in ("epochs", "seed") if f"train.{key}" in point}
        job = self._checked([*candidate.changes, *((("train", key), value) for key, value in train.items())])
        if max_followed is None:
            return job
        parties = {}
        for name, party in job.parties.items():
            audit = party.audit
            # A share of the work comes to thousands of rows.
            limited: dict[str, Any] = {"rows": audit.rows and min(audit.rows, max_followed)}
            limited["followed"] = min(audit.followed, max_followed)
            if audit.attacks == "auto":
                limited["depth"] = "quick"
            elif name != job.active:
                limited["rows"] = min(audit.most_rows, max_followed)
            parties[name] = {"audit": audit.model_copy(update=limited)}
        return job.with_parties(parties)

    def _candidate(self, name: str, changes: Sequence[Change]) -> Candidate:
        job = self._checked(changes)
        every = ledger_of(job).totals
        totals = [total for total in every if (total.party, total.protects) == (job.active, "labels")]
        covered = {receiver for total in totals if total.epsilon is not None for receiver in total.towards}
        epsilons = [total.epsilon for total in totals if total.epsilon is not None]
        epsilon = max(epsilons) if covered >= set(job.passives) else None
        return Candidate(name, tuple(changes), epsilon, tuple(total.statement for total in every), job)

    def _checked(self, changes: Sequence[Change]) -> Job:
        job = self.of_file.job(changes)
        parties = {}
        for name, party in job.parties.items():
            audit = party.audit
            if name == job.active:
                every = "end" if audit.every == "never" else audit.every
                kind = "full" if audit.attacks == "full" else "auto"
                audit = audit.model_copy(update={"attacks": kind, "every": every, "layers": False, "depth": "full"})
            else:  # attacks that the job names for its own release are not enough for another one
                once = Phase.RELEASE in job.phases_of(name)
                usual = column_attacks(job.task, once=once, graded=grades_rows(job, name))
                named = () if isinstance(audit.attacks, str) else audit.attacks
                audit = audit.model_copy(update={"attacks": tuple(dict.fromkeys((*named, *usual)))})
            parties[name] = {"audit": audit}
        job = job.uncompared(parties)
        check_job(job)
        return job

    def _proposed(self) -> Iterator[tuple[str, list[Change]]]:
        """Names and changes of all candidates, whether or not the job can take them."""
        undefended = [*self.of_file.without_defence()]
        yield UNDEFENDED, undefended
        if self._is_protected:
            yield CONFIGURED, []
        for width in WIDTHS:
            yield f"label_free {width}", [*undefended, *self.of_file.label_free(width)]
        if self.of_file.columns:
            yield from self._with_columns(undefended)
        strengths = dict.fromkeys((*_LABEL_DP, *([self.guarantee] if self.guarantee else ())))
        dp = {
            f"label_dp {eps:g}{name}": {"label_dp": {"eps": eps}, **others}
            for eps in strengths
            for name, others in _WITH_LABEL_DP.items()
            if not name or eps in (1.0, 2.0, self.guarantee)
        }
        others = _GRADIENTS_OF_VALUES if self.base.task == "regression" else {}
        for name, privacy in {**dp, **_GRADIENTS, **others}.items():
            defence = [(("parties", self.base.active, "privacy", key), value) for key, value in privacy.items()]
            yield name, [*undefended, *defence]

    def _with_columns(self, undefended: list[Change]) -> Iterator[tuple[str, list[Change]]]:
        """Protections of the columns, with and without one of the labels."""
        intervals = f"label_free {WIDTHS[1]} intervals"
        bases: dict[str, list[Change]] = {
            "": undefended,
            "label_dp 1": [*undefended, (("parties", self.base.active, "privacy", "label_dp"), {"eps": 1.0})],
            f"label_free {NARROW}": [*undefended, *self.of_file.label_free(NARROW)],
            f"label_free {WIDTHS[0]}": [*undefended, *self.of_file.label_free(WIDTHS[0])],
            intervals: [*undefended, *self.of_file.label_free(WIDTHS[1], intervals=True)],
        }
        if LABEL_FREE in self.base.parties[self.base.active].privacy:
            bases[CONFIGURED] = [*self.of_file.without_column_protections()]
        yield intervals, bases[intervals]
        for name, changes in bases.items():
            for epsilon in EPSILONS:
                named = " + ".join(filter(None, (name, f"dp_embedding {epsilon:g}")))
                yield named, [*changes, *self.of_file.with_noise(epsilon)]
        for label in dict.fromkeys((1.0, *([self.guarantee] if self.guarantee else ()))):
            for epsilon in GRADES:
                yield f"label_dp {label:g} + grade_dp {epsilon:g}", [*undefended, *self.of_file.graded(label, epsilon)]

    @property
    def _is_protected(self) -> bool:
        job = self.base
        return (
            LABEL_FREE in job.parties[job.active].privacy
            or bool(self.of_file.protections(job.active, Asset.LABELS))
            or (self.of_file.columns and any(self.of_file.protections(name, Asset.FEATURES) for name in job.passives))
        )
