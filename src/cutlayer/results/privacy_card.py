"""`privacy_card.json`: what a data-protection assessment can take from a run, and what only the controller knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.data.carried import Carried
from cutlayer.results.document import Document
from cutlayer.results.number import Bounded, Number

Threat = Literal["label inference", "reconstruction", "attribute inference", "membership", "model completion"]
Origin = Literal["measured", "computed", "configured", "for the controller"]


class CardField(FrozenModel):
    """One field of a framework.

    Attributes:
        framework: Document that asks for it.
        group: Heading there, in our words.
        name: What is asked.
        value: The answer; `None` where only the controller knows it.
        origin: Where the answer is from: an attack or a metric, the account, or the job; `for the controller` marks a
            blank.
    """

    framework: str
    group: str
    name: str
    value: str | None
    origin: Origin


class AttackEvidence(Bounded):
    """One attack, with what its result compares with.

    Attributes:
        threat: What it tries to learn.
        owner: Party whose secret it is.
        attacker: Party that attacks, or parties that do so together.
        together: The parties that attack together, by pooling what they hold; empty where one party attacks.
        subject: Message or model that it reads.
        attack: Name of the attack.
        attack_does: What it reads and does, in a sentence; empty for an attack that is not known here.
        knowledge: What the attacker was given besides.
        given: What it must know of single rows, in a few words; empty where it needs to know none.
        metric: `leak` (max(AUC, 1 - AUC)), or another metric by name.
        value: What it reached.
        low: Lower bound of its 95 % interval.
        high: Upper bound of it.
        control: What the same attack reaches without the secret or without the message.
        control_is: What the control is.
        naive: What is known without the system.
        naive_is: What the naive baseline is.
        undefended: What the same attack reaches without any protection; `None` where that was not trained, and where
            this run has none.
        rows: Number of attacked rows.
        strongest: Whether no attack of this threat on this party reaches more beyond its control: it counts. Of attacks
            on all columns it is the one that knows least, where it reads nearly as much as any.
        reads: What it reads of a party's columns, in words; empty where it is not on all of them.
    """

    threat: Threat
    owner: str
    attacker: str
    together: tuple[str, ...] = ()
    subject: str
    attack: str
    attack_does: str = ""
    knowledge: tuple[str, ...] = ()
    given: str = ""
    metric: str
    value: Number
    control: Number = None
    control_is: str
    naive: Number = None
    naive_is: str
    undefended: Number = None
    rows: int | None = None
    strongest: bool = False
    reads: str = ""


class SubgroupUtility(FrozenModel):
    """The held-out metrics of the rows with one value of a column.

    Attributes:
        party: Owner of the column.
        column: Name of the column.
        group: Value of the column.
        rows: Number of held-out rows; `None` where they are fewer than 20, or would give away those of such groups.
        metrics: Metrics by name; empty where the number of rows is not shown, or the rows are of one class only.
    """

    party: str
    column: str
    group: str
    rows: int | None
    metrics: Mapping[str, Number] = Field(default_factory=dict)


class PartyColumns(FrozenModel):
    """The columns of a party that went in.

    Attributes:
        party: Name of the party.
        used: Names of the columns; `None` where the party ran elsewhere.
        available: Number of columns of its table without id and label; `None` where the party ran elsewhere.
        rows: Number of rows of its table.
    """

    party: str
    used: tuple[str, ...] | None
    available: int | None
    rows: int


class PrivacyCard(Document):
    """Evidence of one run for a data-protection impact assessment.

    Attributes:
        run: Id of the run.
        name: Name of the job.
        job_digest: Digest of what the parties agreed on.
        created: Start of the run, ISO 8601.
        cutlayer: Version of this package.
        statement: What partners could learn and what that costs: the sentence at the top of the report.
        verdict: Worst leak and utility, each with that of the undefended run; empty in a card without them.
        protected: Whether any protection acted in this run, or no message to some party depended on a label.
        learns: Who could learn what, in words.
        alignment: Which ids of which party the alignment made known to whom, in words.
        columns: The columns that went in, by party.
        carried: What the grades of each party carry of its columns, by party; of those that released some.
        evidence: Every attack with its control and its naive baseline.
        subgroups: Utility by subgroup.
        fields: The fields of the frameworks, blanks included.
        registry: An entry for the Differential Privacy Deployments Registry by its tiers; the keys are ours.
        not_shown: What this card does not show.
    """

    title: ClassVar[str] = "a privacy card"

    run: str
    name: str
    job_digest: str
    created: str
    cutlayer: str
    statement: str
    verdict: str = ""
    protected: bool
    learns: tuple[str, ...]
    alignment: tuple[str, ...] = ()
    columns: tuple[PartyColumns, ...]
    carried: Mapping[str, Carried] = Field(default_factory=dict)
    evidence: tuple[AttackEvidence, ...]
    subgroups: tuple[SubgroupUtility, ...] = ()
    fields: tuple[CardField, ...]
    registry: Mapping[str, Mapping[str, str | None]]
    not_shown: tuple[str, ...]
