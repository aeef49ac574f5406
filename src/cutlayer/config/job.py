"""The job: the part that all parties share, and each party's private part."""

from __future__ import annotations

import hashlib
import json
import math
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from cutlayer.certificates.names import federation_name, identity, valid_identity
from cutlayer.config.base import FrozenModel
from cutlayer.config.cut_depth import moved_cut
from cutlayer.config.ids import IdConfig
from cutlayer.config.limits import LimitsConfig
from cutlayer.config.names import ModuleName
from cutlayer.config.protect_labels import PROTECT_LABELS, expanded
from cutlayer.config.serve import ServeConfig
from cutlayer.config.size import MemorySize
from cutlayer.config.table import FeaturesConfig, TableConfig

Role = Literal["active", "passive"]
TaskKind = Literal["binary", "multiclass", "regression"]
Release = Literal["every_step", "once"]
Form = Literal["float16", "bfloat16", "int8"]
OnAbsent = Literal["stop", "wait", "continue"]
Reference = Literal["centralised", "alone", "undefended", "each", "uncompressed", "retrained", "finetuned", "boosting"]

MAX_NAME_LENGTH = 64
MAX_EPOCHS = 10_000
AUTO_EPOCHS = 40
"""Maximum number of epochs where a job states none; the same for all tables, so that the cost in privacy is known."""
AUTO_PATIENCE = 6
AUTO_STEPS = 50
"""Number of steps of an epoch that `batch_size: auto` aims at, within the bounds `AUTO_BATCH` of a batch."""
AUTO_BATCH = (16, 512)
MAX_THREADS = 1024
MAX_MICRO_BATCHES = 64
MAX_SERVING = 1_000_000


def party_name(name: str) -> str:
    """Return the name of a party if it can name files, folders and messages too.

    Raises:
        ValueError: other characters, a leading dot or dash, too long, or `kind`, which `model.bottom` has for itself.

    >>> party_name("bank-2")
    'bank-2'
    """
    if name == "kind" or len(name) > MAX_NAME_LENGTH or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise ValueError(
            "a party name of letters a-z, digits, _ - and . that starts with neither . nor -, "
            f"of {MAX_NAME_LENGTH} characters at most, and not 'kind'"
        )
    return name


def alternative_name(name: str) -> str:
    """Return the name of an alternative if it can name a folder and a row of a table too.

    Raises:
        ValueError: other characters, or too long.
    """
    if len(name) > MAX_NAME_LENGTH or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 _.-]*", name):
        raise ValueError(f"a name of letters a-z, digits, spaces, _ - and ., of {MAX_NAME_LENGTH} characters at most")
    return name


PartyName = Annotated[str, AfterValidator(party_name)]
AlternativeName = Annotated[str, AfterValidator(alternative_name)]
FederationName = Annotated[str, AfterValidator(federation_name)]
Identity = Annotated[str, AfterValidator(valid_identity)]


class GatesConfig(FrozenModel):
    """Limits on what attacks on labels may read; a worse value gives exit code 1.

    Attributes:
        label_auc: Largest leak, max(AUC, 1 - AUC).
        excess: Largest leak minus what the party's own columns tell; measured only where all parties run together.
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
            whose features are attacked, both are none.
        depth: `quick` leaves out of `auto` the attacks that take longest, the leaks by number of known labels, and the
            trees among the models of a party's own columns. Such an audit is partial: it passes no gate.
        every: `epoch` audits while training; `end` only afterwards; `never` records nothing.
        rows: Approximate number of rows of whole sampled steps that are recorded in each epoch.
        followed: Number of training rows whose messages are recorded in every epoch: what a party that keeps all
            messages has of each row. At the active party alone.
        layers: Whether to attack every layer's output too (only where all parties run in one process).
        max_megabytes: Maximum size of a party's transcript on disk, half of it for whole steps and half for followed
            rows; epochs are thinned to stay under it.
        fail_above: Gates, such as `{label_auc: 0.6, excess: 0.05}`.
        attribute: Column that the attack of that name reports on, besides the column that it infers best.
    """

    attacks: Literal["auto", "full"] | tuple[str, ...] = "auto"
    depth: Literal["quick", "full"] = "full"
    every: Literal["epoch", "end", "never"] = "epoch"
    rows: int = Field(default=8192, ge=64)
    followed: int = Field(default=8192, ge=64)
    layers: bool = True
    max_megabytes: int = Field(default=512, ge=1)
    fail_above: GatesConfig = GatesConfig()
    attribute: str | None = None

    @property
    def catalogue(self) -> Literal["quick", "auto", "full"] | tuple[str, ...]:
        """What the attacks are resolved from: `attacks`, or `quick` for an `auto` of that depth."""
        return "quick" if (self.attacks, self.depth) == ("auto", "quick") else self.attacks

    @model_validator(mode="after")
    def _depth_is_of_the_catalogue(self) -> AuditConfig:
        if self.depth == "quick" and self.attacks != "auto":
            raise ValueError("depth: quick with attacks: auto alone, got other attacks; leave one of both out")
        return self

    @model_validator(mode="after")
    def _gates_are_measured(self) -> AuditConfig:
        if self.fail_above.limits and self.every == "never":
            raise ValueError("every: epoch or end with fail_above, got never; a gate needs a measured leak")
        return self

    @model_validator(mode="after")
    def _a_named_column_is_asked_about(self) -> AuditConfig:
        if self.attribute is not None and "attribute" not in self.attacks:
            raise ValueError("attribute among the attacks where the column is named, got none; add it")
        return self


