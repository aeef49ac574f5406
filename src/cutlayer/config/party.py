"""A party of a job: its private part, its audit, and what it allows on its own machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from cutlayer.config.base import FrozenModel, validated
from cutlayer.config.device import DeviceName
from cutlayer.config.guard import GuardConfig
from cutlayer.config.ids import IdConfig
from cutlayer.config.limits import LimitsConfig
from cutlayer.config.log import LogConfig
from cutlayer.config.names import FilePath, Identity, ModuleName, PartyName, label_name
from cutlayer.config.phases import Phase
from cutlayer.config.protect_labels import PROTECT_LABELS, expanded
from cutlayer.config.serve import ServeConfig
from cutlayer.config.size import MemorySize
from cutlayer.config.table import CellText, FeaturesConfig, NumbersConfig, TableConfig

if TYPE_CHECKING:
    from cutlayer.config.case import Case

Role = Literal["active", "passive"]
ApprovalsNeeded = Literal["none", "required"]
OnAbsent = Literal["stop", "wait", "continue"]
MAX_SERVING = 1_000_000
MAX_SAMPLED_ROWS = 8192
MaliciousName = Literal["hijack", "chosen_labels", "probing", "replay", "scaling", "swap", "backdoor"]
RowCount = Annotated[int, Field(ge=64)]
EpochCount = Annotated[int, Field(ge=1)]


class GatesConfig(FrozenModel):
    """Limits on what attacks on labels may read; a worse value gives exit code 1.

    Attributes:
        label_auc: Largest leak, max(AUC, 1 - AUC).
        excess: Largest leak minus what the party's own columns reveal; measured only where all parties run together.
    """

    label_auc: float | None = Field(default=None, gt=0.5, le=1)
    excess: float | None = Field(default=None, gt=0, le=0.5)

    @property
    def limits(self) -> Mapping[Literal["label_auc", "excess"], float]:
        """The limits that are set, by name."""
        named: tuple[Literal["label_auc", "excess"], ...] = ("label_auc", "excess")
        return {name: limit for name in named if (limit := getattr(self, name)) is not None}


class AuditConfig(FrozenModel):
    """Attacks that a party runs against its own secret, on the messages it sent and received.

    Attributes:
        attacks: Names, or a catalogue. At the active party, whose labels are attacked, `auto` is all attacks that fit
            the task, are cheap and apply to any cut; `full` has those that take longer as well. At a passive party,
            whose features are attacked, both are those that know no row, if it releases once, and none otherwise.
        depth: `quick` leaves out of `auto` the attacks that take longest, the leaks by number of known labels, and the
            trees among the models of a party's own columns. Such an audit is partial: it passes no gate.
        every: `epoch` audits while training; `end` only afterwards; `never` records nothing. A number n records every
            n-th epoch, from the first, and the last one planned, and audits them while training.
        rows: Approximate number of rows of whole sampled steps that are recorded in each epoch; by default as many as
            attacks read in a tenth of the epoch's work, by an estimate that is the same everywhere.
        followed: Number of training rows whose messages are recorded in every epoch: what a party that keeps all
            messages has of each row. At the active party alone.
        layers: Whether to attack every layer's output too (only where all parties run in one process).
        collusion: Whether to attack the labels by the messages of all passive parties together too, where there are two
            or more, and the columns behind grades by all other parties together. At the active party alone.
        max_megabytes: Maximum size of a party's transcript on disk, half of it for whole steps and half for followed
            rows; epochs are thinned to stay under it.
        fail_above: Gates, such as `{label_auc: 0.6, excess: 0.05}`.
        attribute: Column that the attack of that name reports on, besides the column that it infers best.
        malicious: Attacks by parties that do not follow the protocol, each of which trains the job once more, where all
            parties run in one process. At the active party those by its partners: `probing`, `replay`, `scaling` and
            `swap` of its labels, `backdoor` of its predictions. At a passive party those on its features: `hijack` and
            `chosen_labels`.
    """

    attacks: Literal["auto", "full"] | tuple[str, ...] = "auto"
    depth: Literal["quick", "full"] = "full"
    every: Literal["epoch", "end", "never"] | EpochCount = "epoch"
    rows: RowCount | None = None
    followed: RowCount = 8192
    layers: bool = True
    collusion: bool = True
    max_megabytes: int = Field(default=512, ge=1)
    fail_above: GatesConfig = GatesConfig()
    attribute: str | None = None
    malicious: tuple[MaliciousName, ...] = ()

    @property
    def stride(self) -> int:
        """Number of epochs of which one is recorded."""
        return self.every if isinstance(self.every, int) else 1

    @property
    def most_rows(self) -> int:
        """The number of rows, or the largest one that a share comes to."""
        return MAX_SAMPLED_ROWS if self.rows is None else self.rows

    @property
    def catalogue(self) -> Literal["quick", "auto", "full"] | tuple[str, ...]:
        """Selection of attacks: `attacks`, or `quick` for an `auto` of that depth."""
        return "quick" if (self.attacks, self.depth) == ("auto", "quick") else self.attacks

    def _faults(self) -> Iterator[str]:
        if self.depth == "quick" and self.attacks != "auto":
            yield "depth: quick with attacks: auto alone, got other attacks; leave one of both out"
        if self.fail_above.limits and (self.every == "never" or self.stride > 1):
            yield f"every: epoch or end with fail_above, got {self.every}; a gate is on the largest leak of all epochs"
        if self.malicious and self.every == "never":
            yield "every: epoch or end with malicious, got never; what they gain is read from the messages"
        if self.attribute is not None and "attribute" not in self.attacks:
            yield "attribute among the attacks where the column is named, got none; add it"


class ReportConfig(FrozenModel):
    """Optional parts of the report of a run.

    Attributes:
        subgroups: Columns of the party's own table, features or not; the metrics are shown for each value of them.
        matters: Loss of the headline metric from which on a loss matters, 0 to 1, at the active party. "As well as" is
            said of a model where the interval of the difference excludes it.
    """

    subgroups: tuple[str, ...] = ()
    matters: float = Field(default=0.02, ge=0, le=1, strict=True)


class BudgetConfig(FrozenModel):
    """Privacy budget of a party's rows for a whole run, which is not started, or is stopped, before it costs more.

    Attributes:
        epsilon: Maximum epsilon of the run, above 0.
        delta: Delta at which epsilon is stated, between 0 and 1.
        over: Runs that the budget is for: each `run` alone, or `all_runs` of the party on the same rows together, by
            the ledger next to its secret.
    """

    epsilon: float = Field(gt=0, strict=True)
    delta: float = Field(default=1e-5, gt=0, lt=1, strict=True)
    over: Literal["run", "all_runs"] = "run"


ALL_RUNS = "all_runs"
BUDGET, LABEL_FREE = "budget", "label_free"
"""The keys of `privacy` that are not protections: they limit the job, and change no message."""
OTHER = "other"
"""Key of `fit.limits` for all columns without one."""


class LabelFreeConfig(FrozenModel):
    """The active party's condition that no message to a passive party may depend on a label; it has no settings.

    All passive parties must release once, without warm-up epochs. The epoch at which early stopping ends the run is the
    exception: it depends on labels.
    """


class PrivatePart(FrozenModel):
    """The private part of one organisation: its table, keys, protections and audit.

    Attributes:
        table: File of the party's rows.
        id: Name of the id column, or `@row` for row numbers; or columns with the normal form of their values.
        partner_ids: Columns by which rows refer to those of a passive party, by its name, at the active party; see
            [ids for each partner](../how-to/align.md#ids-for-each-partner).
        label: Name of the label column, at the active party.
        further_labels: Names of further label columns of the same task, at the active party. A model is trained for
            each, on the same releases or on grades of its own, and none of them is a feature.
        unlabelled: Rule for rows without a label, at the active party: `refuse` the table, or `drop` them.
        positive: The label that a binary task calls positive, at the active party; `None` for the greater one.
        weight: Name of the column of the rows' weights in the loss, at the active party.
        exposure: Name of the column of exposures, such as years insured, of a task of counts or amounts, at the active
            party. What is predicted is the rate by unit of exposure.
        event: Name of the column that states whether the event happened, 1, or the row was censored, 0, of a task of
            survival, at the active party.
        group: Name of the column of groups of a task of ranking, at the active party. Rows of one group are ranked
            against each other.
        coverage: Share of new rows whose label is to lie in the interval, or set of classes, of its prediction, 0.5 to
            0.999, at the active party; 0, the default, for none. Both are made on the validation rows.
        features: Columns that are features, and their encoding.
        privacy: Settings of each protection, by name; and of the budget, and of the condition `label_free`.
        audit: Attacks that this party runs, and what it records for them.
        fit: Fit of the bottom model of a passive party that releases once, by kind; without it the model keeps its
            random initial weights.
        serving: Number of times that a passive party may release each row for predictions after the training; noise,
            ledger and budget cover these releases in addition to the schedule.
        secret: File of the party's long-lived secret.
        limits: Bounds on the numbers that this party sends and accepts.
        memory: Memory for the party's table, such as `2 GB`. A table that would take more, copies included, is read in
            batches, with the same result. Lists of the rows, some 100 bytes for each, are in memory in addition.
        device: Where this party trains: `cpu`; `cuda`; `cuda:N`, the GPU of that number; or `auto`, a GPU where
            one gains. It is in no digest and crosses to no partner.
        report: What the report shows besides.
        guard: Scrutiny of what this party receives; none without it. It is in no digest and crosses to no partner.
        log: Where curves and results go besides the run folder, at the active party; nowhere without it.
        approvals: Whether this party sends nothing to other organisations before all of them have signed what the job
            reveals of them; see [approvals](../how-to/approve.md).
    """

    table: TableConfig | None = None
    id: IdConfig | None = None
    partner_ids: Mapping[PartyName, IdConfig] = Field(default_factory=dict)
    label: str | None = None
    further_labels: tuple[Annotated[str, AfterValidator(label_name)], ...] = ()
    unlabelled: Literal["refuse", "drop"] = "refuse"
    positive: CellText | None = None
    weight: str | None = None
    exposure: str | None = None
    event: str | None = None
    group: str | None = None
    coverage: Annotated[float, Field(ge=0.5, le=0.999, strict=True)] | Literal[0] = 0
    features: FeaturesConfig = FeaturesConfig()
    privacy: Mapping[str, Mapping[str, Any] | None] = Field(default_factory=dict)
    audit: AuditConfig = AuditConfig()
    fit: Mapping[str, Any] | None = None
    serving: int = Field(default=0, ge=0, le=MAX_SERVING)
    secret: FilePath | None = None
    limits: LimitsConfig = LimitsConfig()
    memory: MemorySize = "2 GB"
    device: DeviceName = "cpu"
    report: ReportConfig = ReportConfig()
    guard: GuardConfig | None = None
    log: LogConfig | None = None
    approvals: ApprovalsNeeded = "none"

    @model_validator(mode="before")
    @classmethod
    def _labels_are_protected(cls, raw: Any) -> Any:
        """Rewrite `protect_labels`, so that the job is an ordinary one with the protection that was chosen."""
        privacy = raw.get("privacy") if isinstance(raw, Mapping) else None
        if not isinstance(privacy, Mapping) or PROTECT_LABELS not in privacy:
            return raw
        return {**raw, "privacy": expanded(privacy)}

    def new_rows_settings(self, path: Path) -> dict[str, Any]:
        """How a table of new rows is read, which need no column that is no feature."""
        unread = {self.label, self.second, self.weight, *self.further_labels, *self.features.exclude}
        unread -= {*self.limited_columns.include}
        return {} if self.table is None else self.table.settings_for(path, unread)

    @property
    def limited_columns(self) -> FeaturesConfig:
        """Columns of `fit.limits`, and how those of them are read that are no features."""
        names = limited_by((self.fit or {}).get("limits") or ())
        coded = names & {*self.features.categorical, *self.features.vocabulary}
        # A missing number is a value of its own, and a huge one leaves all others apart from each other.
        read = FeaturesConfig(numbers=NumbersConfig(transform="log1p", infinite="missing", quantiles=1))
        return read.model_copy(update={"include": tuple(sorted(names)), "categorical": tuple(sorted(coded))})

    @property
    def second(self) -> str | None:
        """Name of the second column of the label: exposures, events, or groups."""
        return next((name for name in (self.exposure, self.event, self.group) if name is not None), None)

    @property
    def protections(self) -> Mapping[str, Mapping[str, Any] | None]:
        """Settings of each protection, by name: `privacy` without the keys that are none."""
        return {name: options for name, options in self.privacy.items() if name not in (BUDGET, LABEL_FREE)}


def limit_key(column: str) -> str:
    """Key of a column in `fit.limits`, where `other` is for all others: `=other` is a column of that name.

    >>> limit_key("age"), limit_key("other"), limited_by(["age", "=other", "other"]) == {"age", "other"}
    ('age', '=other', True)
    """
    return f"={column}" if column.lstrip("=") == OTHER else column


def limited_by(keys: Iterable[object]) -> set[str]:
    """Columns that keys of `fit.limits` name."""
    names = (str(key) for key in keys if key != OTHER)
    return {name[1:] if name.startswith("=") and limit_key(name[1:]) == name else name for name in names}


class TlsConfig(FrozenModel):
    """The certificate files of a party, in PEM.

    Attributes:
        ca: Certificates of the authorities that it trusts; each of them can vouch for any party.
        cert: Its own certificate, followed by intermediate ones if there are any.
        key: Its private key, without a password, readable by its owner alone.
        crl: Revocation lists of the authorities.
    """

    ca: FilePath
    cert: FilePath
    key: FilePath
    crl: FilePath | None = None


class PrivateFile(PrivatePart):
    """A party's private file: its private part, and what it allows on its own machine.

    Attributes:
        allow_models: Modules, each with all below it, whose classes a model of kind `python` may be.
        serve: Online predictions with the trained model.
        tls: Certificate files; without it those in the folder `keys` next to the file.
        listen: Address that the active party listens at, if it is not the one that its partners connect to.
    """

    allow_models: tuple[ModuleName, ...] = ()
    serve: ServeConfig = ServeConfig()
    tls: TlsConfig | None = None
    listen: str | None = None

    @property
    def served(self) -> ServeConfig:
        """Online serving, of the party's table unless it names another; a path alone is read as that table is."""
        table = self.serve.table
        if table is None:
            table = self.table
        elif table.model_fields_set == {"path"}:
            table = table.model_copy(update=self.new_rows_settings(table.path))
        return self.serve.model_copy(update={"table": table})


class AlternativeConfig(FrozenModel):
    """Other protections of one party, or another release, for comparison.

    Attributes:
        privacy: What stands in place of the party's `privacy`.
        fit: What stands in place of its `fit`; `None` leaves that.
        bottom: What stands in place of its section of `model.bottom`; `None` leaves that.
    """

    privacy: Mapping[str, Mapping[str, Any] | None] = Field(default_factory=dict)
    fit: Mapping[str, Any] | None = None
    bottom: Mapping[str, Any] | None = None


class PartyConfig(PrivatePart):
    """One party of the job. On one machine its private part is in the same file.

    Attributes:
        role: Whether the party holds the labels.
        address: Address where the passive parties find the active one.
        identity: Identity that the party's certificate must state; by default `spiffe://FEDERATION/NAME`.
        on_absent: What happens if this passive party is lost in training: `stop` ends the run, which can be resumed;
            `wait` has all others wait for it to resume, and go on; `continue` trains on without it, with zeros for its
            embeddings.
    """

    role: Role
    address: str | None = None
    identity: Identity | None = None
    on_absent: OnAbsent = "stop"

    def role_faults(self, name: str) -> Iterator[str]:
        """Keys of the other role that the party of this name sets."""
        if self.role == "active" and self.serving:
            wanted = f"expected no parties.{name}.serving at the active party, which releases no embedding"
            yield f"{wanted}, got {self.serving}; set it at the passive parties"
        if self.role == "passive" and self.report.matters != ReportConfig().matters:
            wanted = f"expected no parties.{name}.report.matters at a passive party, which compares no models"
            yield f"{wanted}, got {self.report.matters}; set it at the active party"
        if self.role == "passive" and self.audit.fail_above.limits:
            where = f"parties.{name}.audit.fail_above"
            yield f"{where}: only the active party, which holds the labels, can measure label_auc"

    @model_validator(mode="before")
    @classmethod
    def _no_consent_in_a_job(cls, raw: Any) -> Any:
        """Refuse consent in a job: its author must not consent for the person who runs it."""
        if isinstance(raw, Mapping) and "allow_models" in raw:
            raise ValueError("no allow_models in a job, got one; use --allow-model, or a party's private file")
        return raw


def label_free_faults(case: Case) -> Iterator[str]:
    """The active party alone states `label_free`, and no party is then sent gradients."""
    job, where = case.job, f"parties.{case.job.active}.privacy"
    for name in job.passives:
        if LABEL_FREE in job.parties[name].privacy:
            wanted = f"expected {LABEL_FREE} at the active party, which has the labels"
            yield f"{wanted}, got it at {name}; move it to {where}"
    if LABEL_FREE in job.parties[job.active].privacy:
        validated(LabelFreeConfig, job.parties[job.active].privacy[LABEL_FREE], f"{where}.{LABEL_FREE}")
        for name in job.passives:
            if not job.is_label_free(name):
                got = f"{name} in {'warm-up epochs' if Phase.RELEASE in job.phases_of(name) else 'every step'}"
                remedy = "write train.release: once, without warmup_epochs"
                yield f"expected {where}.{LABEL_FREE}: no party that is sent gradients, got {got}; {remedy}"
