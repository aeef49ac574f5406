"""The privacy card of a passive party: what its own folder answers of the frameworks, the rest blank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cutlayer.data.forgotten import FORGOTTEN
from cutlayer.report.alignment import disclosed
from cutlayer.report.card.facts import AccountFacts
from cutlayer.report.card.fields import FORGOT, NOT_SHOWN, fields_of, registry_of
from cutlayer.report.evidence import feature_evidence, learns_of, ranked
from cutlayer.report.passive.headline import passive_headline
from cutlayer.report.rounding import count, date, size
from cutlayer.report.sections.protections import REPRODUCIBLE
from cutlayer.results.audit import UNMEASURED_BY_PASSIVE
from cutlayer.results.passive import PassiveReport
from cutlayer.results.privacy_card import AttackEvidence, PartyColumns, PrivacyCard


def passive_card(report: PassiveReport) -> PrivacyCard:
    """The card of a passive party's report."""
    evidence = ranked([*feature_evidence(report.features, report.active)])
    facts = PassiveFacts(report, evidence, (report.columns,))
    skipped = [f"Not run: {attack.label}: {attack.reason}" for attack in report.skipped]
    nothing = [f"No attack of this run tried: reconstruction of the columns of {report.party}."] * (not evidence)
    return PrivacyCard(
        run=report.job_digest[:12],
        name=report.name,
        job_digest=report.job_digest,
        created=report.created,
        cutlayer=report.cutlayer,
        statement=passive_headline(report),
        protected=facts.protected,
        learns=learns_of(evidence, "binary"),
        alignment=disclosed(report.alignment),
        columns=(report.columns,),
        carried=report.carried,
        evidence=evidence,
        fields=fields_of(facts),
        registry=registry_of(facts),
        not_shown=(
            *([REPRODUCIBLE] * report.reproducible_noise),
            *NOT_SHOWN,
            *([FORGOT.format(party=report.party)] * (FORGOTTEN in report.rows.left_out)),
            f"{UNMEASURED_BY_PASSIVE[0].upper()}{UNMEASURED_BY_PASSIVE[1:]}.",
            *nothing,
            *skipped,
        ),
    )


@dataclass(frozen=True)
class PassiveFacts(AccountFacts):
    """Sentences about a passive party's part of a run, each computed from its report.

    Attributes:
        report: The report.
        evidence: The attacks on its columns.
        columns: Its columns that went in.
        utility: What it knows of the model's metrics.
        bias: What it knows of them by subgroup.
    """

    report: PassiveReport
    evidence: Sequence[AttackEvidence]
    columns: Sequence[PartyColumns]
    utility: str = "not known here: the active party has the labels"
    bias: str = ""

    @property
    def reproducible(self) -> bool:
        """Whether the noise key was supplied."""
        return self.report.reproducible_noise

    @property
    def training_rows(self) -> int:
        """Number of training rows."""
        return next(part.rows for part in self.report.releases if part.part == "training")

    @property
    def not_run(self) -> int:
        """Number of attacks that could not be run."""
        return len(self.report.skipped)

    @property
    def unprotected(self) -> str:
        """Receivers of its columns that no theorem covers, and what is not in its account."""
        totals = [total for total in self.report.ledger.totals if total.epsilon is None]
        names = [
            f"{total.protects} of {total.party} towards {', '.join(total.towards)}: {total.why}" for total in totals
        ]
        return "; ".join(
            [*names, f"labels and columns of {self.report.active}: in the account of {self.report.active}"]
        )

    @property
    def software(self) -> str:
        """Versions."""
        return f"Cutlayer {self.report.cutlayer}; account by Google's dp-accounting"

    @property
    def tester(self) -> str:
        """Who tested, and when."""
        report = self.report
        return f"{report.party}, by Cutlayer {report.cutlayer} in a run that ended {date(report.created)}"

    @property
    def trust(self) -> str:
        """Who sees what."""
        report = self.report
        gradients = any(message.kind == "gradient" and message.received for message in report.messages)
        back = "gradients of its embeddings" if gradients else "no gradients"
        return (
            f"{report.active} receives the embeddings of {report.party}, and has the labels; {report.party} receives "
            f"{back}. No party is trusted with the rows of another; parties are assumed to follow the protocol"
        )

    @property
    def rows_to_parameters(self) -> str:
        """Training rows over parameters of its part of the model."""
        if not self.report.parameters:
            return "no trained parameters here"
        return f"{count(self.training_rows)} training rows to {count(self.report.parameters)} parameters"

    @property
    def rows(self) -> str:
        """Sizes of its table and of its part of the run."""
        rows = self.report.rows
        parts = ", ".join(f"{count(part.rows)} {part.part}" for part in self.report.releases)
        return f"{count(rows.table)} rows in the table of {self.report.party}, {count(rows.run)} in the run; {parts}"

    @property
    def parties(self) -> str:
        """Roles."""
        passives = "; ".join(f"{name} has features and a bottom model" for name in self.report.passives)
        return f"{self.report.active} has the labels and the top model; {passives}"

    @property
    def messages(self) -> str:
        """Bytes on its link."""
        sent = sum(message.bytes_sent for message in self.report.messages)
        received = sum(message.bytes_received for message in self.report.messages)
        return f"{self.report.party} sent {size(sent)} and received {size(received)}"
