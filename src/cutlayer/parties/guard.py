"""A party's scrutiny of what it receives: signs that its partner does not follow the protocol, and the alarm."""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from cutlayer.config.guard import GuardConfig
from cutlayer.errors import ConfigError, ProtocolError
from cutlayer.kernels.explained_gradient import Explained, ExplainedGradient

WINDOW = 16
"""Steps whose gradients are judged together."""
MIN_OFF, MIN_PREDICTED, MIN_STEPS = 0.15, 0.002, 12
"""Mean parts of the gradients' energy in a window, and steps of it with a prediction, from which on it is an alarm.

Honest trainings stay below one of them, with and without noise on gradients: docs/results/malicious.md.
"""
MIN_ROWS = 16
"""Rows of a batch below which its variance is a rough one."""
RECENT = 0.5
"""Weight of a batch's variance after the next one."""
VARIANCE_FACTOR, MAX_SHIFT = 4.0, 4.0
"""Change of the variance of a party's embeddings, up or down, and of their mean in variances, that is an alarm."""


@dataclass(frozen=True)
class Alarm:
    """A sign that a partner does not follow the protocol.

    Attributes:
        party: Party that raises the alarm.
        peer: Party that it is about.
        epoch: Number of the epoch, from 0.
        step: Number of the step within the epoch, from 0.
        detail: What was seen.
    """

    party: str
    peer: str
    epoch: int
    step: int
    detail: str


class _Guard:
    """Raises the alarm, at the first sign alone.

    Args:
        party: Party that is guarded.
        settings: Its settings.

    Attributes:
        alarms: What was seen.
    """

    def __init__(self, party: str, settings: GuardConfig) -> None:
        self.party, self.settings = party, settings
        self.alarms: list[Alarm] = []

    def _raise(self, peer: str, epoch: int, step: int, detail: str) -> None:
        """Record the first alarm about a peer, and stop where the settings say so.

        Raises:
            ProtocolError: They do.
        """
        if any(alarm.peer == peer for alarm in self.alarms):
            return
        self.alarms.append(Alarm(self.party, peer, epoch, step, detail))
        wanted = f"{self.party}: messages of {peer} as in an honest training"
        got = f"{detail} (epoch {epoch}, step {step})"
        if self.settings.on_alarm == "stop":
            remedy = f"ask {peer} before you train on; guard.on_alarm: warn goes on"
            raise ProtocolError.expected(wanted, got, remedy)
        warnings.warn(str(ProtocolError.expected(wanted, got)), stacklevel=2)


class GradientGuard(_Guard):
    """Scrutinises the gradients that a passive party receives, without labels.

    An honest gradient is (p - y) w: the gradients of a batch lie near few directions, as many as the classes less one,
    and what remains of them, once the model is calibrated, does not follow from the receiver's rows. A hijack trains
    the bottom model by an error that depends on the rows and needs other directions. So the alarm takes both: a part of
    the energy off the main directions, which noise has too, and predictions of it from the receiver's own rows, which
    no noise allows. What this cannot see: a hijack weaker than about a third of the honest gradients, or within the
    main directions (docs/results/malicious.md).

    Reference: the idea to look at intrinsic properties of gradients is that of Fu et al., Focusing on Pinocchio's nose
    (NDSS 2023), whose statistic needs labels; this statistic is ours.

    Args:
        party: The passive party.
        peer: The active party.
        settings: Its settings.
        width: Number of columns of its embedding.

    Raises:
        ConfigError: The embedding is too narrow to have directions beyond those of the label.
    """

    def __init__(self, party: str, peer: str, settings: GuardConfig, width: int) -> None:
        super().__init__(party, settings)
        directions = max(1, settings.classes - 1)
        if width <= directions:
            wanted = f"parties.{party}.guard with an embedding of more than {directions} columns"
            raise ConfigError.expected(
                wanted, width, "labels alone fill these; widen the bottom model, or leave it out"
            )
        self._peer = peer
        self._explained = ExplainedGradient(directions)
        self._window: deque[Explained] = deque(maxlen=WINDOW)

    def add(self, epoch: int, step: int, gradient: Tensor, embedding: Tensor, columns: Callable[[], Tensor]) -> None:
        """Judge the gradients of a batch together with those of the last ones.

        Args:
            epoch: Number of the epoch.
            step: Number of the step within the epoch.
            gradient: As received, float32 (n, width).
            embedding: As sent, float32 (n, width).
            columns: Returns the party's columns of these rows as one matrix, float32 (n, d).

        Raises:
            ProtocolError: The alarm, where the settings say stop.
        """
        explained = self._explained.add(gradient.flatten(1), embedding.detach().flatten(1), columns())
        if explained is None:
            return
        self._window.append(explained)
        off = sum(each.off for each in self._window) / WINDOW
        predicted = sum(each.predicted for each in self._window) / WINDOW
        often = sum(each.predicted > 0 for each in self._window) >= MIN_STEPS
        if len(self._window) == WINDOW and off > MIN_OFF and predicted > MIN_PREDICTED and often:
            detail = (
                f"gradients with {off:.0%} of their energy off the directions of {self.settings.classes} classes, of "
                f"which {self.party}'s own rows predict a part"
            )
            self._raise(self._peer, epoch, step, detail)


class EmbeddingGuard(_Guard):
    """Scrutinises the embeddings that the active party receives: their variance and their mean, from batch to batch.

    A probe replaces or scales the embeddings of whole batches. In an honest training both change slowly. What this
    cannot see: embeddings of single rows, and changes by less than a factor (docs/results/malicious.md).

    Args:
        party: The active party.
        settings: Its settings.
    """

    def __init__(self, party: str, settings: GuardConfig) -> None:
        super().__init__(party, settings)
        self._recent: dict[str, tuple[Tensor, float]] = {}

    def add(self, epoch: int, step: int, peer: str, embedding: Tensor) -> None:
        """Compare a batch of a peer with those before.

        Args:
            epoch: Number of the epoch.
            step: Number of the step within the epoch.
            peer: The passive party.
            embedding: As received, float32 (n, width).

        Raises:
            ProtocolError: The alarm, where the settings say stop.
        """
        rows = embedding.detach().flatten(1).double()
        if len(rows) < MIN_ROWS:
            return
        mean, variance = rows.mean(dim=0), float(rows.var(dim=0, correction=0).sum())
        if not math.isfinite(variance):  # refused elsewhere, where it comes from this party's own training too
            return
        if peer not in self._recent:
            self._recent[peer] = mean, variance
            return
        before, usual = self._recent[peer]
        shift = float((mean - before).square().sum())
        if usual > 0 and not usual / VARIANCE_FACTOR <= variance <= usual * VARIANCE_FACTOR:
            self._raise(peer, epoch, step, f"embeddings of {variance / usual:.2g} times their usual variance")
        elif usual > 0 and shift > MAX_SHIFT * usual:
            self._raise(peer, epoch, step, f"embeddings whose mean moved by {(shift / usual) ** 0.5:.2g} deviations")
        self._recent[peer] = RECENT * before + (1 - RECENT) * mean, RECENT * usual + (1 - RECENT) * variance
