"""The report, part by part: what each side could learn from what crossed, and from what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from cutlayer.config import Section
from cutlayer.config.job import Role
from cutlayer.report.figure import Figure


class LeakPart(Section):
    """One cell of the leak matrix: one attack on one kind of message of one party, in one run.

    Attributes:
        run: name of the run.
        protections: names of the protections that were active in it.
        party: the passive party on whose link the message crossed.
        message: kind of message.
        attack: its name.
        leak: max(AUC, 1 - AUC) at the worst epoch, 0.5 (chance) to 1.
        low: lower end of its 95 % bootstrap interval; 0.5 where that includes chance.
        high: upper end of that interval.
        epoch: the worst epoch, from 1.
        epochs_seen: number of epochs that the worst was taken over.
        pooled_auc: AUC over all sampled rows at once, at that epoch, with its sign.
        batch_auc: mean of the batches' AUC at that epoch, with its sign.
        first_epoch_leak: leak at the first epoch.
        also: AUC of other scores that the paper names.
        hard_accuracy: accuracy of the attack's own decisions, where the paper defines them.
        hard_auc: AUC of those decisions.
        rows: number of rows scored at that epoch.
        positives: number of positive rows among them.
        knowledge: what the attacker was given.
    """

    run: str
    protections: tuple[str, ...] = ()
    party: str
    message: Literal["gradient", "embedding"]
    attack: str
    leak: float
    low: Figure
    high: Figure
    epoch: int = Field(ge=1)
    epochs_seen: int
    pooled_auc: Figure
    batch_auc: Figure
    first_epoch_leak: Figure
    also: Mapping[str, Figure] = Field(default_factory=dict)
    hard_accuracy: Figure = None
    hard_auc: Figure = None
    rows: int
    positives: int
    knowledge: tuple[str, ...] = ()


class WorthPart(Section):
    """One variant of a completed model on the test rows, by the headline metric with its 95 % bootstrap interval."""

    variant: str
    value: Figure
    low: Figure
    high: Figure


class CompletionPart(Section):
    """One attack on the bottom model that one passive party keeps of one run.

    Attributes:
        labels: how many the attacker had; `all_labels` where they were all training rows'.
        variants: all of them. scratch: the same training from an untrained bottom model, on the same labels.
        knowledge: what the attacker was given.
    """

    run: str
    party: str
    attack: str
    labels: int
    all_labels: bool
    variants: tuple[WorthPart, ...]
    scratch: tuple[WorthPart, ...]
    knowledge: tuple[str, ...] = ()


class ColumnPart(Section):
    """How well one column was rebuilt (R2 and MSE in encoded units) or inferred (AUC and accuracy)."""

    column: str
    value: Figure
    baseline: Figure
    mse: Figure = None
    baseline_mse: Figure = None
    accuracy: Figure = None
    majority: Figure = None


class PicturePart(Section):
    """An image and what was made of it: bytes of the pixels, channel by channel, row by row, base64.

    Attributes:
        psnr: decibels. ssim: `None` where the images are smaller than its window.
        shape: channels, height, width.
    """

    title: str
    psnr: Figure
    ssim: Figure = None
    shape: tuple[int, int, int]
    truth: str
    rebuilt: str


class FeaturePart(Section):
    """One attack on the features of one passive party, in one run.

    Attributes:
        release: which release of the rows' embeddings was read.
        known: rows whose features the attacker had. rows: others, that were attacked.
        measure: of `value`, its bounds (95 % bootstrap) and the baseline, which saw no embedding.
        column: the one that the value is of; empty where it is of all.
        further: other measures.
        knowledge: what the attacker was given.
    """

    run: str
    party: str
    attack: str
    release: str
    known: int
    rows: int
    measure: str
    value: Figure
    low: Figure
    high: Figure
    baseline: Figure
    column: str = ""
    further: Mapping[str, Figure] = Field(default_factory=dict)
    columns: tuple[ColumnPart, ...] = ()
    pictures: tuple[PicturePart, ...] = ()
    knowledge: tuple[str, ...] = ()


class LayerPart(Section):
    """The leak of one layer's output, 0.5 to 1; `place` is its order along the network."""

    run: str
    party: str
    side: Role
    layer: str
    place: int
    leak: float
    epoch: int
