"""A comparison of settings by seed: means, paired differences, what they settle, and the files of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from cutlayer.errors import ConfigError
from cutlayer.report.markdown import escape_markdown, table_markdown
from cutlayer.report.section import Cell, Column, Table, number, table
from cutlayer.results.metric_names import name_of
from cutlayer.storage.durable import write_whole
from cutlayer.version import __version__
from cutlayer_sweep.compare.figure import Figure, Panel
from cutlayer_sweep.metrics import CHOICE_IS_NOT_COUNTED, TrialMetrics
from cutlayer_sweep.seed_mean import SeedMean, seed_mean_of
from cutlayer_sweep.tex import table_tex

RULES = (
    "Each number is the mean over the seeds with its 95 % interval (Student's t); differences are paired by seed. A "
    "verdict is open where the interval holds 0. A seed draws split, batches and noise; the table and the secret, by "
    "which label DP draws, are the same in all. Intervals are not corrected for the number of comparisons."
)


class Quantity(NamedTuple):
    """A number of each training.

    Attributes:
        key: Name in files.
        title: Name in tables.
        of: Reads it; `None` where it is not defined.
        chance: Value that tells nothing.
    """

    key: str
    title: str
    of: Callable[[TrialMetrics], float | None]
    chance: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Settings of one job, each trained with the same seeds.

    Attributes:
        job: Name of the job.
        metric: Name of the headline metric.
        leak: Messages whose leak was measured.
        trials: Metrics by setting and seed; the first setting is what the others are compared with.
        guarantees: The ledger's totals of each setting, in words.
        failed: Reason of a setting that failed with a seed.
    """

    job: str
    metric: str
    leak: str
    trials: Mapping[str, Mapping[int, TrialMetrics]]
    guarantees: Mapping[str, tuple[str, ...]]
    failed: Mapping[str, str]

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What is compared: metric on test rows, leak, and columns rebuilt where some are attacked."""
        rebuilt = Quantity("rebuilt", "columns rebuilt", lambda trial: trial.rebuilt)
        attacked = any(trial.rebuilt is not None for trials in self.trials.values() for trial in trials.values())
        return (
            Quantity("test", f"test {name_of(self.metric)}", lambda trial: trial.test),
            Quantity("leak", "leak", lambda trial: trial.leak, 0.5),
            *([rebuilt] if attacked else []),
        )

    def mean(self, setting: str, quantity: Quantity) -> SeedMean | None:
        """Mean of a setting over its seeds; `None` without any."""
        return seed_mean_of(map(quantity.of, self.trials[setting].values()))

    def difference(self, setting: str, other: str, quantity: Quantity) -> SeedMean | None:
        """Mean of a setting minus another over the seeds of both, paired; `None` without a pair."""
        first, second = self.trials[setting], self.trials[other]
        pairs = [(quantity.of(first[seed]), quantity.of(second[seed])) for seed in first if seed in second]
        return seed_mean_of(a - b for a, b in pairs if a is not None and b is not None)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Setting and other setting: all against the first, then all others."""
        return [(second, first) for first, second in combinations(self.trials, 2)]

    @property
    def settings_table(self) -> Table:
        """Each setting with its means."""
        columns = [
            (number(quantity.title), lambda name, quantity=quantity: _text(self.mean(name, quantity)))
            for quantity in self.quantities
        ]
        return table(
            f"{self.job}: settings",
            self.trials,
            ("Setting", lambda name: name),
            *columns,
            (Column("strongest attack", "statement"), self._strongest),
            (number("seeds"), lambda name: str(len(self.trials[name]))),
        )

    @property
    def differences_table(self) -> Table:
        """Paired differences of each pair, a row for each quantity, and what they settle."""

        def read(record: tuple[str, str, Quantity]) -> SeedMean | None:
            return self.difference(*record)

        return table(
            f"{self.job}: differences",
            [(*pair, quantity) for pair in self.pairs for quantity in self.quantities],
            ("Setting", lambda record: f"{record[0]} − {record[1]}"),
            ("of", lambda record: record[2].title),
            (number("difference"), lambda record: _text(read(record))),
            (Column("verdict", "statement"), lambda record: verdict(read(record))),
        )

    @property
    def verdicts(self) -> list[str]:
        """What the differences to the first setting settle, a sentence each."""
        sentences = []
        for name, first in self.pairs[: len(self.trials) - 1]:
            parts = [f"{q.title} {verdict(self.difference(name, first, q))}" for q in self.quantities]
            sentences.append(f"{name} against {first}: {', '.join(parts)}")
        return sentences

    def plot(self) -> Figure:
        """Settings as points with intervals: shown in a notebook, and saved by `save` as SVG or PDF."""
        panels = [
            Panel(quantity.title, tuple(self.mean(name, quantity) for name in self.trials), quantity.chance)
            for quantity in self.quantities
        ]
        return Figure(f"{self.job}: settings compared", tuple(self.trials), tuple(panels))

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each training.

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ConfigError.expected("the package pandas", "none", "pip install pandas") from None
        return pd.DataFrame(self._records())

    def _repr_html_(self) -> str:
        """The means in a notebook."""
        return str(self.to_frame().groupby("setting", sort=False)[[q.key for q in self.quantities]].mean().to_html())

    def to_json(self) -> dict[str, Any]:
        """The content of `compare.json`."""
        differences = [
            {"setting": name, "other": other, "quantity": q.key, **_plain(self.difference(name, other, q))}
            for name, other in self.pairs
            for q in self.quantities
        ]
        means = [
            {"setting": name, "quantity": q.key, **_plain(self.mean(name, q))}
            for name in self.trials
            for q in self.quantities
        ]
        content = {**asdict(self), "means": means, "differences": differences}
        return {"cutlayer": __version__, **content, "rules": RULES, "uncounted": CHOICE_IS_NOT_COUNTED}

    def write(self, folder: Path) -> None:
        """Write the files of the comparison, each whole or not at all."""
        tables = (self.settings_table, self.differences_table)
        notes = [f"{name}: {'; '.join(each) or 'no formal guarantee'}" for name, each in self.guarantees.items()]
        notes += [f"{name} failed: {reason}" for name, reason in self.failed.items()]
        listed = "\n".join(f"- {escape_markdown(note)}" for note in notes)
        parts = [*map(table_markdown, tables), listed, RULES, CHOICE_IS_NOT_COUNTED]
        rows = self._records()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        files: dict[str, str | bytes] = {
            "json": json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n",
            "md": "\n\n".join(parts) + "\n",
            "csv": text.getvalue(),
            "tex": "\n".join(map(table_tex, tables)),
            "svg": self.plot().svg(),
            "pdf": self.plot().pdf(),
        }
        for ending, content in files.items():
            write_whole(folder / f"compare.{ending}", content)

    def _records(self) -> list[dict[str, Any]]:
        trained = ((name, seed, metrics) for name, trials in self.trials.items() for seed, metrics in trials.items())
        return [{"setting": name, "seed": seed, **asdict(metrics)} for name, seed, metrics in trained]

    def _strongest(self, name: str) -> Cell:
        attacks = dict.fromkeys(trial.where for trial in self.trials[name].values())
        return Cell(", ".join(attacks))


def verdict(mean: SeedMean | None) -> str:
    """What a paired difference settles.

    >>> verdict(SeedMean(-0.1, 0.02, 5)), verdict(SeedMean(0.01, 0.02, 5)), verdict(SeedMean(0.0, 0.0, 5))
    ('lower', 'open at 5 seeds, about 13 would settle it', 'equal')
    """
    if mean is None:
        return "not measured"
    if mean.seeds > 1 and mean.value == mean.half_width == 0:
        return "equal"
    if (side := mean.side_of(0.0)) is not None:
        return "lower" if side < 0 else "higher"
    text = f"open at {mean.seeds} seed{'s' * (mean.seeds != 1)}"
    enough = mean.seeds_to_settle(0.0)
    if enough is None:
        return text if mean.seeds == 1 else f"{text}, over 100 needed"
    return f"{text}, about {enough} would settle it"


def _text(mean: SeedMean | None) -> str:
    return "not available" if mean is None else str(mean)


def _plain(mean: SeedMean | None) -> dict[str, Any]:
    known = asdict(mean) if mean else {"value": None, "half_width": None, "seeds": 0}
    return {**known, "verdict": verdict(mean)}
