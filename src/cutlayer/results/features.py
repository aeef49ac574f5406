"""Feature leakage: what attacks on embeddings recover of a party's features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import Field

from cutlayer.attacks.knowledge import Need
from cutlayer.config import FrozenModel
from cutlayer.results.number import Bounded, Number


class ColumnValue(FrozenModel):
    """How well one column was rebuilt or inferred.

    Attributes:
        column: Name of the column.
        value: R² of a rebuilt column, AUC of an inferred one, share of rows read exactly of one that was read.
        baseline: The same metric of an attacker that saw no embedding.
        other_columns: The same metric of the same attack on the columns of all other parties in place of the embedding;
            `None` where these are elsewhere.
        ideal: The same metric on the score of a model of all columns; `None` where it was not measured.
        mse: Mean squared error of a rebuilt column, in encoded units.
        baseline_mse: That of an attacker that saw no embedding.
        accuracy: Accuracy for an inferred column.
        majority: Accuracy of always answering its most frequent class.
    """

    column: str
    value: Number
    baseline: Number
    other_columns: Number = None
    ideal: Number = None
    mse: Number = None
    baseline_mse: Number = None
    accuracy: Number = None
    majority: Number = None


class ImagePair(FrozenModel):
    """An image and what was made of it: bytes of the pixels, channel by channel, row by row, base64.

    Attributes:
        title: Rank of the image among the attacked rows, such as `best`.
        psnr: Peak signal-to-noise ratio in decibels.
        ssim: Structural similarity; `None` where the images are smaller than its window.
        shape: Channels, height and width.
        truth: bytes of the true image.
        rebuilt: bytes of the reconstruction.
    """

    title: str
    psnr: Number
    ssim: Number = None
    shape: tuple[int, int, int]
    truth: str
    rebuilt: str


class FeatureResult(Bounded):
    """One attack on the features of one passive party, in one run.

    Attributes:
        run: Label of the run.
        party: Owner of the features.
        attack: Name of the attack.
        release: Release of the rows' embeddings that was read.
        known: Number of rows whose features the attacker had.
        rows: Number of attacked rows.
        metric: `r2`, `auc`, or `exact`: the share of rows whose value is read exactly, up to names, offset and unit.
        value: Value of that metric.
        low: Lower bound of the value (95 % interval over rows).
        high: Upper bound of it.
        baseline: The same metric of an attacker that saw no embedding.
        other_columns: The same metric of the same attack on the columns of all other parties in place of the embedding;
            `None` where these are elsewhere. Of grades the attacker has its columns and labels in any case, and this is
            without the grades.
        ideal: The same metric of the same attack on the ideal output in place of the grades: the score of a model of
            all columns, which any secure computation hands over; `None` where it was not measured.
        pooled: The same metric where the label owner and all other partners pool what they hold; `None` where it was
            not measured.
        pooled_without: That without the grades: what their columns tell of those of the party in any case.
        column: Name of the column that the value is of; empty where it is of all.
        metrics: Other metrics by name; of `exact` among others `columns_read`, the number of columns read exactly in
            99 % of the rows, of `columns` in all.
        columns: Values by column.
        pictures: True and rebuilt images.
        knowledge: Facts that the attacker was given.
    """

    run: str
    party: str
    attack: str
    release: str
    known: int
    rows: int
    metric: str
    value: Number
    baseline: Number
    other_columns: Number = None
    ideal: Number = None
    pooled: Number = None
    pooled_without: Number = None
    column: str = ""
    metrics: Mapping[str, Number] = Field(default_factory=dict)
    columns: tuple[ColumnValue, ...] = ()
    pictures: tuple[ImagePair, ...] = ()
    knowledge: tuple[Need, ...] = ()

    @property
    def without(self) -> Number:
        """The same metric without the embedding, as far as it is known: by a constant, or by other parties' columns."""
        known = [value for value in (self.baseline, self.other_columns) if value is not None]
        return max(known, default=None)

    @property
    def gains(self) -> bool:
        """Whether the whole interval is above what is reached without the embedding."""
        return self.low is not None and self.without is not None and self.low > self.without


def strongest(results: Iterable[FeatureResult]) -> list[FeatureResult]:
    """For each party and attack, the result farthest above what is reached without the embedding, if any is."""
    best: dict[tuple[str, str], tuple[float, FeatureResult]] = {}
    for result in results:
        key = (result.party, result.attack)
        gain = (result.value or 0.0) - (result.without or 0.0)
        if result.gains and (key not in best or gain > best[key][0]):
            best[key] = gain, result
    return [result for _, result in best.values()]
