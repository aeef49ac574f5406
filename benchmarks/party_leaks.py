"""What an audit reads of each passive party, over settings and seeds: the loop of the benchmarks of defences."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cutlayer.results.audit import RunAudit
from cutlayer.results.leaks import LeakResult


@dataclass(frozen=True)
class PartyLeaks:
    """What an audit reads of one party.

    Attributes:
        gradients: Attacks on its gradients.
        embedding: Leak to the strongest attack on its embeddings.
        own_columns: Leak of its own columns.
        chance: What the whole catalogue reads of permuted labels.
    """

    gradients: Sequence[LeakResult]
    embedding: float
    own_columns: float
    chance: float

    def gradient(self, *, without: Sequence[str] = (), alone: Sequence[str] = ()) -> float:
        """Leak of the gradients to the strongest attack; 0.5 for none.

        Args:
            without: Names of attacks that are left out.
            alone: Names of the only attacks that count; all without any.
        """
        names = [leak for leak in self.gradients if leak.attack not in without]
        return max((leak.leak for leak in names if not alone or leak.attack in alone), default=0.5)


def leaks_of(audit: RunAudit, party: str) -> PartyLeaks:
    """What an audit reads of one party."""
    own = [leak for leak in audit.leaks if leak.party == party]
    baseline = audit.baseline(party)
    return PartyLeaks(
        [leak for leak in own if leak.message == "gradient"],
        max((leak.leak for leak in own if leak.message == "embedding"), default=0.5),
        (baseline and baseline.own_columns) or 0.5,
        (baseline and baseline.chance) or 0.5,
    )


Values = Mapping[str, tuple[float, ...]]
"""Values by passive party."""


def over_seeds(
    settings: Iterable[str], read: Callable[[str, int], Values], seeds: int
) -> Iterator[tuple[str, str, list[tuple[float, ...]]]]:
    """For each setting and passive party the values of all seeds, by value.

    Args:
        settings: Names of the settings.
        read: Trains and audits a setting with a seed.
        seeds: Number of seeds, which are 1, 2, ...
    """
    for setting in settings:
        runs = [read(setting, seed) for seed in range(1, seeds + 1)]
        for party in runs[0]:
            yield setting, party, list(zip(*(run[party] for run in runs), strict=True))


def means(columns: Iterable[Sequence[float]]) -> list[float]:
    """The mean of each value over the seeds, to three decimals."""
    return [round(statistics.mean(values), 3) for values in columns]
