"""The page of the embedding-budget study: claims, how far a single release came and why, tables and figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from studies.base import Mean, table
from studies.claims import Runs, Verdict, above, below, claims_table, metric, shown, verdicts
from studies.embedding_budget_claims import (
    DELTA,
    FITS,
    GOAL,
    GROUPS,
    METHODS,
    PER_EPOCH,
    TAIL,
    TOTALS,
    WIDTHS,
    BudgetClaims,
    OnceFit,
    budgeted,
    noiseless,
    told,
    unprotected,
    widths,
)
from studies.figures import Dot, Dots, plot

OPEN = "unprotected"


class BudgetPage:
    """What the results say."""

    def __init__(self, runs: Runs) -> None:
        self.runs, self.claims = runs, BudgetClaims(runs)

    def text(self) -> str:
        """The body of the page."""
        claims = self.claims.all()
        parts = [verdicts(claims), _JUDGED, claims_table(claims)]
        parts += [f"## At total epsilon {GOAL:g}: how far a single release came, and why", _WHY, self._far()]
        parts += [self._sentence(group, fit) for group in GROUPS for fit in FITS]
        parts += [_bounded(), _PAPER]
        for group in GROUPS:
            parts += self._group(group)
        return "\n\n".join(part for part in parts if part)

    def figures(self) -> dict[str, str]:
        """The metric by total, one for each data set."""
        return {_file(group): self._figure(group) for group in GROUPS}

    def _far(self) -> str:
        head = ["data", "method", "width", "alone", f"{OPEN}, best width", "added", "recovered per epoch"]
        rows = []
        for group, about in GROUPS.items():
            top = self.runs.mean((group, unprotected(self.claims.best_width(group) or WIDTHS[0])), metric)
            other = self.claims.recovered(group, budgeted(PER_EPOCH, GOAL, about.width))
            common = [shown(one) for one in (self.claims.alone(group), top, self.claims.added(group), other)]
            rows += [[group, fit.name, about.width, *common, *map(shown, self._parts(group, fit))] for fit in FITS]
        return table([*head, "recovered once", "lost by the fit", "lost by the noise"], rows)

    def _parts(self, group: str, fit: OnceFit) -> tuple[Mean | None, Mean | None, Mean | None]:
        """Shares of what the passive parties add: recovered, lost by the fit, lost by the noise; together 1."""
        width = GROUPS[group].width
        best = unprotected(self.claims.best_width(group) or WIDTHS[0])
        silent, noisy = noiseless(fit, width), budgeted(fit.name, GOAL, width)
        lost = self.claims.lost(group, best, silent), self.claims.lost(group, silent, noisy)
        return (self.claims.recovered(group, noisy), *lost)

    def _sentence(self, group: str, fit: OnceFit) -> str:
        kept, by_fit, by_noise = self._parts(group, fit)
        if kept is None or by_fit is None or by_noise is None:
            return f"{group}, `{fit.name}`: not run."
        told = f"{group}, `{fit.name}`: {_percent(kept)} is recovered. The fit loses {_percent(by_fit)}, the noise "
        return f"{told}{_percent(by_noise)}. {self._dearer(group, fit)}"

    def _dearer(self, group: str, fit: OnceFit) -> str:
        """Which of the two costs more, where the interval of their paired difference says so."""
        width = GROUPS[group].width
        more = self.claims.noise_beyond_fit(group, noiseless(fit, width), budgeted(fit.name, GOAL, width))
        if above(more, 0.0) is Verdict.HOLDS:
            return "The noise costs more."
        return "The fit costs more." if below(more, 0.0) is Verdict.HOLDS else "Which of them costs more is open."

    def _group(self, group: str) -> list[str]:
        def utility(setting: str) -> Mean | None:
            return self.runs.mean((group, setting), metric)

        def recovered(setting: str) -> Mean | None:
            return self.claims.recovered(group, setting)

        words, alone = GROUPS[group].words, shown(self.claims.alone(group))
        return [
            f"## {group}",
            _picture(group),
            f"{_upper(words)} by width of the cut; the active party alone has {alone}. {_left_out(group)}".strip(),
            self._table(group, utility, bounds=True),
            "The share of what the passive parties add that is recovered:",
            self._table(group, recovered, bounds=False),
        ]

    def _table(self, group: str, value: Callable[[str], Mean | None], *, bounds: bool) -> str:
        def row(total: str, method: str, setting: Callable[[int], str], of: tuple[int, ...]) -> list[str]:
            values = [shown(value(setting(width))) if width in of else "left out" for width in WIDTHS]
            beside = self._spent(group, setting(GROUPS[group].width)) if bounds else []
            return [total, method, *values, *beside]

        silent = [(f"{fit.name}, without noise", partial(noiseless, fit), widths(group, fit.name)) for fit in FITS]
        rows = [row("none", OPEN, unprotected, WIDTHS), *(row("none", *one) for one in silent)]
        for total in TOTALS:
            rows += [row(f"{total:g}", one, partial(budgeted, one, total), widths(group, one)) for one in METHODS]
        head = ["total epsilon", "method", *(f"width {width}" for width in WIDTHS)]
        return table(head + (["releases", "bound, one release", "bound, all", "ledger"] if bounds else []), rows)

    def _spent(self, group: str, setting: str) -> list[str]:
        """What the ledger says of a setting; the same at every width and for every seed."""
        found = [one.measured for one in self.runs.all((group, setting)) if "why" in one.measured]
        if not found:
            return ["–"] * 4
        own = found[0]
        if own["why"]:
            return ["–", "none", "none", "no formal guarantee"]
        return [str(own["releases"]), f"{own['auc_one']:.3f}", f"{own['auc_all']:.3f}", own["condition"]]

    def _figure(self, group: str) -> str:
        width, names = GROUPS[group].width, [f"{total:g}" for total in TOTALS]

        def level(name: str, mean: Mean | None) -> Dots:
            return Dots(name, tuple(Dot(place, mean.value, None, mean.half, name) for place in (0, 3)) if mean else ())

        def line(method: str) -> Dots:
            means = [self.runs.mean((group, budgeted(method, total, width)), metric) for total in TOTALS]
            dots = [
                Dot(place, m.value, None, m.half, f"{method}, {names[place]}") for place, m in enumerate(means) if m
            ]
            return Dots(method, tuple(dots))

        series = [
            level(OPEN, self.runs.mean((group, unprotected(width)), metric)),
            level("active party alone", self.claims.alone(group)),
            *map(line, METHODS),
        ]
        axes = (f"total epsilon at delta {DELTA:g}", GROUPS[group].words)
        return plot(series, axes, _caption(group), names=names)


_JUDGED = (
    "All widths are in the tables. Claims are judged at one width for each data set, which was fixed before: choosing "
    "a width by what was reached would be one more release for each that was tried. What the passive parties add is "
    "the test metric unprotected, at the width where that is best, less that of the active party alone. The second "
    "column is theory or goal; the paper has no figure at a total budget."
)
_WHY = (
    "Recovered is the share of what the passive parties add. The rest is lost in two steps, which these shares take "
    "apart, paired by seed. The *fit*: the bottom model is fixed before the release, and its embedding has no more "
    "dimensions than the cut; what it drops, no top model can have (unprotected at the best width, less once without "
    "noise, so that a cut narrower than that counts in). The *noise*: once without noise, less once with it. The best "
    "width is taken by the test rows, which makes what the parties add look a little larger than it is."
)
_PAPER = (
    "The paper's form has no such bound, whatever epsilon it is set to: its factor is estimated from other rows, and "
    "rows farther apart than the estimate exceed the sensitivity. Its authors claim their epsilon at delta plus "
    f"{TAIL:g}, the probability with which that may happen. So where it does better than ours at the same number, it "
    "has promised less."
)


def _percent(value: Mean) -> str:
    return f"{value.value:.0%}" + ("" if value.half is None else f" ± {value.half:.0%}")


def _bounded() -> str:
    """What a total allows at all, from the account alone."""
    each = "; ".join(
        f"in one of the {about.epochs} of {group} {told(GOAL, about.epochs):.3f}" for group, about in GROUPS.items()
    )
    return (
        f"Why noise must cost: at a total of epsilon {GOAL:g} and delta {DELTA:g}, and given the bottom model, no "
        f"test of a yes-or-no fact about a row can have a higher ROC AUC than {told(GOAL):.3f}, from all that one "
        "party releases of it. Whether a row belongs to a class can be told no better either from that alone, by any "
        f"top model. A single release may tell all of this; one release per epoch must share it: {each}. And the "
        "bottom model then learns from gradients of embeddings as noisy as that. *Given the bottom model*: it was "
        "fitted on the same rows, and what its weights tell of them is not in the account; the ledger says so of every "
        "total here."
    )


def _left_out(group: str) -> str:
    """Which widths a method was not run at, and by which rule."""
    short = [(fit.name, width) for fit in FITS for width in WIDTHS if width not in widths(group, fit.name)]
    told = ", ".join(f"`{name}` at width {width}" for name, width in short)
    rule = f"a passive party has {GROUPS[group].columns} columns, each category being one, and no more components"
    return f"Left out: {told}, since {rule}." if short else ""


def _caption(group: str) -> str:
    return f"{_upper(GROUPS[group].words)} by total epsilon, {group}, width {GROUPS[group].width}"


def _upper(words: str) -> str:
    return words[0].upper() + words[1:]


def _file(group: str) -> str:
    return f"embedding-budget-{'-'.join(group.lower().split())}.svg"


def _picture(group: str) -> str:
    return f"![{_caption(group)}](figures/{_file(group)})"
