"""Limits that a party sets for what its grades carry of its columns, and those that it has by default."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cutlayer.config.party import OTHER, limit_key, limited_by
from cutlayer.data.carried import NO_FEATURE, Carried, CarriedAttribute
from cutlayer.data.encoding import Encoder
from cutlayer.errors import ConfigError
from cutlayer.kernels.noise.score_bands import MIN_EPSILON, max_carried_share

SUSPICIOUS_SHARE = 0.95
"""Share of what a draw can carry of an attribute above which grades look as if they were made from that attribute."""
MAX_ADDED, MAX_ADDED_NEAR_ALL = 0.5, 0.1
"""Share of an attribute that several grades may carry by default in addition to what the best of them carries alone; a
tenth where they carry nearly all. Honest labels add up to .35 on seven of eight tables, attacking ones more
(docs/results/grades.md)."""


def check_names(encoder: Encoder, limits: Mapping[str, float], party: str) -> None:
    """Refuse limits of columns of which nothing is computed: they would never be reached.

    Raises:
        ConfigError: A limit is of no column that is encoded as categories or numbers, or of one that is not at hand.
    """
    for column in limited_by(limits) - {*encoder.value_columns}:
        wanted = f"parties.{party}.fit.limits of columns with categories or numbers that are read with the features"
        raise ConfigError.expected(wanted, repr(column), "leave it out")


class ExceededLimit(NamedTuple):
    """A limit that grades exceed.

    Attributes:
        attribute: The attribute of which they carry more.
        share: How much they carry.
        limit: The limit of its column.
        attributes: What they carry of each column.
        joined_with: With what else they carry it, in words; empty of these grades alone.
        by_default: Whether these grades alone exceed the default limit of a column without a stated one, this or
            another.
        no_features: Columns of these that are no features.
    """

    attribute: CarriedAttribute
    share: float
    limit: float
    attributes: Sequence[CarriedAttribute]
    joined_with: str = ""
    by_default: bool = False
    no_features: Sequence[str] = ()

    def refusal(self, party: str, remedy: str) -> ConfigError:
        """The error of a party whose grades are not sent for it, with what they would carry."""
        marks = dict.fromkeys(self.no_features, NO_FEATURE)
        shares = (f"{each.attribute}{marks.get(each.column, '')} {each.share:.2f}" for each in self.attributes[:5])
        table = "; ".join(shares)
        column = self.attribute.column
        wanted = f"{party}: grades that carry {self.limit:g} of an attribute of {column} at most{self.joined_with}"
        said = f"{remedy} (carried: {table}); nothing was sent"
        return ConfigError.expected(wanted, f"{self.share:.2f} of {self.attribute.attribute}", said)


def first_exceeded(found: Carried, limits: Mapping[str, float]) -> ExceededLimit | None:
    """The first limit that grades exceed; `None` where they keep all.

    Args:
        found: What they carry.
        limits: Largest share of an attribute of a column, by name of the column; `other` for all others, by default
            `default_limit`.
    """
    is_lowered = found.lowered is not None and found.lowered.by_default
    default = default_limit(found.epsilon, found.grades, is_lowered=is_lowered)
    stated = [(each, limits.get(limit_key(each.column), limits.get(OTHER))) for each in found.attributes]
    over = [(each, limit) for each, limit in stated if each.share > (default if limit is None else limit)]
    if over:
        (each, limit), by_default = over[0], any(limit is None for _, limit in over)
        most = default if limit is None else limit
        return ExceededLimit(each, each.share, most, found.attributes, "", by_default, found.no_features)
    beside = f" with those of {found.former} other release{'s' * (found.former != 1)} of these rows"
    for each in found.together:
        limit = limits.get(limit_key(each.column), limits.get(OTHER))
        # The default is of grades before they are drawn: what noise lets through depends on how they are joined.
        share, most = (each.undrawn or 0.0, default_joint_limit(each.alone)) if limit is None else (each.share, limit)
        if limit is None and is_lowered and share <= most:  # else draws of the same labels, each at 2, add up to all
            share, most = each.share, default
        if share > most:
            return ExceededLimit(each, share, most, found.together, beside, no_features=found.no_features)
    return None


def check_limits(found: Carried, limits: Mapping[str, float], party: str) -> None:
    """Refuse grades of a run that has ended that carry more of a column than their owner allows; see `first_exceeded`.

    Raises:
        ConfigError: More is carried of a column.
    """
    if (over := first_exceeded(found, limits)) is not None:
        remedy = f"predict without {party}, raise fit.limits in its private file, or train again with a lower epsilon"
        raise over.refusal(party, remedy)


def default_limit(epsilon: float | None, grades: int, *, is_lowered: bool = False) -> float:
    """Largest share that grades may carry of an attribute of a column without a limit.

    It is `SUSPICIOUS_SHARE` of all that the noise of their draw lets through: more looks as if labels were that
    attribute. What noise at `MIN_EPSILON` lets through is allowed at any epsilon. It is the limit itself where
    epsilon was lowered for that reason, since a part of what little noise lets through hides little: attacks that are
    refused at 8 carry .89 to .92 at 6, and are read at .99 (docs/results/grades.md).

    Args:
        epsilon: Privacy of a draw; `None` without noise.
        grades: Number of grades.
        is_lowered: Whether epsilon was lowered because a column without a limit looked as if labels were it.

    >>> default_limit(8.0, 16), default_limit(4.0, 4), default_limit(2.0, 2), default_limit(4.0, 4, is_lowered=True)
    (0.92, 0.74, 0.48, 0.48)
    """
    least = math.ceil(100 * max_carried_share(MIN_EPSILON, 2)) / 100
    return least if is_lowered else max(least, round(SUSPICIOUS_SHARE * max_carried_share(epsilon, max(grades, 2)), 2))


def default_joint_limit(alone: float) -> float:
    """Largest share that grades may carry together, before they are drawn, of what the best carries so much of alone.

    >>> [round(default_joint_limit(alone), 2) for alone in (0.0, 0.3, 0.45, 0.9)]
    [0.5, 0.8, 0.95, 1.0]
    """
    return round(min(alone + MAX_ADDED, max(SUSPICIOUS_SHARE, alone + MAX_ADDED_NEAR_ALL)), 2)
