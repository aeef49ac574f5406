"""The schedule of a training: epochs, batches, optimiser, split and stop."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import Field, PrivateAttr, field_validator

from cutlayer.config.base import FrozenModel
from cutlayer.config.device import Precision
from cutlayer.config.names import PartyName
from cutlayer.config.phases import Phase
from cutlayer.config.wording import near_miss

if TYPE_CHECKING:
    from cutlayer.config.case import Case

Release = Literal["every_step", "once"]
MAX_EPOCHS = 10_000
AUTO_EPOCHS = 40
"""Maximum number of epochs where a job states none; the same for all tables, so that the cost in privacy is known."""
AUTO_PATIENCE = 6
AUTO_STEPS = 50
"""Number of steps of an epoch that `batch_size: auto` aims at, within the bounds `AUTO_BATCH` of a batch."""
AUTO_BATCH = (16, 512)
COMPARED_ROWS = 1 << 17
"""Number of training rows at most of a training by steps that a single release is compared with."""
COMPARED_GAIN = 0.001
"""Least gain of an epoch of it that counts, where a job states none."""
MAX_THREADS = 1024


class OptimizerConfig(FrozenModel):
    """One optimiser per party, all of the same kind.

    Attributes:
        kind: Algorithm.
        lr: Learning rate.
        weight_decay: Coefficient of the weight decay.
        momentum: Momentum of `sgd`; `adam` and `adamw` have their own.
    """

    kind: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)

    def _faults(self) -> Iterator[str]:
        if self.momentum and self.kind != "sgd":
            yield f"momentum with kind sgd alone, got {self.kind}; {self.kind} has its own"


class EarlyStopConfig(FrozenModel):
    """Stop when the validation metric has not improved for `patience` epochs.

    Attributes:
        patience: Epochs without a better validation metric after which training stops.
        min_delta: Least improvement that counts as better.
    """

    patience: int = Field(default=3, ge=1)
    min_delta: float = Field(default=0.0, ge=0)


class SplitConfig(FrozenModel):
    """Which of the aligned rows are held out. By default the split depends only on the seed and the number of rows.

    Attributes:
        test: Share of the rows that the report's metrics are computed on.
        validation: Share of the rows that decide early stopping and the best epoch.
        by: Column of the active party; the rows with its largest values are tested on, those before them validate.
        public: The active party's statement that partners may know the order of the rows by that column, whatever it
            shows of the labels. Guarantees of labels are then given that order; without it there are none.
        stratify: Whether every part has the same share of each class, by a secret draw of the active party.
        by_id: Whether the part of a row is drawn from its id and the seed alone: the shares then hold on average, and a
            row is in the same part whichever other rows there are.
    """

    test: float = Field(default=0.1, ge=0, lt=1)
    validation: float = Field(default=0.1, ge=0, lt=1)
    by: str | None = Field(default=None, min_length=1)
    public: bool = False
    stratify: bool = False
    by_id: bool = False

    @property
    def is_sent(self) -> bool:
        """Whether the active party sends the split, since the other parties cannot compute it."""
        return self.by is not None or self.stratify

    @property
    def depends_on_labels(self) -> bool:
        """Whether the split that is sent may depend on labels: by them, or by a column not stated to be public."""
        return self.stratify or (self.by is not None and not self.public)

    def _faults(self) -> Iterator[str]:
        if self.public and self.by is None:
            yield "public with by, got it alone; name the column that orders the rows, or leave it out"
        stated = [name for name in ("by", "stratify", "by_id") if getattr(self, name)]
        if len(stated) > 1:
            yield f"by, stratify or by_id, got {' and '.join(stated)}; leave all but one of them out"
        if self.test + self.validation >= 1:
            yield f"test + validation below 1, got {self.test + self.validation:g}; the rest trains"


COMPARED_STOP = EarlyStopConfig(patience=AUTO_PATIENCE, min_delta=COMPARED_GAIN)
"""When such a training ends, where a job does not state it."""


class TrainConfig(FrozenModel):
    """The schedule that all parties follow.

    Attributes:
        epochs: Maximum number of epochs; `auto` is `AUTO_EPOCHS`, with early stopping.
        batch_size: Number of rows of a step; `auto` follows from the number of training rows.
        optimizer: Optimiser of each party.
        seed: Seed of split and batches; with a party's key also of its initial weights.
        threads: Number of threads of the tensor library, per party; `auto` chooses by the batch size.
        precision: Precision of the layers of all models: `float32`, or `bf16`, mixed precision by PyTorch's autocast.
            Weights, embeddings, gradients, losses and all that protections compute stay float32 or wider.
        split: Rows that are held out.
        early_stop: When to stop before the last epoch; without it all epochs are trained, unless `epochs` is `auto`.
        keep: Epoch that the run ends with: the best on validation rows, or the last.
        best_by: What the best epoch is chosen by: the headline metric, the log loss (of a regression, R²), or `auto`:
            the loss where `epochs` is `auto` and classes have no weights, else the metric. Of epochs with equal metrics
            the one of the lowest log loss is the best.
        class_weight: `balanced` gives every class the same part in the loss; without it every row has.
        shuffle: `rows` draws from all rows; `blocks` draws 64 blocks of 1,000 neighbouring rows and shuffles their rows
            among each other, for stores larger than memory.
        release: Release of passive parties' embeddings, for all or by party (`every_step` where not named).
            `every_step` releases each row in every epoch; `once` releases each row a single time, from a bottom model
            that is fixed by then and is sent no gradient afterwards.
        checkpoint_every: Number of steps after which all parties save a checkpoint within an epoch, besides that at its
            end; without it, only there.
        warmup_epochs: Number of epochs before that single release. In them the parties that release once send nothing,
            zeros stand for their rows, and they are sent the gradients at those zeros.
    """

    epochs: Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_EPOCHS)] = "auto"
    batch_size: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    optimizer: OptimizerConfig = OptimizerConfig()
    seed: int = Field(default=0, ge=0, lt=2**63)
    threads: Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_THREADS)] = "auto"
    precision: Precision = "float32"
    shuffle: Literal["rows", "blocks"] = "rows"
    split: SplitConfig = SplitConfig()
    early_stop: EarlyStopConfig | None = None
    keep: Literal["best", "last"] = "best"
    best_by: Literal["auto", "loss", "metric"] = "auto"
    class_weight: Literal["balanced"] | None = None
    release: Release | Mapping[PartyName, Release] = "every_step"
    warmup_epochs: int = Field(default=0, ge=0, le=MAX_EPOCHS)
    checkpoint_every: int | None = Field(default=None, ge=1)

    _takes_steps: bool = PrivateAttr(default=True)
    _max_rows: int | None = PrivateAttr(default=None)

    def with_steps(self, *, taken: bool) -> Self:
        """The schedule where steps of an optimiser train the top model, or where it is fitted at once in one epoch."""
        schedule = self.model_copy()
        schedule._takes_steps = taken
        return schedule

    def for_comparison(self) -> Self:
        """The schedule of steps of the training that a single release is compared with.

        It takes some of the training rows where there are very many, and where the job states no epochs it ends once an
        epoch gains little: a reference does not take longer than what it is a reference for.
        """
        schedule = self.with_steps(taken=True)
        schedule._max_rows = COMPARED_ROWS
        if schedule.epochs == "auto" and schedule.early_stop is None and schedule.split.validation:
            schedule = schedule.model_copy(update={"early_stop": COMPARED_STOP})
        return schedule

    def stops_on(self, training: int) -> EarlyStopConfig | None:
        """When to stop, with so many training rows.

        A reference on some of very many, of which an epoch's metric hardly varies, stops after half as many epochs
        without a gain.

        >>> [TrainConfig().for_comparison().stops_on(rows).patience for rows in (10**5, 10**6)]
        [6, 3]
        """
        stop = self.stops_early
        if stop == COMPARED_STOP and self.row_stride(training) > 1:
            return EarlyStopConfig(patience=AUTO_PATIENCE // 2, min_delta=COMPARED_GAIN)
        return stop

    @property
    def takes_some_rows(self) -> bool:
        """Whether steps may be taken on a part of the training rows."""
        return self._max_rows is not None

    def row_stride(self, training: int) -> int:
        """Steps are taken on one in so many of the training rows: on each, unless there are very many of a reference.

        >>> TrainConfig().row_stride(10**6), TrainConfig().for_comparison().row_stride(10**6)
        (1, 8)
        """
        return 1 if self._max_rows is None else max(1, -(-training // self._max_rows))

    def saves_within(self, done: int, steps: int) -> bool:
        """Whether all parties save a checkpoint after a number of the steps of an epoch."""
        return self.checkpoint_every is not None and done < steps and done % self.checkpoint_every == 0

    @property
    def max_epochs(self) -> int:
        """Maximum number of epochs, which the ledger counts."""
        return self.step_epochs if self._takes_steps else 1

    @property
    def step_epochs(self) -> int:
        """Maximum number of epochs of a training by steps, of a baseline at least."""
        return AUTO_EPOCHS if self.epochs == "auto" else self.epochs

    @property
    def stops_early(self) -> EarlyStopConfig | None:
        """When to stop before the last epoch; `None` if never."""
        if not self._takes_steps:
            return None
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

    def release_of(self, party: str) -> Release:
        """How a passive party releases its rows."""
        return self.release.get(party, "every_step") if isinstance(self.release, Mapping) else self.release

    def is_label_free(self, party: str) -> bool:
        """Whether a passive party is sent no gradient, and no split by labels; see `Job.is_label_free`."""
        return self.release_of(party) == "once" and not self.warmup_epochs and not self.split.depends_on_labels

    @field_validator("release", mode="before")
    @classmethod
    def _releases_are_known(cls, raw: Any) -> Any:
        """Name the party whose release is unknown in the error, which a union of both forms cannot."""
        for name, release in raw.items() if isinstance(raw, Mapping) else ():
            if release not in get_args(Release):
                raise ValueError(f"{' or '.join(get_args(Release))} for {name}, got {reprlib.repr(release)}")
        return raw

    def _faults(self) -> Iterator[str]:
        if self.warmup_epochs >= self.max_epochs:
            got = f"got {self.warmup_epochs}; the release comes after them"
            yield f"warmup_epochs below the {self.max_epochs} epochs, {got}"
        if self.split.test == self.split.validation == 0:
            yield "split.test or split.validation above 0, got 0 for both; metrics need held-out rows"
        if self.early_stop and self.split.validation == 0:
            yield "split.validation above 0 with early_stop, got 0; set it, or drop early_stop"


def release_faults(case: Case) -> Iterator[str]:
    """Parties that release once are known, and warm-up epochs come before such a release."""
    job = case.job
    for name in job.train.release if isinstance(job.train.release, Mapping) else ():
        if name not in job.passives:
            yield f"train.release.{name}: no passive party of that name{near_miss(name, [*job.passives])}"
    if job.train.warmup_epochs and not any(Phase.RELEASE in job.phases_of(name) for name in job.passives):
        got = job.train.warmup_epochs
        yield f"expected no train.warmup_epochs where no party releases once, got {got}; leave it out"


def weight_faults(case: Case) -> Iterator[str]:
    """Weights of classes and rows are in a loss that has classes, and that is not corrected for drawn labels."""
    job = case.job
    by_class, column = job.train.class_weight, job.parties[job.active].weight
    if by_class is not None and job.task == "regression":
        yield f"expected train.class_weight with classes alone, got {by_class} with task regression; leave it out"
    for where, got in (("train.class_weight", by_class), (f"parties.{job.active}.weight", column)):
        for drawn in case.acting_protections(job.active, "labels") if got is not None else ():
            wanted = f"expected no {where} with {drawn}, whose loss is corrected for the draws"
            yield f"{wanted}, got {got}; leave one of them out"


def split_faults(case: Case) -> Iterator[str]:
    """A split by a column, or by the labels, reveals no more than the parties agree to, and voids no guarantee."""
    job, split, owner = case.job, case.job.train.split, case.job.parties[case.job.active]
    reserved = {"label": (owner.label,), "weight": (owner.weight,), "id": owner.id.columns if owner.id else ()}
    for key, columns in reserved.items():
        if split.by is not None and split.by in columns:
            wanted = f"expected train.split.by with another column than parties.{job.active}.{key}"
            yield f"{wanted}, got {split.by}; partners learn which rows have its largest values"
    if not split.depends_on_labels:
        return
    if split.stratify and job.task == "regression":
        yield "expected train.split.stratify with classes alone, got task regression; leave it out"
    key, got, what, remedy = "stratify", "true", "by the labels", "leave one of them out"
    if split.by is not None:
        key, got, what = "by", split.by, "by a column that may follow the labels"
        given = "if partners may know which rows have its largest values, whatever that shows of the labels, write"
        remedy = f"{given} train.split.public: true, and the guarantee is given that; else {remedy}"
    conditions = ["label_free"] * ("label_free" in owner.privacy)
    for name in conditions + [each.name for each in case.protections(job.active) if each.guarantees_labels]:
        wanted = f"expected no train.split.{key} with {name}, whose guarantee a split {what} would void"
        yield f"{wanted}, got {got}; {remedy}"
