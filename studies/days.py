"""Test AUC and leaks by day, with differences paired by seed and by day: what ten small days can resolve."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations, pairwise

from studies.base import Mean, mean, table
from studies.claims import Claim, Runs, Verdict, above, every, shown, within
from studies.figures import Dot, Dots, plot

TEST = "test"
_APART = 0.08
Values = dict[tuple[int, str], float]


class Days:
    """What was found on each day.

    Args:
        runs: all results. group: of the cells by day.
        settings: six at most, `undefended` first. attacks: on gradients.
    """

    def __init__(self, runs: Runs, group: str, settings: Sequence[str], attacks: Sequence[str]) -> None:
        self.runs, self.group, self.attacks = runs, group, attacks
        self.settings = [setting for setting in settings if runs.all((group, setting))]
        every_run = [one for setting in self.settings for one in runs.all((group, setting))]
        self.days = sorted({day for one in every_run for day in one.measured["days"]})

    def values(self, setting: str, key: str) -> Values:
        """By seed and day: the test AUC (`TEST`), or what an attack gains above chance.

        The side that an attack's scores point to is that of the whole run, so a day of pure chance gives 0 on average.
        """
        found = {}
        for one in self.runs.all((self.group, setting)):
            side = 1.0 if key == TEST or one.leaks[key]["auc"] >= 0.5 else -1.0
            for day, figures in one.measured["days"].items():
                value = figures["auc"] if key == TEST else side * (figures["leaks"].get(key, math.nan) - 0.5)
                if not math.isnan(value):
                    found[one.seed, day] = value
        return found

    def of_day(self, setting: str, key: str, day: str) -> Mean | None:
        """Mean over the seeds of one day."""
        return _mean([value for (_, own), value in self.values(setting, key).items() if own == day])

    def difference(self, first: str, second: str, key: str, by: str) -> Mean | None:
        """Mean of `first` less `second` on the same seed and day.

        Args:
            by: `day` gives the interval over the days (each the mean of its seeds), `seed` that over the seeds.
        """
        ones, others = self.values(first, key), self.values(second, key)
        grouped: dict[int | str, list[float]] = {}
        for pair in ones.keys() & others.keys():
            grouped.setdefault(pair[by == "day"], []).append(ones[pair] - others[pair])
        return _mean([statistics.fmean(grouped[name]) for name in sorted(grouped, key=str)])

    def claims(self, order: Sequence[str], losses: dict[str, float]) -> list[Claim]:
        """Whether the order of the leaks and the losses hold over the days.

        Args:
            order: settings whose leak falls. losses: of test AUC in the report, by setting.
        """
        claims = []
        known = [setting for setting in order if setting in self.settings]
        for attack in self.attacks:
            steps = [self.difference(first, second, f"gradient/{attack}", "day") for first, second in pairwise(known)]
            told = ", ".join(shown(step) for step in steps)
            text = f"`{attack}`: the leak falls from {_chain(known)}"
            claims.append(Claim(text, "every day", f"falls by {told}", every(above(step, 0.0) for step in steps)))
        for setting, paper in losses.items():
            lost = [self.difference("undefended", setting, TEST, by) for by in ("day", "seed")]
            text = f"{setting} costs {paper:g} of test AUC, within 0.01"
            told = f"{shown(lost[0])} over the days, {shown(lost[1])} over the seeds"
            claims.append(Claim(text, f"{paper:g}", told, every(within(one, paper, 0.01) for one in lost)))
        return claims

    def text(self) -> str:
        """Tables by setting and by day, and what cannot be resolved."""
        keys = {"test AUC": TEST} | {attack: f"gradient/{attack}" for attack in self.attacks}
        rows = [
            [setting, *(self._lost(setting, by) for by in ("seed", "day")), self._resolved(setting)]
            for setting in self.settings[1:]
        ]
        head = ["defence", "test AUC lost, interval over seeds", "interval over days", "days on which it is resolved"]
        parts = [self._precision(), table(head, rows)]
        for name, key in keys.items():
            what = "Test AUC" if key == TEST else f"`{name}` on gradients, AUC above 0.5,"
            cells = [[day, *(shown(self.of_day(one, key, day)) for one in self.settings)] for day in self.days]
            unresolved = self._unresolved(key)
            parts += [f"{what} by day (YYMMDD):", table(["day", *self.settings], cells)]
            parts.append(f"Not resolved over the days: {'; '.join(unresolved) or 'no pair'}.")
        return "\n\n".join(parts)

    def figure(self, key: str, label: str) -> str:
        """A line per setting over the days."""
        series = []
        for place, setting in enumerate(self.settings):
            shift = _APART * (place - len(self.settings) / 2)
            means = [(x, day, self.of_day(setting, key, day)) for x, day in enumerate(self.days)]
            dots = tuple(Dot(x + shift, m.value, None, m.half, f"{setting}, {day}") for x, day, m in means if m)
            series.append(Dots(setting, dots))
        return plot(series, ("day", label), f"{label} by day", None if key == TEST else 0.0, self.days)

    def _precision(self) -> str:
        figures = [
            day
            for setting in self.settings
            for one in self.runs.all((self.group, setting))
            for day in one.measured["days"].values()
        ]
        rows = statistics.fmean(day["rows"] for day in figures)
        error = statistics.fmean(day["deviation"] for day in figures)
        seeds = len(self.runs.all((self.group, "undefended")))
        return (
            f"A day has {rows:.0f} test rows a seed; its test AUC has a standard error of {error:.3f} (bootstrap), "
            f"about {error / math.sqrt(max(seeds, 1)):.3f} for the mean of {seeds} seeds. Differences are of the same "
            "seed and day. The interval over the days says whether the days agree; how much trainings differ is in the "
            "one over the seeds. A day is resolved where its interval over the seeds leaves out 0."
        )

    def _lost(self, setting: str, by: str) -> str:
        return shown(self.difference("undefended", setting, TEST, by))

    def _resolved(self, setting: str) -> str:
        base, own = self.values("undefended", TEST), self.values(setting, TEST)
        count = 0
        for day in self.days:
            lost = _mean([base[pair] - own[pair] for pair in base.keys() & own.keys() if pair[1] == day])
            count += lost is not None and lost.half is not None and abs(lost.value) > lost.half
        return f"{count} of {len(self.days)}"

    def _unresolved(self, key: str) -> list[str]:
        pairs = [(one, other, self.difference(one, other, key, "day")) for one, other in combinations(self.settings, 2)]
        return [
            f"{one} and {other} ({shown(gap)})"
            for one, other, gap in pairs
            if Verdict.OPEN in (above(gap, 0.0), Verdict.NOT_RUN)
        ]


def _mean(values: Sequence[float]) -> Mean | None:
    return mean(values) if values else None


def _chain(settings: Sequence[str]) -> str:
    return " to ".join(setting.removeprefix("sum_kl ") for setting in settings)
