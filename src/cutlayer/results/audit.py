"""`audit.json`: what attacks achieved, which guarantees were tested, and what follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from cutlayer.config import FrozenModel
from cutlayer.results.completion import CompletionResult
from cutlayer.results.document import Document
from cutlayer.results.features import FeatureResult
from cutlayer.results.finding import Finding, Gate
from cutlayer.results.guarantee import GuaranteeTest
from cutlayer.results.leaks import Attacker, Attempt, Baseline, LabelCurve, LayerLeak, LeakResult
from cutlayer.results.malicious import MaliciousResult
from cutlayer.results.run_files import CHANGED


class SkippedAttack(Attacker):
    """An attack that was not run; `party` is the attacked passive party, or the owner of the layer.

    Attributes:
        message: What the attack reads: `gradient`, `embedding`, `bottom model`, or `layer:NAME`; empty where it has no
            name.
        attack: Name of the attack; empty where the reason concerns every attack on the message.
        reason: Why it was not run.
    """

    message: str = ""
    attack: str = ""
    reason: str

    @property
    def label(self) -> str:
        """`party/message/attack`, without what is empty."""
        return "/".join(part for part in (self.party, self.message, self.attack) if part)


class RunAudit(FrozenModel):
    """Attacks on labels in one run.

    Attributes:
        protections: Names of the protections that were active.
        leaks: Leaks of messages at their worst epochs.
        layers: Leaks of layers at their worst epochs.
        undefined: Attacks on messages whose leak is undefined: no sampled batch held both classes.
        skipped: Attacks that could not be run.
        unneeded: Attacks that could have read hardly more than another, and failed no gate.
        baselines: What the leaks of each attacker compare with: each passive party, and all of them together.
        curves: Leaks by the number of labels that the attacker knows.
    """

    protections: tuple[str, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    curves: tuple[LabelCurve, ...] = ()
    leaks: tuple[LeakResult, ...] = ()
    layers: tuple[LayerLeak, ...] = ()
    undefined: tuple[Attempt, ...] = ()
    skipped: tuple[SkippedAttack, ...] = ()
    unneeded: tuple[SkippedAttack, ...] = ()

    def baseline(self, party: str) -> Baseline | None:
        """Baseline of a party's leaks, if it was measured."""
        return next((baseline for baseline in self.baselines if baseline.party == party), None)

    def excesses(self) -> dict[str, float]:
        """Each leak minus what the attacker's own columns reveal, by label, where these columns are here."""
        columns = {baseline.party: baseline.own_columns for baseline in self.baselines}
        known = [(leak, columns.get(leak.party)) for leak in self.leaks]
        return {leak.label: leak.leak - columns for leak, columns in known if columns is not None}


class Conclusions(FrozenModel):
    """Results of an audit over all runs.

    Attributes:
        completions: Model completion by departed parties.
        features: Attacks on features.
        malicious: What parties gain that do not follow the protocol.
        guarantees: Guarantees that were tested with canaries.
        gates: Limits and the worst values against them.
        findings: Coded checks for the reviewer, errors first.
        left_out: Attacks of the default catalogue that were not asked for; where there are any, no gate passes.
        sample: How the messages that attacks on labels read were drawn; empty where none were recorded.
    """

    completions: tuple[CompletionResult, ...] = ()
    features: tuple[FeatureResult, ...] = ()
    malicious: tuple[MaliciousResult, ...] = ()
    guarantees: tuple[GuaranteeTest, ...] = ()
    gates: tuple[Gate, ...] = ()
    findings: tuple[Finding, ...] = ()
    left_out: tuple[str, ...] = ()
    sample: str = ""

    @property
    def failed(self) -> bool:
        """Whether a gate failed, a guarantee that was tested does not hold, or a file of the run was changed."""
        return any(not gate.passed for gate in self.gates) or _do_not_hold(self.guarantees, self.findings)


class Audit(Document, Conclusions):
    """The audit of a run and of those it is compared with.

    Attributes:
        runs: Attacks on labels, by label of the run.
    """

    remedy: ClassVar[str] = "run the audit again"

    runs: Mapping[str, RunAudit]


UNMEASURED_BY_PASSIVE = (
    "what this party learns of the labels, alone or together with others, and what others that collude learn of its "
    "columns: not measured here"
)
"""Limits of the audit of a passive party, which has the messages of its own link, and no labels."""


class PassiveAudit(Document):
    """The audit of a passive party's own folder of a run between organisations.

    Attributes:
        features: Attacks on its features.
        skipped: Attacks that could not be run.
        guarantees: Guarantees that were tested with canaries.
        findings: Coded checks of its own columns.
    """

    remedy: ClassVar[str] = "run the audit again"

    features: tuple[FeatureResult, ...] = ()
    skipped: tuple[SkippedAttack, ...] = ()
    guarantees: tuple[GuaranteeTest, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a guarantee that was tested does not hold, or a file of the run was changed."""
        return _do_not_hold(self.guarantees, self.findings)


def _do_not_hold(guarantees: Iterable[GuaranteeTest], findings: Iterable[Finding]) -> bool:
    return any(test.exceeded for test in guarantees) or any(finding.code == CHANGED.code for finding in findings)