class ReportConfig(FrozenModel):
    """What the report of a run shows besides.

    Attributes:
        subgroups: Columns of the party's own table, features or not; the metrics are shown for each value of them.
    """

    subgroups: tuple[str, ...] = ()


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
        label: Name of the label column, at the active party.
        weight: Name of the column of the rows' weights in the loss, at the active party.
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
        report: What the report shows besides.
    """

    table: TableConfig | None = None
    id: IdConfig | None = None
    label: str | None = None
    weight: str | None = None
    features: FeaturesConfig = FeaturesConfig()
    privacy: Mapping[str, Mapping[str, Any] | None] = Field(default_factory=dict)
    audit: AuditConfig = AuditConfig()
    fit: Mapping[str, Any] | None = None
    serving: int = Field(default=0, ge=0, le=MAX_SERVING)
    secret: Path | None = None
    limits: LimitsConfig = LimitsConfig()
    memory: MemorySize = "2 GB"
    report: ReportConfig = ReportConfig()

    @model_validator(mode="before")
    @classmethod
    def _labels_are_protected(cls, raw: Any) -> Any:
        """Rewrite `protect_labels`, so that the job is an ordinary one with the protection that was chosen."""
        privacy = raw.get("privacy") if isinstance(raw, Mapping) else None
        if not isinstance(privacy, Mapping) or PROTECT_LABELS not in privacy:
            return raw
        return {**raw, "privacy": expanded(privacy)}

    @property
    def protections(self) -> Mapping[str, Mapping[str, Any] | None]:
        """Settings of each protection, by name: `privacy` without the keys that are none."""
        return {name: options for name, options in self.privacy.items() if name not in (BUDGET, LABEL_FREE)}


class TlsConfig(FrozenModel):
    """The certificate files of a party, in PEM.

    Attributes:
        ca: Certificates of the authorities that it trusts; each of them can vouch for any party.
        cert: Its own certificate, followed by intermediate ones if there are any.
        key: Its private key, without a password, readable by its owner alone.
        crl: Revocation lists of the authorities.
    """

    ca: Path
    cert: Path
    key: Path
    crl: Path | None = None


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


class AlternativeConfig(FrozenModel):
    """Other protections of one party, for comparison.

    Attributes:
        privacy: What stands in place of the party's `privacy`.
    """

    privacy: Mapping[str, Mapping[str, Any] | None] = Field(default_factory=dict)


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

    @model_validator(mode="before")
    @classmethod
    def _no_consent_in_a_job(cls, raw: Any) -> Any:
        """Refuse consent in a job: its author must not consent for the person who runs it."""
        if isinstance(raw, Mapping) and "allow_models" in raw:
            raise ValueError("no allow_models in a job, got one; use --allow-model, or a party's private file")
        return raw


class OptimizerConfig(FrozenModel):
    """One optimiser per party, all of the same kind."""

    kind: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _momentum_is_used(self) -> OptimizerConfig:
        if self.momentum and self.kind != "sgd":
            raise ValueError(f"momentum with kind sgd alone, got {self.kind}; {self.kind} has its own")
        return self


class EarlyStopConfig(FrozenModel):
    """Stop when the validation metric has not improved for `patience` epochs."""

    patience: int = Field(default=3, ge=1)
    min_delta: float = Field(default=0.0, ge=0)


class SplitConfig(FrozenModel):
    """Shares of the aligned rows that are held out; the split depends only on the seed and the number of rows."""

    test: float = Field(default=0.1, ge=0, lt=1)
    validation: float = Field(default=0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _rows_are_left(self) -> SplitConfig:
        if self.test + self.validation >= 1:
            raise ValueError(f"test + validation below 1, got {self.test + self.validation:g}; the rest trains")
        return self


class TrainConfig(FrozenModel):
    """The schedule that all parties follow.

    Attributes:
        epochs: Maximum number of epochs; `auto` is `AUTO_EPOCHS`, with early stopping.
        batch_size: Number of rows of a step; `auto` follows from the number of training rows.
        optimizer: Optimiser of each party.
        seed: Seed of split and batches; with a party's key also of its initial weights.
        threads: Number of threads of the tensor library, per party; `auto` chooses by the batch size.
        split: Rows that are held out.
        early_stop: When to stop before the last epoch; without it all epochs are trained, unless `epochs` is `auto`.
        keep: Epoch that the run ends with: the best on validation rows, or the last.
        best_by: What the best epoch is chosen by: the headline metric, the log loss (of a regression, R2), or `auto`:
            the loss where `epochs` is `auto` and classes have no weights, else the metric.
        class_weight: `balanced` gives every class the same part in the loss; without it every row has.
        shuffle: `rows` draws from all rows; `blocks` draws 64 blocks of 1,000 neighbouring rows and shuffles their rows
            among each other, for stores larger than memory.
        release: Release of passive parties' embeddings, for all or by party (`every_step` where not named).
            `every_step` releases each row in every epoch; `once` releases each row a single time, from a bottom model
            that is fixed by then and is sent no gradient afterwards.
        micro_batches: Number of parts in which the messages of a step cross: a party computes while another part is on
            its way. Gradients are summed over the parts: the step is that of the whole batch, up to rounding.
        checkpoint_every: Number of steps after which all parties save a checkpoint within an epoch, besides that at its
            end; without it, only there.
        warmup_epochs: Number of epochs before that single release. In them the parties that release once send nothing,
            zeros stand for their rows, and they are sent the gradients at those zeros.
    """

    epochs: Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_EPOCHS)] = "auto"
    batch_size: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    micro_batches: int = Field(default=1, ge=1, le=MAX_MICRO_BATCHES)
    optimizer: OptimizerConfig = OptimizerConfig()
    seed: int = Field(default=0, ge=0, lt=2**63)
    threads: Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_THREADS)] = "auto"
    shuffle: Literal["rows", "blocks"] = "rows"
    split: SplitConfig = SplitConfig()
    early_stop: EarlyStopConfig | None = None
    keep: Literal["best", "last"] = "best"
    best_by: Literal["auto", "loss", "metric"] = "auto"
    class_weight: Literal["balanced"] | None = None
    release: Release | Mapping[PartyName, Release] = "every_step"
    warmup_epochs: int = Field(default=0, ge=0, le=MAX_EPOCHS)
    checkpoint_every: int | None = Field(default=None, ge=1)

    def saves_within(self, done: int, steps: int) -> bool:
        """Whether all parties save a checkpoint after a number of the steps of an epoch."""
        return self.checkpoint_every is not None and done < steps and done % self.checkpoint_every == 0

    @property
    def max_epochs(self) -> int:
        """Maximum number of epochs, which the ledger counts."""
        return AUTO_EPOCHS if self.epochs == "auto" else self.epochs

    @property
    def stops_early(self) -> EarlyStopConfig | None:
        """When to stop before the last epoch; `None` if never."""
        if self.early_stop is None and self.epochs == "auto" and self.split.validation:
            return EarlyStopConfig(patience=AUTO_PATIENCE)
        return self.early_stop

    @property
    def chooses_by_loss(self) -> bool:
        """Whether the best epoch is that of the lowest loss, instead of the best headline metric."""
        if self.best_by == "auto":  # by weighted classes the probabilities are not those of the validation rows
            return self.epochs == "auto" and self.class_weight is None
        return self.best_by == "loss"

    def rows_per_step(self, training: int) -> int:
        """Number of rows of a step.

        By `auto` an epoch has about 50 steps, with batches of 16 to 512 rows that are powers of two, so that few rows
        get enough steps and many rows do not take needlessly long.

        Args:
            training: Number of training rows.

        >>> [TrainConfig().rows_per_step(rows) for rows in (10, 400, 4_000, 16_000, 10**6)]
        [10, 16, 64, 256, 512]
        """
        if self.batch_size != "auto":
            return self.batch_size
        low, high = AUTO_BATCH
        nearest = 1 << max(0, round(math.log2(max(training, 1) / AUTO_STEPS)))
        return min(training, max(low, min(high, nearest)))

    def releases_once(self, party: str) -> bool:
        """Whether a passive party releases its rows a single time."""
        release = self.release.get(party) if isinstance(self.release, Mapping) else self.release
        return release == "once"

    def is_label_free(self, party: str) -> bool:
        """Whether a passive party is sent nothing that depends on a label but the end of an early-stopped run."""
        return self.releases_once(party) and not self.warmup_epochs

    @field_validator("release", mode="before")
    @classmethod
    def _releases_are_known(cls, raw: Any) -> Any:
        """Name the party whose release is unknown in the error, which a union of both forms cannot."""
        for name, release in raw.items() if isinstance(raw, Mapping) else ():
            if release not in get_args(Release):
                raise ValueError(f"{' or '.join(get_args(Release))} for {name}, got {reprlib.repr(release)}")
        return raw

    @model_validator(mode="after")
    def _epochs_are_left(self) -> TrainConfig:
        if self.warmup_epochs >= self.max_epochs:
            got = f"got {self.warmup_epochs}; the release comes after them"
            raise ValueError(f"warmup_epochs below the {self.max_epochs} epochs, {got}")
        return self

    @model_validator(mode="after")
    def _parts_hold_rows(self) -> TrainConfig:
        fewest = AUTO_BATCH[0] if self.batch_size == "auto" else self.batch_size
        if self.micro_batches > fewest:
            raise ValueError(f"micro_batches up to the {fewest} rows of a batch, got {self.micro_batches}")
        return self

    @model_validator(mode="after")
    def _held_out_rows_are_there(self) -> TrainConfig:
        if self.split.test == self.split.validation == 0:
            raise ValueError("split.test or split.validation above 0, got 0 for both; metrics need held-out rows")
        if self.early_stop and self.split.validation == 0:
            raise ValueError("split.validation above 0 with early_stop, got 0; set it, or drop early_stop")
        return self


BOTTOM: Mapping[str, Any] = {"kind": "mlp", "hidden": [64, 32]}
TOP: Mapping[str, Any] = {"kind": "mlp", "hidden": [32]}


class ChannelConfig(FrozenModel):
    """What crosses between the parties, and in which form.

    Attributes:
        compress: Form of the numbers of embeddings and gradients, after all protections; float32 without it.
    """

    compress: Form | None = None


class ModelConfig(FrozenModel):
    """Bottom and top model by kind; `bottom` may be a mapping from party to model.

    Attributes:
        bottom: Section of the bottom models.
        top: Section of the top model.
        cut_depth: Number of layers that move from the bottom models to the top model; the sections are rewritten, and
            this is 0 again.
    """

    bottom: Mapping[str, Any] = Field(default_factory=lambda: dict(BOTTOM))
    top: Mapping[str, Any] = Field(default_factory=lambda: dict(TOP))
    cut_depth: int = Field(default=0, ge=0, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _cut_is_moved(cls, raw: Any) -> Any:
        """Rewrite the sections, so that the job is an ordinary one with the cut where it is."""
        depth = raw.get("cut_depth") if isinstance(raw, Mapping) else None
        if type(depth) is not int or depth < 1:
            return raw
        bottom, top = raw.get("bottom") or BOTTOM, raw.get("top") or TOP
        if not isinstance(bottom, Mapping) or not isinstance(top, Mapping):
            return raw
        bottom, top = moved_cut(bottom, top, depth)
        return {**raw, "bottom": bottom, "top": top, "cut_depth": 0}

    def bottom_of(self, party: str) -> Mapping[str, Any]:
        """The bottom model's section for one party."""
        if "kind" in self.bottom:
            return self.bottom
        chosen: Mapping[str, Any] = self.bottom[party]
        return chosen


