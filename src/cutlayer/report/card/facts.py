"""Answers of a run to the questions of the frameworks, as sentences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from cutlayer.accounting import DPSGD, GaussianRelease, LabelFree
from cutlayer.accounting.total import Total
from cutlayer.config.party import LABEL_FREE
from cutlayer.report.rounding import amount, auc, count, date, metric, setting, size, times
from cutlayer.report.sections.protections import REPRODUCIBLE, label_free_parties, without_total
from cutlayer.results.metric_names import name_of
from cutlayer.results.passive import PassiveReport
from cutlayer.results.privacy_card import AttackEvidence, PartyColumns, SubgroupUtility, Threat
from cutlayer.results.report import Report
from cutlayer.results.run import PartyInfo, RunKind

_NONE = "none: no theorem holds for any message of this run"


class AccountFacts(ABC):
    """Sentences that follow from the account, the protections, the attacks and the columns of either side."""

    report: Report | PassiveReport
    evidence: Sequence[AttackEvidence]
    columns: Sequence[PartyColumns]

    @property
    @abstractmethod
    def reproducible(self) -> bool:
        """Whether the noise key was supplied."""

    @property
    @abstractmethod
    def training_rows(self) -> int:
        """Number of training rows."""

    @property
    @abstractmethod
    def not_run(self) -> int:
        """Number of attacks that were not run or left out."""

    @property
    def formal(self) -> list[Total]:
        """Totals of the ledger that a theorem gives."""
        return [total for total in self.report.ledger.totals if total.epsilon is not None]

    @property
    def epsilon(self) -> str:
        """Epsilon and delta of the whole run, by asset and receiver."""
        totals = [
            f"{total.protects} of {total.party} towards {', '.join(total.towards)}: epsilon {amount(total.epsilon)}"
            + (f" at delta {total.delta:g}" if total.delta else ", pure")
            + (f", {total.condition}" if total.protects == "labels" or total.stated_by else "")
            for total in self.formal
        ]
        if not totals:
            return _NONE
        return "; ".join(totals) + (f". {REPRODUCIBLE}" if self.reproducible else "")

    @property
    def mechanisms(self) -> str:
        """Settings of the protections as configured."""
        parts = [
            f"{part.name} of {part.party}"
            + (
                f" ({', '.join(f'{name} {setting(value)}' for name, value in part.settings.items())})"
                if part.settings
                else ""
            )
            for part in self.report.protections
        ]
        return "; ".join([*parts, *self._label_free()]) or "no protection"

    @property
    def accountants(self) -> str:
        """Accountants and conditions of the totals."""
        return "; ".join(dict.fromkeys(f"{total.accountant}, {total.condition}" for total in self.formal)) or _NONE

    @property
    def statements(self) -> str:
        """The ledger's sentences."""
        return "; ".join(entry.statement for entry in self.report.ledger.entries) or _NONE

    @property
    def units(self) -> str:
        """Neighbouring relation of each formal entry."""
        formal = [entry for entry in self.report.ledger.entries if entry.formal]
        kinds = [
            "one row's features, replaced" if isinstance(e.event, GaussianRelease) else e.statement for e in formal
        ]
        return "; ".join(dict.fromkeys(kinds)) + ". The unit is a row" if kinds else _NONE

    @property
    def delta(self) -> str:
        """Delta of each total against one over the training rows and over their square."""
        rows = self.training_rows
        deltas = dict.fromkeys(total.delta for total in self.formal if total.delta)
        compared = [f"{delta:g}, where 1/n is {1 / rows:.2g} and 1/n² {1 / rows**2:.2g}" for delta in deltas]
        return "; ".join(compared) or ("delta is 0" if self.formal else _NONE)

    @property
    def tested(self) -> str:
        """Guarantees that canaries tested."""
        tests = [
            f"{test.protection} of {test.party}: at least {amount(test.lower_bound)} of epsilon {amount(test.epsilon)}"
            for test in self.report.guarantees
        ]
        if tests:
            return "; ".join(tests)
        noisy = any(entry.formal and not isinstance(entry.event, LabelFree) for entry in self.report.ledger.entries)
        return "not run; cutlayer audit RUN --empirical-epsilon" if noisy else "none: no mechanism draws at random"

    @property
    def channels(self) -> str:
        """Side channels and how they are met."""
        gaussian = any(isinstance(entry.event, GaussianRelease | DPSGD) for entry in self.report.ledger.entries)
        return (
            "Gaussian noise is on a lattice; " * gaussian
            + "times of messages and the number of epochs are visible to all parties; "
            + "settings that were chosen on the same rows are not in the account"
        )

    @property
    def exposure(self) -> str:
        """Columns used of those available."""
        parts = []
        for party in self.columns:
            used = "not known here" if party.used is None else str(len(party.used))
            parts.append(
                f"{party.party}: {used}"
                + ("" if party.available is None else f" of {party.available} columns besides id and label")
            )
        return "; ".join(parts)

    @property
    def measures(self) -> str:
        """Protections by owner, or none."""
        parts = [f"{part.party}: {part.name} (protects {part.protects})" for part in self.report.protections]
        return "; ".join([*parts, *self._label_free()]) or "none beyond that rows and labels stay with their owners"

    @property
    def protected(self) -> bool:
        """Whether a protection acted, or no message to some party depends on a label."""
        return bool(self.report.protections or self._label_free())

    def _label_free(self) -> list[str]:
        """Releases without labels, which change no message and so are no protection with evidence of its own."""
        entries = (entry for entry in self.report.ledger.entries if entry.protection == LABEL_FREE)
        return [
            f"{entry.party}: {entry.protection} (protects {entry.protects}) towards {', '.join(entry.towards)}, "
            "by a single release before training"
            for entry in entries
        ]

    @property
    def attacks_run(self) -> str:
        """Attacks that were run, and those that were not."""
        names = ", ".join(dict.fromkeys(result.attack for result in self.evidence))
        left = times(self.not_run, "attack")
        return f"{names or 'no attack'}, on the messages that were sent; not run or left out: {left}"

    @property
    def results(self) -> dict[Threat, str]:
        """The strongest attack of each threat, for each pair of parties."""
        return {threat: self._result(threat) for threat in get_args(Threat)}

    def _result(self, threat: Threat) -> str:
        sentences = [
            f"{result.attacker} on {result.owner}: {reached(result)} by {result.attack}, "
            f"control {shown(result, result.control)}, naive baseline {shown(result, result.naive)}"
            for result in self.evidence
            if result.threat == threat and result.strongest
        ]
        return "; ".join(sentences) or "not tested in this run"

    @property
    def strongest_attacks(self) -> str:
        """The strongest attack of every threat."""
        strongest = [result for result in self.evidence if result.strongest]
        sentences = [f"{result.threat} by {result.attacker}: {reached(result)}" for result in strongest]
        return "; ".join(sentences) or "no attack was run"


