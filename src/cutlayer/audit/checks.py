"""Input of the findings, and the parts of one kind of finding."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from cutlayer.audit.label_copies import LabelCopy
from cutlayer.config.guard import Alarm
from cutlayer.data.column_note import ColumnNote
from cutlayer.results.audit import Audit
from cutlayer.results.finding import Severity
from cutlayer.results.protection import ProtectionResult
from cutlayer.results.utility import UtilityResult


@dataclass(frozen=True)
class FindingContext:
    """Results that findings are derived from.

    Attributes:
        active: Name of the active party.
        utility: Held-out metrics of this run and its references.
        protections: Result of each protection.
        audit: Attacks and tested guarantees; its own findings are not read.
        label_free: Names of the parties that are sent no message which depends on a label, or on a column of its owner.
        no_common_row: Whether no training row of a run on all rows is with every party.
        idle_epochs: Numbers, from 1, of the epochs whose gradients were all zero.
        alarms: What the parties' guards saw.
        notes: Oddities of the columns of the parties that were here, by name.
        copies: Columns that give the labels alone.
        undated: Names of the parties that aggregated events without an `as_of`.
        graded: Names of the parties that release grades.
    """

    active: str
    utility: UtilityResult
    protections: tuple[ProtectionResult, ...]
    audit: Audit
    label_free: frozenset[str] = frozenset()
    no_common_row: bool = False
    idle_epochs: tuple[int, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    notes: Mapping[str, tuple[ColumnNote, ...]] = field(default_factory=dict)
    copies: tuple[LabelCopy, ...] = ()
    undated: tuple[str, ...] = ()
    graded: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Occurrence:
    """One thing that a check found.

    Attributes:
        owner: Name of the party whose labels, features or protection it is about; empty where it is about the run.
        detail: Measured values.
    """

    owner: str
    detail: str


FindOccurrences = Callable[[FindingContext], Iterator[Occurrence]]


@dataclass(frozen=True)
class Check:
    """One kind of finding.

    Attributes:
        code: Stable code.
        severity: Error, warning or note.
        title: Meaning of the code.
        remedy: Advice to the user.
        find: Yields each occurrence.
    """

    code: str
    severity: Severity
    title: str
    remedy: str
    find: FindOccurrences


CHECKS: list[Check] = []
"""All findings there are, in the order of their codes."""


def check(code: str, severity: Severity, remedy: str = "") -> Callable[[FindOccurrences], FindOccurrences]:
    """Makes a finding of the function below: the first line of its docstring is the title.

    Args:
        code: Code of the finding.
        severity: How bad it is.
        remedy: What to do; what the docstring has behind `Remedy:` by default.
    """

    def registered(find: FindOccurrences) -> FindOccurrences:
        title, _, stated = (inspect.getdoc(find) or "").partition("\n\nRemedy: ")
        title, stated = (" ".join(text.split()).removesuffix(".") for text in (title, stated))
        CHECKS.append(Check(code, severity, f"{title[:1].lower()}{title[1:]}", remedy or stated, find))
        CHECKS.sort(key=lambda one: one.code)
        return find

    return registered
