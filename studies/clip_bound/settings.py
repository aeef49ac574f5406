"""Data sets and settings of the clip-bound study: the cut, the bound C and the learning rate, each two ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cutlayer.config import Job, validated
from studies.adaptive_embedding.protection import privacy_of
from studies.feature_privacy.settings import (
    ADJUST,
    DATA_SETS,
    DELTA,
    EPOCHS,
    FULL,
    OWNER,
    RESCALE,
    UNPROTECTED,
    VANILLA,
    DataSet,
    read_halves,
)
from studies.image_halves import LENET

RELU, LINEAR = "ReLU", "linear"
SMALL, LARGE = 1.0, 10.0
"""Two bounds C; training ends far below the large one where the learning rate is low."""
FUZZIFIER, THRESHOLD = 1.5, 0.7
"""Masks a quarter of the rows of the first seed of the digits; the default fuzzifier 1.1 masks one in a thousand."""


RECORDED = 3_200
"""Rows of each epoch of images that are recorded for the diagnostics, which read 50 batches of 64."""


@dataclass(frozen=True)
class Setup:
    """Where a pair of runs with and without a term is compared.

    Attributes:
        cut: Activation at the cut.
        clip: Bound C.
        rate: Learning rate of Adam.
    """

    cut: str
    clip: float
    rate: float

    def __str__(self) -> str:
        """The setup in words, as in the names of its settings."""
        return f"{self.cut}, C {self.clip:g}, rate {self.rate:g}"


@dataclass(frozen=True)
class Group:
    """A data set in its setups.

    Attributes:
        data: Data set, its parties and its network.
        paper: Setup nearest to the paper's: ReLU features at the cut, C above the norms, its learning rate or the
            lowest that learns from these rows.
        others: Further setups, in which `VANILLA` and `RESCALE` alone are trained.
        epochs: Number of epochs.
        protections: What is trained in the setup nearest to the paper's.
        published: Name of the paper's figures for this data set and cut; empty if it has none.
    """

    data: DataSet
    paper: Setup
    others: tuple[Setup, ...]
    epochs: int = EPOCHS
    protections: tuple[str, ...] = (UNPROTECTED, VANILLA, RESCALE, ADJUST, FULL)
    published: str = ""

    @property
    def images(self) -> bool:
        """Whether the parties hold images."""
        return bool(self.data.bottom["kind"] != "mlp")

    def settings(self) -> Iterator[tuple[str, Setup]]:
        """Name of what is protected, and the setup, of each setting."""
        for name in self.protections:
            yield name, self.paper
        for setup in self.others:
            for name in (VANILLA, RESCALE):
                yield name, setup
        if self.small not in self.others:
            yield VANILLA, self.small

    @property
    def small(self) -> Setup:
        """The paper's setup with the small C, where `VANILLA` is compared with rescaling under the large one."""
        return Setup(RELU, SMALL, self.paper.rate)


def setting_of(name: str, setup: Setup) -> str:
    """Name of a setting."""
    return f"{name}; {setup}"


def job_of(group: Group, name: str, setup: Setup, seed: int) -> Job:
    """The job of one setting over the tables of the group's data set: one private release of each row per epoch."""
    data = group.data
    raw = data.job(UNPROTECTED, seed).model_dump()
    raw["compare"] = ()
    raw["train"] |= {"optimizer": {"lr": setup.rate}, "epochs": group.epochs}
    cut = {"cut": "activated" if setup.cut == RELU else "linear"}
    bottom = data.bottom if data.bottom["kind"] == "python" else {**data.bottom, **cut}
    raw["model"] = {"bottom": bottom, "top": {"kind": "mlp", "hidden": ()}}
    for party in data.parties:
        own = raw["parties"][party]
        own["audit"] = {**own["audit"], "attacks": (), **({"rows": RECORDED} if group.images else {})}
        if name != UNPROTECTED:
            own["privacy"] = privacy_of(_protection(data, name, setup))
    raw["parties"][OWNER]["audit"] = {"every": "never"}
    return validated(Job, raw, "study")


def _protection(data: DataSet, name: str, setup: Setup) -> Mapping[str, Any]:
    section: dict[str, Any] = {"clip": setup.clip, "epsilon": data.epsilon, "delta": DELTA}
    section |= {"per": "release", "calibration": "classical"}
    if name in (RESCALE, FULL):
        section["estimate"] = {"every": 1}
    if name in (ADJUST, FULL):
        section["adjust"] = {"classes": data.classes, "fuzzifier": FUZZIFIER, "threshold": THRESHOLD}
    return section


def _data(name: str) -> DataSet:
    return next(data for data in DATA_SETS if data.group == name)


def _grid(paper: Setup, rates: tuple[float, ...]) -> tuple[Setup, ...]:
    every = [Setup(cut, clip, rate) for rate in rates for cut in (RELU, LINEAR) for clip in (SMALL, LARGE)]
    return tuple(setup for setup in every if setup != paper)


_LEFT, _TOP = ("left", "right"), ("top", "bottom")
_MAPS: Mapping[str, Any] = {"kind": "python", "path": "studies.clip_bound.maps:Maps"}


def _halves(name: str, path: str, parties: tuple[str, str], epsilon: float, bottom: Mapping[str, Any]) -> DataSet:
    """All images of a file, cut in two."""
    return DataSet(name, parties, partial(read_halves, path, None, parties), 10, epsilon, 64, bottom)


_LOW, _HIGH, _LOWEST = (Setup(RELU, LARGE, rate) for rate in (1e-4, 1e-3, 1e-5))
MNIST, ACROSS, CIFAR = "MNIST, left and right", "MNIST, top and bottom", "CIFAR-10, top and bottom"
_MNIST, _ACROSS = (_halves(name, "mnist/mnist.npz", cut, 64.0, _MAPS) for name, cut in ((MNIST, _LEFT), (ACROSS, _TOP)))
_CIFAR = _halves(CIFAR, "cifar10/cifar10_subset.npz", _TOP, 32.0, LENET)
_FEWER = (UNPROTECTED, VANILLA, RESCALE, FULL)
GROUPS: Mapping[str, Group] = {
    "handwritten": Group(_data("handwritten"), _LOW, _grid(_LOW, (1e-4, 1e-3))),
    "Adult": Group(_data("Adult"), _HIGH, (Setup(RELU, SMALL, 1e-3), _LOW), published="Adult"),
    MNIST: Group(_MNIST, _LOWEST, (), epochs=2, protections=_FEWER, published="MNIST halves"),
    ACROSS: Group(_ACROSS, _LOWEST, (), epochs=2, protections=(VANILLA, RESCALE)),
    CIFAR: Group(_CIFAR, _LOW, (), epochs=6, protections=_FEWER, published="CIFAR-10 halves"),
}