@dataclass(frozen=True)
class CardFacts(AccountFacts):
    """Sentences about a run, each computed from its report.

    Attributes:
        report: The report.
        evidence: Its attacks.
        columns: The columns that went in.
        subgroups: Utility by subgroup.
    """

    report: Report
    evidence: Sequence[AttackEvidence]
    columns: Sequence[PartyColumns]
    subgroups: Sequence[SubgroupUtility]

    @property
    def reproducible(self) -> bool:
        """Whether the noise key was supplied."""
        return self.report.run.reproducible_noise

    @property
    def training_rows(self) -> int:
        """Number of training rows."""
        return self.report.data.train

    @property
    def not_run(self) -> int:
        """Number of attacks that were not run or left out."""
        return len(self.report.limits) + len(self.report.left_out)

    @property
    def unprotected(self) -> str:
        """Assets that no theorem covers towards somebody."""
        totals = self.report.ledger.totals
        unprotected = [total for total in totals if total.epsilon is None]
        names = [
            f"{total.protects} of {total.party} towards {', '.join(total.towards)}: {total.why}"
            for total in unprotected
        ]
        labels, columns = without_total(self.report, totals)
        if labels:
            names.append(f"labels of {self.active} towards {', '.join(labels)}: the ledger has no entry")
        if columns:
            names.append(f"features of {', '.join(columns)} towards {self.active}: the ledger has no entry")
        passives = [party for party in self.report.parties if party.role == "passive"]
        # Where all of them release once, before the first step, none sees the end or the best epoch.
        seen = any(not party.released_once or _warmed_up(party) for party in passives)
        free = label_free_parties(self.report)
        if seen and (others := [party.name for party in passives if party.name not in free]):
            held_out = "labels of held-out rows, as far as the end of the run or its best epoch depends on them"
            names.append(f"{held_out}, towards {', '.join(others)}")
        return "; ".join(names) or "none"

    @property
    def software(self) -> str:
        """Versions."""
        run = self.report.run
        return f"Cutlayer {run.cutlayer}, PyTorch {run.torch}, Python {run.python}; account by Google's dp-accounting"

    @property
    def utility(self) -> str:
        """Headline metric of this run, with its interval."""
        row = self.report.utility.row(RunKind.THIS_RUN)
        name = self.report.utility.metric
        if row is None:
            return "not measured"
        rows, which = self.report.data.reported
        bounds = "" if row.low is None else f" ({metric(row.low)} to {metric(row.high)})"
        return f"{name_of(name)} {metric(row.metrics.get(name))}{bounds} on {count(rows)} {which}"

    @property
    def bias(self) -> str:
        """The smallest and the largest headline metric by subgroup."""
        name = self.report.utility.metric
        by_column: dict[str, list[tuple[float, str]]] = {}
        for group in self.subgroups:
            value = group.metrics.get(name)
            if value is not None:
                by_column.setdefault(f"{group.column} of {group.party}", []).append((value, group.group))
        spans = [
            f"{column}: {name_of(name)} {metric(min(values)[0])} ({min(values)[1]}) to {metric(max(values)[0])} "
            f"({max(values)[1]})"
            for column, values in by_column.items()
        ]
        return "; ".join(spans)

    @property
    def trust(self) -> str:
        """Who sees what."""
        passives = ", ".join(self.report.passives)
        sees = [f"{self.active} receives the embeddings of {passives}, and has the labels"]
        sees += [
            f"{party.name} receives {_received(party)}" for party in self.report.parties if party.role == "passive"
        ]
        return (
            "; ".join(sees)
            + ". No party is trusted with the rows of another; parties are assumed to follow the protocol"
        )

    @property
    def tester(self) -> str:
        """Who tested, and when."""
        run = self.report.run
        return (
            f"Cutlayer {run.cutlayer} in run {run.id} of {date(run.created)}; the person who ran it: for the controller"
        )

    @property
    def rows_to_parameters(self) -> str:
        """Training rows over parameters, by party."""
        rows = self.report.data.train
        parts = [
            f"{party.name}: {count(rows)} training rows to {count(party.parameters)} parameters"
            for party in self.report.parties
            if party.parameters
        ]
        return "; ".join(parts) or "not known here"

    @property
    def rows(self) -> str:
        """Sizes of the tables."""
        data = self.report.data
        parts = {"train": data.train, "validate": data.validation, "test": data.test}
        common = f"{count(data.common)} rows in common"
        if data.held:
            has = "released" if self.report.pilot else "has"
            each = ", ".join(f"{name} {has} {count(rows)}" for name, rows in data.held.items())
            common = f"{count(data.common)} rows of {self.active}, of which {each}"
        return f"{common}; {', '.join(f'{count(n)} {name}' for name, n in parts.items())}"

    @property
    def parties(self) -> str:
        """Roles."""
        roles = {"active": "has the labels and the top model", "passive": "has features and a bottom model"}
        return "; ".join(f"{party.name} {roles[party.role]}" for party in self.report.parties)

    @property
    def messages(self) -> str:
        """Bytes on each link."""
        return "; ".join(
            f"{party.name} sent {size(party.bytes_sent)} and received {size(party.bytes_received)}"
            for party in self.report.parties
        )

    @property
    def active(self) -> str:
        """Name of the active party."""
        return self.report.active.name


def _received(party: PartyInfo) -> str:
    """Messages that a passive party received in training."""
    if not party.released_once:
        return "cut gradients of its embeddings"
    if _warmed_up(party):
        return "cut gradients in the warm-up epochs alone, since after them it releases each row once"
    return "no cut gradients, since it releases each row once"


def _warmed_up(party: PartyInfo) -> bool:
    """Whether it was sent gradients, of a party that releases once."""
    return party.traffic.get("gradient", (0, 0))[1] > 0


def reached(result: AttackEvidence) -> str:
    """The metric of an attack and its value."""
    return f"{name_of(result.metric)} {shown(result, result.value)}"


def shown(result: AttackEvidence, value: float | None) -> str:
    """A value of an attack's metric."""
    return auc(value) if result.metric == "leak" else metric(value)
