"""Utility and leak of the defences of labels on `examples/adult.yaml`, read by attacks on all releases of a row.

Each setting is trained on the demo's table (39,074 training rows, batch 512, 6 epochs) with the seeds 1, 2, ... for
the job, and every message to the census office is attacked. Noise comes from a supplied key: results repeat.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks import adult
from benchmarks.release_attacks import Releases, known_half, leak, without_labels
from cutlayer.channel.transcript import Step
from cutlayer.jobs.options import Progress
from cutlayer.problem.task import Task

PARTY = "census_office"
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "undefended": {},
    "marvell, paper, sum_kl 0.16": {"marvell": {"sum_kl": 0.16, "form": "paper"}},
    "marvell, sum_kl 0.16": {"marvell": {"sum_kl": 0.16, "form": "shared"}},
    "marvell, sum_kl 0.64": {"marvell": {"sum_kl": 0.64, "form": "shared"}},
    "iso_noise, ratio 25": {"iso_noise": {"ratio": 25.0, "form": "paper"}},
    "iso_noise, ratio 12": {"iso_noise": {"ratio": 12.0, "form": "paper"}},
    "max_norm, paper": {"max_norm": {"form": "paper"}},
    "max_norm, once": {"max_norm": {"form": "once"}},
}


@dataclass(frozen=True)
class Defended:
    """One setting; each value is the mean over the seeds.

    Attributes:
        test_auc: test AUC of the model.
        leaks: leak AUC of each attack that knows no label.
        known_half: leak AUC of a linear reading that knows every other row's label.
    """

    setting: str
    test_auc: float
    leaks: Mapping[str, float]
    known_half: float


@dataclass(frozen=True)
class LabelDefences:
    """All settings."""

    name: str
    seeds: int
    settings: tuple[Defended, ...]


class Messages(Progress):
    """Collects what crossed between the active party and the passive parties."""

    def __init__(self) -> None:
        self.epochs: list[Sequence[Step]] = []

    def started(self, task: Task, truth: Tensor, training: Tensor, epochs: int, start: int) -> None:
        """Take the labels of the training rows."""
        self.training = training.sort().values
        self.labels = truth[self.training].long()

    def leaks(self, epoch: int, steps: Sequence[Step]) -> Mapping[str, float]:
        """Take the messages of an epoch."""
        self.epochs.append(steps)
        return {}

    def releases(self, party: str) -> Releases:
        """The messages of one passive party by epoch and training row."""
        position = torch.full((int(self.training.max()) + 1,), -1)
        position[self.training] = torch.arange(len(self.training))
        batches = [[position[step.rows] for step in steps] for steps in self.epochs]
        gradients, embeddings = (
            torch.stack([self._by_row(steps, kind, party, position) for steps in self.epochs])
            for kind in ("gradients", "embeddings")
        )
        return Releases(gradients, embeddings, batches)

    @staticmethod
    def _by_row(steps: Sequence[Step], kind: str, party: str, position: Tensor) -> Tensor:
        rows = position[torch.cat([step.rows for step in steps])]
        return torch.cat([getattr(step, kind)[party] for step in steps])[rows.argsort()]


def label_defences(seeds: int) -> LabelDefences:
    """Train and attack every setting with each seed."""
    settings = []
    for setting, privacy in SETTINGS.items():
        measured = [_measured(setting, privacy, seed) for seed in range(1, seeds + 1)]
        names = measured[0][1]
        settings.append(
            Defended(
                setting,
                round(statistics.mean(auc for auc, _, _ in measured), 4),
                {name: round(statistics.mean(leaks[name] for _, leaks, _ in measured), 3) for name in names},
                round(statistics.mean(known for _, _, known in measured), 3),
            )
        )
    return LabelDefences("label_defences", seeds, tuple(settings))


def _measured(setting: str, privacy: Mapping[str, Any], seed: int) -> tuple[float, dict[str, float], float]:
    auc, messages = trained(setting, privacy, seed)
    releases, labels = messages.releases(PARTY), messages.labels
    return auc, without_labels(releases, labels), leak(known_half(releases, labels), labels[1::2])


def trained(setting: str, privacy: Mapping[str, Any], seed: int, **train: Any) -> tuple[float, Messages]:
    """Test AUC of `examples/adult.yaml` with other protections of the active party, and its messages.

    Args:
        setting: name of the setting, of which the noise key is a hash.
        privacy: protections of the active party.
        seed: seed of the job.
        train: further settings of `train`.
    """
    audit = {"attacks": [], "rows": 2**20, "layers": False, "every": "end", "max_megabytes": 1}
    messages = Messages()
    run = adult.trained(adult.adult_job(privacy, audit, seed=seed, **train), f"{setting} {seed}", messages)
    return float(run.active.metrics["auc"]), messages
