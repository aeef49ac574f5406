"""The hooks of a protection, the facts that it is given before them, and the evidence that it must leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from cutlayer.accounting import Event, NoFormalGuarantee, Pairs, ReleasePlan
from cutlayer.config import FrozenModel, Job
from cutlayer.errors import NotApplicable
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.contract.tally import Tally
from cutlayer.protections.contract.views import ActiveView, PassiveView, Update

if TYPE_CHECKING:
    from cutlayer.problem.task import Task
    from cutlayer.protections.label_memory.memory import LabelMemory


class Side(StrEnum):
    """Role of the party that runs a protection: the owner of the protected asset."""

    ACTIVE = "active"
    PASSIVE = "passive"


class Asset(StrEnum):
    """Asset that a protection protects."""

    LABELS = "labels"
    FEATURES = "features"
    MODEL = "model"


@dataclass(frozen=True)
class Context:
    """Facts of the run that a protection receives before step 0.

    Attributes:
        party: Name of the party that runs the protection.
        peers: Names of the parties at the other ends.
        widths: Embedding width of each passive party, by name.
        task: Task of the active party; `None` on a passive one.
        labels: *protected* training labels by row of the common order (other rows hold no label); `None` on a passive
            party, and on the active one until the labels are protected.
        training: Row numbers of the training rows, int64.
        secret: The owner's long-lived secret, for draws that must repeat in the next run.
        noise: This run's noise.
        label_column: Name of the label column; empty on a passive party.
        label_memory: Memory of the label that each row was drawn for; `None` if draws need not be compared with those
            of other runs.
        epochs: Number of epochs in the schedule.
        batch_size: Rows of a training batch.
        plan: Number of times that the schedule releases each row.
        device: Device of the tensors of a training step: embeddings, gradients and the labels of a batch. All tensors
            of this context, and the row numbers of a batch, are on the CPU.
    """

    party: str
    peers: tuple[str, ...]
    widths: Mapping[str, int]
    task: Task | None
    labels: Tensor | None
    training: Tensor
    secret: bytes = field(repr=False)
    noise: Noise = field(repr=False)
    label_column: str = ""
    label_memory: LabelMemory | None = None
    epochs: int = 1
    batch_size: int = 1
    plan: ReleasePlan = field(default_factory=lambda: ReleasePlan(training=1))
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


@dataclass(frozen=True)
class Evidence:
    """Evidence of a protection's work in a run.

    Attributes:
        protection: Name of the protection.
        party: Name of the party that ran it.
        unit: Unit of the counts: `embeddings` and `gradients` are messages, `rows` are labels, `batches` are forward
            passes of the top model, and `steps` are steps of training.
        covered: How many the protection was applied to.
        sent: How many there were, counted by the sender.
        changed: How many of those differ from what they would have been without it.
        metrics: The protection's own numbers, such as labels flipped.
        kinds: Covered messages by kind, such as `embedding` (training) and `evaluation`; empty for other units.
    """

    protection: str
    party: str
    unit: str
    covered: int
    sent: int
    changed: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    kinds: Mapping[str, int] = field(default_factory=dict)


C = TypeVar("C", bound=FrozenModel)


class Protection(Generic[C]):
    """A defence. A subclass overrides the hooks it needs, and the chain calls them.

    Class attributes:
        name: Name in `privacy:` of a party file.
        config: Frozen model that configures it.
        side: Role of the party that runs it.
        protects: The protected asset.
        reference: Paper and section.
        start: Settings to begin with. The documentation, the tests and the benchmarks have them.
        published_against: Kind of message and name of each attack of the catalogue that its paper defends against.
        rank: Order in the chain; clipping (10) before noise (20) before post-processing that needs no noise (30).
        excludes: Names of protections that it cannot be combined with.
        tasks: Kinds of task that it is defined for.
        needs_row_independence: Whether its guarantee holds only if the bottom model embeds every row on its own.
        on_cpu: Whether its hooks are given tensors on the CPU wherever the party trains, and the chain moves what they
            return. For arithmetic that must be exact, and for what NumPy computes.
        needs_no_random_draws: Whether it also needs a bottom model that draws no random numbers.
        no_guarantee: Why no theorem bounds what it lets through; a protection with a guarantee overrides `event`.
        hides_lengths: Whether the length of a gradient says hardly anything of its row under it.
        hides_changes: Whether its evidence, which is sent, counts every message as changed: where a draw changes few
            rows, those of a message that it left as it was would show.
        keeps_directions: Whether it changes no more than the sign and the length of a row's gradient, at most.
        counters: Names of what it counts, for `count`. `metrics` states them, and those of a passive party are sent.
        means: Metrics that are the mean of what was counted, as (metric, summed, counted). A name that stands here and
            not in `counters` is counted too, and is no metric itself.
    """

    name: ClassVar[str]
    config: ClassVar[type[FrozenModel]]
    side: ClassVar[Side]
    protects: ClassVar[Asset]
    reference: ClassVar[str]
    start: ClassVar[FrozenModel]
    published_against: ClassVar[tuple[tuple[str, str], ...]] = ()
    rank: ClassVar[int]
    excludes: ClassVar[frozenset[str]] = frozenset()
    tasks: ClassVar[frozenset[str]] = frozenset({"binary", "multiclass", "regression"})
    needs_row_independence: ClassVar[bool] = False
    needs_no_random_draws: ClassVar[bool] = False
    on_cpu: ClassVar[bool] = False
    no_guarantee: ClassVar[str]
    hides_lengths: ClassVar[bool] = False
    keeps_directions: ClassVar[bool] = False
    hides_changes: ClassVar[bool] = False
    counters: ClassVar[tuple[str, ...]] = ()
    means: ClassVar[tuple[tuple[str, str, str], ...]] = ()

    def __init__(self, settings: C) -> None:
        self.settings = settings
        self.classes = 2  # of the task, once it is known
        hidden = (name for _, *names in self.means for name in names)
        self._tally = Tally(dict.fromkeys((*self.counters, *hidden), 0))

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "name") and cls.event is Protection.event and not hasattr(cls, "no_guarantee"):
            raise TypeError(f"expected {cls.__name__} to override `event` or to state `no_guarantee`, got neither")

    def setup(self, context: Context) -> None:
        """Called before step 0: on the active side first without labels, then again with the protected ones.

        Raises:
            NotApplicable: The protection is not defined for the task.
        """
        if context.task is not None:
            if (kind := context.task.kind) not in self.tasks:
                wanted = f"a task of kind {' or '.join(sorted(self.tasks))} for {self.name}"
                raise NotApplicable.expected(wanted, kind, "leave it out")
            self.classes = max(2, len(context.task.classes))
        self.context = context

    def faults(self, job: Job, party: str) -> Iterator[str]:
        """Faults of a job with it, by settings alone: each a whole sentence, as an error states it.

        Args:
            job: The job. Of other organisations' parties it may lack the private parts.
            party: Name of the party that runs the protection.
        """
        return iter(())

    @property
    def guarantees_labels(self) -> bool:
        """Whether labels have a formal guarantee by it."""
        return self.protects is Asset.LABELS and type(self).event is not Protection.event

    @classmethod
    def acts_at(cls, *hooks: str) -> bool:
        """Whether it acts at one of some hooks: its class overrides the method."""
        return any(getattr(cls, hook) is not getattr(Protection, hook) for hook in hooks)

    @property
    def counts(self) -> dict[str, float]:
        """Counts by name; they are read from the device here, and not where they are counted."""
        return self._tally.sums

    @counts.setter
    def counts(self, counts: dict[str, float]) -> None:
        self._tally = Tally(counts)

    def count(self, **amounts: float | Tensor) -> None:
        """Add to counters; a name that the class does not declare is a `KeyError`.

        Args:
            amounts: Numbers, or tensors without axes, which stay on their device.
        """
        for name, amount in amounts.items():
            self._tally.add(name, amount)

    def labels(self, y: Tensor, ids: Tensor) -> Tensor:
        """Protect the training labels, once per run.

        Args:
            y: (n,) labels of the training rows.
            ids: uint8 (n, 16) digests of their row ids.
        """
        return y

    @property
    def draws(self) -> str | None:
        """A name of the labels' draws: two runs with the same name share one draw of each row.

        `None` where it is not remembered which label each row was drawn for.
        """
        return None

    @property
    def transition(self) -> Tensor | None:
        """Transition matrix that the task loss corrects the labels for; `None` for no correction.

        Float64 (classes, classes): the probability that `labels` returns a class (column) for another (row). Called
        after `setup`.
        """
        return None

    def row_draws(self, e: Tensor, view: PassiveView) -> tuple[str, Pairs] | None:
        """Draws that `embedding_out` would make of an embedding: their name, and the rows with the values drawn for.

        `None` where draws of a row are not a function of its value, or are counted already.
        """
        return None

    def embedding_out(self, e: Tensor, view: PassiveView) -> Tensor:
        """Protect an embedding (n, width) about to be released; differentiable."""
        return e

    def embeddings_in(self, es: Mapping[str, Tensor], view: ActiveView) -> Mapping[str, Tensor]:
        """Change the embeddings before the top model sees them."""
        return es

    def cut_gradient(self, view: ActiveView) -> tuple[float, Mapping[str, Tensor]]:
        """Return the weight of the task gradient and the terms to add to it, per passive party."""
        return 1.0, {}

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Protect the cut gradient (n, width) about to be sent to `party`."""
        return g

    def local_loss(self, view: PassiveView) -> Tensor | None:
        """A term added to the passive party's own backward pass."""
        return None

    def update(self, update: Update, view: PassiveView) -> None:
        """Set the gradients of the bottom model's parameters instead of the backward pass."""

    def event(self, plan: ReleasePlan) -> Event:
        """The planned releases of this protection, known before the run starts.

        Args:
            plan: How often the schedule releases each row.
        """
        return NoFormalGuarantee(self.no_guarantee)

    def notes(self, epochs: int) -> Sequence[str]:
        """Sentences on the leak that the settings alone imply, for `cutlayer check`.

        Args:
            epochs: Number of epochs in the schedule, each of which releases a training row once.
        """
        return ()

    def metrics(self) -> Mapping[str, float]:
        """The protection's own evidence: its counters, then the means."""
        hidden = {name for _, *names in self.means for name in names} - set(self.counters)
        return {
            **{name: count for name, count in self.counts.items() if name not in hidden},
            **{name: self.counts[total] / max(self.counts[count], 1) for name, total, count in self.means},
        }

    def begin(self) -> None:
        """Called once the account has room for the run, before a result of the protection is sent."""

    def end(self) -> None:
        """Called when the run has ended and its ledger states the releases."""

    def epoch_metrics(self) -> Mapping[str, float]:
        """Metrics of the latest training epoch, for the history; called once after each epoch."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """State for a resume, without the counters: tensors and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: It is of a protection that has a state.
        """
        if state:
            raise ValueError(f"a state of {self.name}, which has none")


class LabelProtection(Protection[C]):
    """A protection of the labels, which the active party runs."""

    side = Side.ACTIVE
    protects = Asset.LABELS


class FeatureProtection(Protection[C]):
    """A protection of a passive party's features, which this party runs."""

    side = Side.PASSIVE
    protects = Asset.FEATURES
