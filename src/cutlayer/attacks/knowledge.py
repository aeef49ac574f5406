"""Knowledge that an attacker is assumed to have in addition to its view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from cutlayer.errors import NotApplicable
from cutlayer.lazy import Tensor, nn, torch

if TYPE_CHECKING:
    from cutlayer.attacks.feature.view import FeatureView
    from cutlayer.data.encoded import ColumnSpec
    from cutlayer.problem.task import Task

MAX_HINTS = 10
"""Number of positive rows of each batch that the hint attack knows."""

MAX_KNOWN_PER_CLASS = 100
"""Number of rows of each class whose labels a probe is fitted on."""

AUXILIARY_LABELS, MIN_AUXILIARY_PER_CLASS = 40, 4
"""Labels that a departed party completes its model with: in all, and at least of each class."""

MAX_AUXILIARY_ROWS = 1000
"""Rows whose features an attacker on features knows, with their embeddings."""

MAX_SHADOW_ROWS = 20_000
"""Rows that shadow models are trained and evaluated on."""

T = TypeVar("T")

_SENT_ROWS = "the features of {rows} released rows{bound}"


class Need(StrEnum):
    """A kind of knowledge, by the code that results store."""

    POSITIVE_SHARE = "positive_share"
    CLASS_SHARES = "class_shares"
    KNOWN_POSITIVE = "known_positive"
    HINTS = "hints"
    KNOWN_LABELS = "known_labels"
    ONE_PER_CLASS = "one_per_class"
    FEW_LABELS = "few_labels"
    AUXILIARY_LABELS = "auxiliary_labels"
    AUXILIARY_FEATURES = "auxiliary_features"
    INITIAL_WEIGHTS = "initial_weights"
    SIMULATOR = "simulator"
    CANDIDATE_ROWS = "candidate_rows"
    SHADOW_ROWS = "shadow_rows"
    OTHER_ROWS = "other_rows"

    @property
    def words(self) -> str:
        """The knowledge in words, with the maximum number of rows."""
        rows = MAX_SHADOW_ROWS if self in (Need.SHADOW_ROWS, Need.CANDIDATE_ROWS) else MAX_AUXILIARY_ROWS
        return _WORDS[self].format(rows=f"up to {rows:,}", bound=", half of the sampled ones at most")


_WORDS: Mapping[Need, str] = {
    Need.POSITIVE_SHARE: "the share of positive rows",
    Need.CLASS_SHARES: "the share of each class",
    Need.KNOWN_POSITIVE: "one positive row in each batch",
    Need.HINTS: f"up to {MAX_HINTS} positive rows in each batch",
    Need.KNOWN_LABELS: f"the labels of up to {MAX_KNOWN_PER_CLASS} rows of each class",
    Need.ONE_PER_CLASS: "the label of one row of each class",
    Need.FEW_LABELS: "the labels of a few rows, up to 200",
    Need.AUXILIARY_LABELS: (
        f"the labels of about {AUXILIARY_LABELS} training rows, or {MIN_AUXILIARY_PER_CLASS} of each class if more; "
        "then of all"
    ),
    Need.AUXILIARY_FEATURES: _SENT_ROWS,
    Need.OTHER_ROWS: "the features of {rows} other rows of the population, without their embeddings",
    Need.INITIAL_WEIGHTS: f"{_SENT_ROWS}, the bottom model's design and initial weights",
    Need.SIMULATOR: (
        "the features and labels of {rows} other rows of the population, without their embeddings, the bottom model's "
        "design and the final top model"
    ),
    Need.CANDIDATE_ROWS: (
        "all parties' columns and labels of the attacked rows and {rows} other rows of the population, the models' "
        "design, initial weights and schedule"
    ),
    Need.SHADOW_ROWS: (
        "all parties' columns and labels of {rows} other rows of the population, and the models' design, initial "
        "weights and schedule"
    ),
}
_CONDITIONS = {
    Need.KNOWN_POSITIVE: "one known positive row in each batch",
    Need.HINTS: f"up to {MAX_HINTS} known positive rows in each batch",
    Need.KNOWN_LABELS: f"up to {MAX_KNOWN_PER_CLASS} known labels of each class",
    Need.ONE_PER_CLASS: "one known label of each class",
    Need.FEW_LABELS: "up to 200 known labels",
    Need.AUXILIARY_FEATURES: "{known:,} known rows",
    Need.OTHER_ROWS: "{known:,} other rows",
    Need.INITIAL_WEIGHTS: "{known:,} known rows and the initial weights",
    Need.SIMULATOR: "{known:,} other rows with their labels",
    Need.CANDIDATE_ROWS: "{known:,} other rows with their labels",
    Need.SHADOW_ROWS: "{known:,} other rows with their labels",
}


def in_words(knowledge: Iterable[Need], known: int | None = None) -> tuple[str, ...]:
    """An attacker's knowledge, in words.

    Args:
        knowledge: Its needs.
        known: Number of rows whose features it knew; the maximum where it is not stated.

    >>> in_words([Need.AUXILIARY_FEATURES, Need.POSITIVE_SHARE], 512)
    ('the features of 512 released rows', 'the share of positive rows')
    """
    if known is None:
        return tuple(need.words for need in knowledge)
    return tuple(_WORDS[need].format(rows=f"{known:,}", bound="") for need in knowledge)


def condition(knowledge: Iterable[Need], known: int = 0) -> str:
    """An attacker's required knowledge of single rows, in a few words; empty where it needs none.

    Args:
        knowledge: Its needs.
        known: Number of rows whose features the attacker knows.

    >>> condition([Need.POSITIVE_SHARE, Need.FEW_LABELS]), condition([Need.AUXILIARY_FEATURES], 512), condition([])
    ('up to 200 known labels', '512 known rows', '')
    """
    needs = {*knowledge}
    return " and ".join(text for need, text in _CONDITIONS.items() if need in needs).format(known=known)


@dataclass(frozen=True, eq=False)
class Auxiliary:
    """Rows of a view whose features the attacker knows, and how the columns are encoded.

    Attributes:
        columns: Shape and names of the columns.
        indices: Indices of these rows in the view, distinct, int64 (m,); none for rows that are not in it.
        codes: Encoded categories of these rows, int32 (m, c).
        numbers: Encoded numbers, float32 (m, d), the pixels of an image last.
    """

    columns: ColumnSpec
    indices: Tensor
    codes: Tensor
    numbers: Tensor

    def unknown(self, rows: int) -> Tensor:
        """Indices of the other rows of a view of so many rows, ascending, int64."""
        unknown = torch.ones(rows, dtype=torch.bool)
        unknown[self.indices] = False
        return unknown.nonzero().flatten()


@dataclass(frozen=True, eq=False)
class Shadows:
    """The attacker's own rows, and the means to train shadow models on them.

    Attributes:
        task: Task of the job.
        rows: Row numbers of the attacker's own rows, int64 (n,); none of them is attacked.
        train: From some of these rows (or attacked rows, where the attacker knows them) and a number to a function that
            gives the view of any rows, as it would be if the job's models had been trained on the former.
        training_rows: Number of rows that the job's models were trained on.
    """

    task: Task
    rows: Tensor
    train: Callable[[Tensor, int], Callable[[Tensor], FeatureView]]
    training_rows: int


@dataclass(frozen=True, eq=False)
class Simulation:
    """The means to simulate the bottom model of the attacked party.

    Attributes:
        task: Task of the job.
        build: Makes a bottom model of that party's design; its weights come from torch's global generator.
        top: From embeddings in place of that party's, float (m, width), and the indices of their rows in the view,
            int64 (m,), to the logits of the final top model, (m, outputs). The other parties' embeddings of these rows
            are as received. Its weights are fixed.
    """

    task: Task
    build: Callable[[], nn.Module]
    top: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Knowledge:
    """Side knowledge given to an attack.

    Attributes:
        positive_share: Share of positive rows in the population, in (0, 1).
        known: Labels of a few rows, by row number of the common order: class codes, or values of a regression; they are
            never scored.
        class_shares: Share of each class in the population, by class code; a binary task has `positive_share`.
        auxiliary_rows: Rows whose features are known.
        shadow_rows: Rows for shadow models.
        initial_bottom: Bottom model of the attacked party with its initial weights.
        simulator: The means to simulate that bottom model.
        other_rows: Other rows of the population, none of which is in the view.
    """

    positive_share: float | None = None
    known: Mapping[int, float] = field(default_factory=dict)
    class_shares: tuple[float, ...] = ()
    auxiliary_rows: Auxiliary | None = None
    shadow_rows: Shadows | None = None
    initial_bottom: nn.Module | None = None
    simulator: Simulation | None = None
    other_rows: Auxiliary | None = None

    def held(self) -> frozenset[Need]:
        """The needs that this knowledge meets."""
        several = len(set(self.known.values())) > 1
        positive = any(label == 1 for label in self.known.values())
        meets = {
            Need.POSITIVE_SHARE: self.positive_share is not None,
            Need.CLASS_SHARES: self.positive_share is not None or bool(self.class_shares),
            Need.KNOWN_POSITIVE: positive,
            Need.HINTS: positive,
            Need.KNOWN_LABELS: several,
            Need.ONE_PER_CLASS: several,
            Need.FEW_LABELS: bool(self.known),
            Need.AUXILIARY_LABELS: several,
            Need.AUXILIARY_FEATURES: self.auxiliary_rows is not None,
            Need.INITIAL_WEIGHTS: self.auxiliary_rows is not None and self.initial_bottom is not None,
            Need.SIMULATOR: self.auxiliary_rows is not None and self.simulator is not None,
            Need.SHADOW_ROWS: self.shadow_rows is not None,
            Need.CANDIDATE_ROWS: self.shadow_rows is not None,
            Need.OTHER_ROWS: self.other_rows is not None,
        }
        return frozenset(need for need, met in meets.items() if met)

    @property
    def share(self) -> float:
        """The positive share; `NotApplicable` if it is not known."""
        return _required(self.positive_share, Need.POSITIVE_SHARE)

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each class by its code; `NotApplicable` if they are not known."""
        if self.class_shares:
            return self.class_shares
        positive = _required(self.positive_share, Need.CLASS_SHARES)
        return 1 - positive, positive

    @property
    def auxiliary(self) -> Auxiliary:
        """The rows of known features; `NotApplicable` if there are none."""
        return _required(self.auxiliary_rows, Need.AUXILIARY_FEATURES)

    @property
    def population(self) -> Auxiliary:
        """The other rows of the population; `NotApplicable` if there are none."""
        return _required(self.other_rows, Need.OTHER_ROWS)

    @property
    def initial(self) -> nn.Module:
        """The initial bottom model; `NotApplicable` if it is not known."""
        return _required(self.initial_bottom, Need.INITIAL_WEIGHTS)

    @property
    def simulation(self) -> Simulation:
        """The means to simulate a bottom model; `NotApplicable` if there are none."""
        return _required(self.simulator, Need.SIMULATOR)

    @property
    def shadows(self) -> Shadows:
        """The rows for shadow models; `NotApplicable` if there are none."""
        return _required(self.shadow_rows, Need.SHADOW_ROWS)

    def known_among(self, rows: Tensor) -> Tensor:
        """Whether each of `rows` (int64 (n,)) has a known label, bool (n,)."""
        return torch.isin(rows, torch.tensor(list(self.known), dtype=torch.int64))

    def positives_among(self, rows: Tensor) -> list[int]:
        """Indices in `rows` (int64 (n,)) of the rows known to be positive, ascending."""
        positives = [row for row, label in self.known.items() if label == 1]
        return torch.isin(rows, torch.tensor(positives, dtype=torch.int64)).nonzero().flatten().tolist()

    def labels_among(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of known labels, and these labels.

        Args:
            rows: Row numbers, int64 (n,), ascending; every row with a known label is among them.

        Returns:
            Indices in `rows`, int64 (m,), and class codes, int64 (m,), or the values of a regression, float64 (m,).
        """
        known = sorted(self.known.items())
        indices = torch.searchsorted(rows, torch.tensor([row for row, _ in known]))
        real = any(isinstance(label, float) for _, label in known)
        return indices, torch.tensor([label for _, label in known], dtype=torch.float64 if real else torch.int64)


def _required(value: T | None, need: Need) -> T:
    if value is None:
        raise NotApplicable.expected(f"knowledge of {need.words}", "none of it")
    return value