class Job(FrozenModel):
    """A job with the private parts that this machine has.

    Attributes:
        name: Name of the job, for the report.
        federation: Name of the federation, which is part of the identities in the parties' certificates.
        task: Kind of the labels.
        parties: Parties by name; their order is that of the embeddings at the top model.
        alignment: How parties in processes of their own find their common rows: `psi`, a private set intersection, or
            `plain`, which shows the active party a digest of every id. With all parties in one process nothing crosses.
        channel: Form in which embeddings and gradients cross.
        model: Bottom and top models.
        train: Schedule of the training.
        compare: Baselines to train for the report (only in one process): `centralised` (all columns in one
            place), `alone` (the active party's own columns), `undefended`, `each` (each protection alone),
            `uncompressed`, `retrained` (without each single passive party), `finetuned` (the top model trained further
            after a departure), `boosting` (gradient boosting on all columns in one place).
        alternatives: The job with other protections, trained and audited beside it: by name, and then by party.
    """

    name: str = "job"
    federation: FederationName = "cutlayer"
    task: TaskKind = "binary"
    parties: Mapping[PartyName, PartyConfig]
    alignment: Literal["psi", "plain"] = "psi"
    channel: ChannelConfig = ChannelConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    compare: tuple[Reference, ...] = ()
    alternatives: Mapping[AlternativeName, Mapping[PartyName, AlternativeConfig]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _roles(self) -> Job:
        actives = [name for name, party in self.parties.items() if party.role == "active"]
        if len(actives) != 1:
            got = ", ".join(actives) or "none"
            raise ValueError(f"exactly one party with role active, got {got}; the active party holds the labels")
        if len(self.parties) < 2:
            raise ValueError(
                "at least one party with role passive, got none; without one there is nothing to train across"
            )
        if self.parties[actives[0]].on_absent != "stop":
            raise ValueError(f"no on_absent at {actives[0]}, the active party, without which nothing goes on, got one")
        if "kind" not in self.model.bottom:
            missing = [name for name in self.parties if name not in self.model.bottom]
            unknown = [name for name in self.model.bottom if name not in self.parties]
            if missing or unknown:
                raise ValueError(_bottoms(missing, unknown))
        if len(set(self.identities.values())) < len(self.parties):
            raise ValueError("a different identity for each party, got one for several")
        return self

    @property
    def active(self) -> str:
        """Name of the party that holds the labels."""
        return next(name for name, party in self.parties.items() if party.role == "active")

    @property
    def passives(self) -> tuple[str, ...]:
        """Names of the passive parties, in the job's order."""
        return tuple(name for name, party in self.parties.items() if party.role == "passive")

    @property
    def keeps_best(self) -> bool:
        """Whether the run ends with its best epoch, which needs validation rows."""
        return self.train.keep == "best" and self.train.split.validation > 0

    @property
    def identities(self) -> dict[str, str]:
        """The identity that each party's certificate must state, by name."""
        return {name: party.identity or identity(self.federation, name) for name, party in self.parties.items()}

    def shared(self) -> dict[str, Any]:
        """The part that all parties share: no table, column, protection or audit."""
        whole = self.model_dump(mode="json", include={"task", "model", "train"})
        whole["parties"] = [[name, party.role] for name, party in self.parties.items()]
        if may_leave := {name: party.on_absent for name, party in self.parties.items() if party.on_absent != "stop"}:
            whole["on_absent"] = may_leave
        # Settings that are new here are left out at their default: logs of releases are named by the digest.
        del whole["model"]["cut_depth"]  # 0 by now: the sections say where the cut is
        if self.train.micro_batches == 1:
            del whole["train"]["micro_batches"]
        if self.train.checkpoint_every is None:
            del whole["train"]["checkpoint_every"]
        if self.train.best_by == "auto":
            del whole["train"]["best_by"]
        if self.train.class_weight is None:
            del whole["train"]["class_weight"]
        if self.channel != ChannelConfig():
            whole["channel"] = self.channel.model_dump(mode="json")
        if self.alignment != "psi":
            whole["alignment"] = self.alignment
        return whole

    def digest(self) -> str:
        """Hash of the shared part, compared at the handshake."""
        canonical = json.dumps(self.shared(), sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()


def _bottoms(missing: list[str], unknown: list[str]) -> str:
    wrong = [f"{word} {', '.join(names)}" for word, names in (("none for", missing), ("unknown", unknown)) if names]
    return f"model.bottom with a kind, or with a model for each party, got {' and '.join(wrong)}"
