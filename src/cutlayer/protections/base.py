"""The hooks of a protection, what it sees at each, and what it must be able to prove afterwards."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor

from cutlayer.accounting import Event
from cutlayer.config import Section
from cutlayer.errors import NotApplicable
from cutlayer.kernels.noise import standard_normal
from cutlayer.tasks import Task


class Side(StrEnum):
    """Who runs the protection: the party that owns what it protects."""

    ACTIVE = "active"
    PASSIVE = "passive"


class Asset(StrEnum):
    """What a protection protects."""

    LABELS = "labels"
    FEATURES = "features"
    MODEL = "model"


class Mode(StrEnum):
    """Why an embedding is released."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    SERVE = "serve"


class Noise:
    """Gaussian noise that only the owner of the key can repeat.

    Args:
        key: 32 bytes from the operating system; checkpointed privately, so that a resume repeats the noise.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def normal(self, shape: tuple[int, ...], *, hook: str, peer: str, step: int, content: Tensor) -> Tensor:
        """Standard normal float32 numbers; the same only for the same hook, peer, step and content.

        Args:
            shape: of the result.
            hook: the protection and what it needs the noise for; no two may share one.
            peer, step: where in the run the noise is used.
            content: what is being protected; other content gets fresh noise.
        """
        digest = hashlib.sha256(content.detach().contiguous().numpy().data).digest()
        nonce = json.dumps([hook, peer, step, list(content.shape), list(shape)]).encode() + digest
        return standard_normal(self._key, nonce, shape)


@dataclass(frozen=True)
class Context:
    """What a protection learns before step 0.

    Attributes:
        party: whose protection it is.
        peers: the parties at the other ends.
        widths: embedding width of each passive party.
        task: of the active party; `None` on a passive one.
        labels: the *protected* training labels by row of the common order (other rows hold no label); `None` on a
            passive party.
        training: row numbers of the training rows, int64.
        secret: the owner's long-lived secret, for draws that must repeat in the next run.
        noise: this run's noise.
        epochs, batch_size: the schedule.
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
    epochs: int = 1
    batch_size: int = 1


@dataclass(frozen=True)
class ActiveView:
    """What the active party's protections see at one step: no party's inputs.

    Attributes:
        step: counts all steps of the run, from 0.
        rows: row numbers of the batch, int64 (n,).
        labels: protected labels of the batch.
        embeddings: as received, by passive party, float32 (n, width).
        task_gradients: of the task loss, by passive party; empty before the backward pass.
    """

    mode: Mode
    epoch: int
    step: int
    rows: Tensor
    labels: Tensor
    embeddings: Mapping[str, Tensor]
    task_gradients: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class PassiveView:
    """What a passive party's protections see at one step: no labels.

    Attributes:
        embed: runs the bottom model on other rows, int64 (m,) -> (m, width).
        embedding: the released embedding, with its graph; `None` before the release.
        gradient: what came back; `None` before it came.
    """

    mode: Mode
    epoch: int
    step: int
    rows: Tensor
    embed: Callable[[Tensor], Tensor]
    embedding: Tensor | None = None
    gradient: Tensor | None = None


@dataclass(frozen=True)
class Evidence:
    """What one protection did in a run.

    Attributes:
        unit: what is counted, `messages` or `rows`.
        covered: how many the protection was applied to.
        sent: how many were sent.
        changed: how many of those differ from what they would have been without it.
        figures: the protection's own numbers, such as labels flipped.
    """

    protection: str
    party: str
    unit: str
    covered: int
    sent: int
    changed: int
    figures: Mapping[str, float] = field(default_factory=dict)


C = TypeVar("C", bound=Section)


class Protection(ABC, Generic[C]):
    """A defence: override the hooks it needs; the chain calls them.

    Class attributes:
        name: as in `privacy:` of a party file.
        config: the frozen section that configures it.
        side: who runs it. protects: what. reference: paper and section.
        rank: place in the chain; clipping (10) before noise (20) before post-processing that needs no noise (30).
        excludes: names of protections it cannot be combined with.
        tasks: the kinds of task it is defined for.
    """

    name: ClassVar[str]
    config: ClassVar[type[Section]]
    side: ClassVar[Side]
    protects: ClassVar[Asset]
    reference: ClassVar[str]
    rank: ClassVar[int]
    excludes: ClassVar[frozenset[str]] = frozenset()
    tasks: ClassVar[frozenset[str]] = frozenset({"binary", "multiclass", "regression"})

    def __init__(self, settings: C) -> None:
        self.settings = settings

    def setup(self, context: Context) -> None:
        """Called before step 0: on the active side first without labels, then again with the protected ones.

        Raises:
            NotApplicable: the protection is not defined for the task.
        """
        if context.task is not None:
            self.check_task(context.task.kind)
        self.context = context

    @classmethod
    def check_task(cls, kind: str) -> None:
        """Raise `NotApplicable` if the protection is not defined for this kind of task."""
        if kind not in cls.tasks:
            raise NotApplicable.expected(
                f"a task of kind {' or '.join(sorted(cls.tasks))} for {cls.name}", kind, "leave it out"
            )

    def labels(self, y: Tensor, ids: Tensor) -> Tensor:
        """Protect the training labels, once per run.

        Args:
            y: (n,) labels of the training rows.
            ids: uint8 (n, 16) digests of their row ids.
        """
        return y

    def embedding_out(self, e: Tensor, view: PassiveView) -> Tensor:
        """Protect an embedding (n, width) about to be released; differentiable."""
        return e

    def embeddings_in(self, es: Mapping[str, Tensor], view: ActiveView) -> Mapping[str, Tensor]:
        """Change the embeddings before the top model sees them."""
        return es

    def cut_gradient(self, view: ActiveView) -> tuple[float, Mapping[str, Tensor]]:
        """Return the weight of the task gradient and what to add to it, per passive party."""
        return 1.0, {}

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Protect the cut gradient (n, width) about to be sent to `party`."""
        return g

    def local_loss(self, view: PassiveView) -> Tensor | None:
        """A term added to the passive party's own backward pass."""
        return None

    @abstractmethod
    def event(self) -> Event:
        """What this protection will release, known before the run starts."""

    @abstractmethod
    def figures(self) -> Mapping[str, float]:
        """The protection's own evidence: labels flipped, signal-to-noise, ..."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values that a resumed run continues from."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
