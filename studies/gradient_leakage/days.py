"""Test AUC and leaks by day, with differences paired by seed and day: what ten small days can resolve."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise

from studies.charts import Chart, series_of
from studies.claims import NOT_TRIED, Claim, Verdict, above, all_hold, within
from studies.gradient_leakage.claims import PUBLISHED, short
from studies.page import Block, Section, file_name, table
from studies.results import UNDEFENDED, Results, SeedMean, TrialResult, formatted, seed_mean_of

TEST = "test"
_SHIFT = 0.08
"""Horizontal distance of two settings at the same day."""
ByDay = dict[tuple[int, str], float]


class Days:
    """Results by day.

    Args:
        results: All results.
        group: Group of the trials by day.
        settings: Six settings at most, `undefended` first.
        attacks: Attacks on gradients.
    """

    def __init__(self, results: Results, group: str, settings: Sequence[str], attacks: Sequence[str]) -> None:
        self.attacks = attacks
        self.results = {setting: results.all((group, setting)) for setting in settings if results.all((group, setting))}
        self.days = sorted({day for result in self._all() for day in result.measured["days"]})

    def values(self, setting: str, key: str) -> ByDay:
        """By seed and day: the test AUC (`TEST`), or what an attack gains above chance.

        The sign of a gain is that of the attack in the whole run, so that a day of pure chance gives 0 on average.
        """
        values = {}
        for result in self.results[setting]:
            sign = 1.0 if key == TEST or result.leaks[key]["auc"] >= 0.5 else -1.0
            for day, measured in result.measured["days"].items():
                value = measured["auc"] if key == TEST else sign * (measured["leaks"].get(key, math.nan) - 0.5)
                if not math.isnan(value):
                    values[result.seed, day] = value
        return values

    def of_day(self, setting: str, key: str, day: str) -> SeedMean | None:
        """Mean over the seeds of one day."""
        return seed_mean_of(value for (_, own), value in self.values(setting, key).items() if own == day)

    def difference(self, first: str, second: str, key: str, by: str) -> SeedMean | None:
        """Mean of `first` minus `second` on the same seed and day.

        Args:
            first: Setting.
            second: Setting that is subtracted.
            key: `TEST`, or `message/attack`.
            by: `day` for the interval over the days (each the mean of its seeds), `seed` for that over the seeds.
        """
        minuends, subtrahends = self.values(first, key), self.values(second, key)
        groups: dict[int | str, list[float]] = {}
        for pair in minuends.keys() & subtrahends.keys():
            groups.setdefault(pair[by == "day"], []).append(minuends[pair] - subtrahends[pair])
        return seed_mean_of(statistics.fmean(groups[name]) for name in sorted(groups, key=str))

    def claims(self, order: Sequence[str], losses: Mapping[str, float]) -> list[Claim]:
        """Whether the order of the leaks and the losses hold over the days.

        Args:
            order: Settings whose leak falls.
            losses: Test AUC lost in the report, by setting.
        """
        claims = []
        known = [setting for setting in order if setting in self.results]
        for attack in self.attacks:
            for first, second in pairwise(known):
                falls = [self.difference(first, second, f"gradient/{attack}", by) for by in ("day", "seed")]
                text = f"`{attack}`: the leak falls from {short(first)} to {short(second)}"
                source = "every day" if attack == PUBLISHED else NOT_TRIED
                verdict = all_hold(above(fall, 0.0) for fall in falls)
                claims.append(Claim(text, source, _of_both(falls), verdict))
        for setting, paper in losses.items():
            lost = [self.difference(UNDEFENDED, setting, TEST, by) for by in ("day", "seed")]
            text = f"{setting} costs {paper:g} of test AUC, within 0.01"
            verdict = all_hold(within(value, paper, 0.01) for value in lost)
            claims.append(Claim(text, f"{paper:g}", _of_both(lost), verdict))
        return claims

    def section(self) -> Section:
        """Charts and tables by setting and by day, and the pairs of settings that cannot be resolved."""
        blocks: list[Block] = [self._chart("test", TEST, "test AUC")]
        blocks += [self._chart(a, f"gradient/{a}", f"leak AUC above 0.5, {a}") for a in self.attacks]
        lost = partial(self.difference, UNDEFENDED, key=TEST)
        head: dict[str, Callable[[str], SeedMean | str | None]] = {
            "test AUC lost, interval over seeds": partial(lost, by="seed"),
            "interval over days": partial(lost, by="day"),
            "days on which it is resolved": self._resolved,
        }
        blocks += [self._precision(), table("defence", {name: name for name in [*self.results][1:]}, head)]
        for key in (TEST, *(f"gradient/{attack}" for attack in self.attacks)):
            name = "Test AUC" if key == TEST else f"`{key.partition('/')[2]}` on gradients, AUC above 0.5,"
            blocks += [f"{name} by day (YYMMDD):", self._table(key)]
            blocks.append(f"Not resolved over the days: {'; '.join(self._unresolved(key)) or 'no pair'}.")
        return Section("Avazu, by day", tuple(blocks))

    def _all(self) -> list[TrialResult]:
        return [result for results in self.results.values() for result in results]

    def _chart(self, name: str, key: str, axis: str) -> Chart:
        """A line for each setting over the days, side by side."""
        lines = []
        for index, setting in enumerate(self.results):
            shift = _SHIFT * (index - len(self.results) / 2)
            points = [
                (x + shift, self.of_day(setting, key, day), f"{setting}, {day}") for x, day in enumerate(self.days)
            ]
            lines.append(series_of(setting, points))
        reference = None if key == TEST else 0.0
        file = file_name("gradient-leakage days", name)
        return Chart(file, f"{axis} by day", ("day", axis), tuple(lines), reference, self.days)

    def _table(self, key: str) -> Block:
        columns = {setting: partial(self.of_day, setting, key) for setting in self.results}
        return table("day", {day: day for day in self.days}, columns)

    def _precision(self) -> str:
        days = [day for result in self._all() for day in result.measured["days"].values()]
        rows = statistics.fmean(day["rows"] for day in days)
        error = statistics.fmean(day["deviation"] for day in days)
        seeds = len(self.results[UNDEFENDED])
        return (
            f"A day has {rows:.0f} test rows for each seed. Its test AUC has a standard error of {error:.3f} "
            f"(bootstrap), about {error / math.sqrt(max(seeds, 1)):.3f} for the mean of {seeds} seeds. Differences "
            "are of the same seed and day. The interval over the days shows whether the days agree; the one over the "
            "seeds shows how much trainings differ. A day is resolved where its interval over the seeds excludes 0."
        )

    def _resolved(self, setting: str) -> str:
        base, own = self.values(UNDEFENDED, TEST), self.values(setting, TEST)
        count = 0
        for day in self.days:
            lost = seed_mean_of(base[pair] - own[pair] for pair in base.keys() & own.keys() if pair[1] == day)
            count += lost is not None and lost.half_width is not None and abs(lost.value) > lost.half_width
        return f"{count} of {len(self.days)}"

    def _unresolved(self, key: str) -> list[str]:
        pairs = [(a, b, self.difference(a, b, key, "day")) for a, b in combinations(self.results, 2)]
        clear = (Verdict.HOLDS, Verdict.FAILS)
        return [f"{a} and {b} ({formatted(gap)})" for a, b, gap in pairs if above(gap, 0.0) not in clear]


def _of_both(means: Sequence[SeedMean | None]) -> str:
    """A difference with its interval over the days and that over the seeds."""
    days, seeds = map(formatted, means)
    return f"{days} over the days, {seeds} over the seeds"
