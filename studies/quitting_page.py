"""The page of the quitting study: claims, tables and figures from its results."""

from __future__ import annotations

from functools import partial

from studies.base import Mean, table
from studies.claims import Runs, Value, claims_table, shown, verdicts
from studies.figures import Dot, Dots, plot
from studies.quitting_claims import (
    ACCURACY,
    AUC,
    MULTI_HEAD,
    OPEN,
    PAPER,
    PAPER_ALONE,
    QUITS,
    RATES,
    Quit,
    QuittingClaims,
    before,
    majority,
    rate_setting,
)


class QuittingPage:
    """What the results say."""

    def __init__(self, runs: Runs) -> None:
        self.runs, self.claims = runs, QuittingClaims(runs)

    def text(self) -> str:
        """The body of the page."""
        claims = self.claims.all()
        parts = [
            verdicts(claims),
            claims_table(claims),
            "## The paper's table, CIFAR-100",
            self._paper("CIFAR-100 halves"),
            "## Every data set",
            "Accuracy on test rows. *p*: the rate of party dropout. After a quit zeros stand for the embeddings of "
            "those who left; *multi-head* then answers by the further head for those who are left. *Standalone*: the"
            " same network trained from the start without those who leave. *Gap closed*: of the gap after the quit "
            "between p 0 and the standalone model, by the means, where p 0 is below it. *Fine-tuned*: after the top "
            "model was trained on for 5 epochs without them. *Majority class*: what accuracy has to be read against,"
            " most of all where one class is large. There a quit may throw nearly all answers to the smaller class, "
            "and whatever undoes that closes most of the gap. So for two classes the ROC AUC, which the level of the"
            " answers does not move, stands beneath. Seconds are of the training alone.",
        ]
        for group, quits in QUITS.items():
            for quit_ in quits:
                parts += [f"### {group}: {quit_.words}", _picture(group, quit_), self._table(group, quit_)]
                parts += [self._by_auc(group, quit_)]
        return "\n\n".join(part for part in parts if part)

    def figures(self) -> dict[str, str]:
        """The page's figures."""
        return {_file(group, quit_): self._figure(group, quit_) for group, quits in QUITS.items() for quit_ in quits}

    def _paper(self, group: str) -> str:
        (quit_,) = QUITS[group]
        rows = []
        for setting, (old, new) in PAPER[group].items():
            ours = [shown(self.runs.mean((group, setting), value)) for value in (before, quit_.after)]
            rows.append([setting, f"{old:.4f}", f"{new:.4f}", *ours])
        alone = shown(self.runs.mean((group, OPEN), quit_.standalone))
        rows.append(["standalone", "", f"{PAPER_ALONE[group]:.4f}", "", alone])
        return table(["setting", "paper, before", "paper, after", "here, before", "here, after"], rows)

    def _table(self, group: str, quit_: Quit) -> str:
        rows = [self._row(group, setting, quit_) for setting in self.runs.settings(group)]
        alone = shown(self.runs.mean((group, OPEN), quit_.standalone))
        rows.append(["standalone", "", "", alone, "", "", "", ""])
        rows.append(["majority class", "", "", shown(self.runs.mean((group, OPEN), majority)), "", "", "", ""])
        head = ["setting", "before", "lost (paired)", "after", "gap closed", "fine-tuned", "heads", "seconds"]
        return table(head, rows)

    def _by_auc(self, group: str, quit_: Quit) -> str:
        """The table by ROC AUC, where the runs have it."""
        values: list[Value] = [partial(value, metric=AUC) for value in (before, quit_.after, quit_.finetuned)]
        rows = []
        for setting in self.runs.settings(group):
            old, new, tuned = (self.runs.mean((group, setting), value) for value in values)
            closed = "" if setting == OPEN else self._closed(group, setting, quit_, AUC)
            rows += [[setting, shown(old), shown(new), closed, shown(tuned)]] if old else []
        alone = self.runs.mean((group, OPEN), partial(quit_.standalone, metric=AUC))
        if not rows:
            return ""
        rows.append(["standalone", "", shown(alone), "", ""])
        return "By ROC AUC:\n\n" + table(["setting", "before", "after", "gap closed", "fine-tuned"], rows)

    def _row(self, group: str, setting: str, quit_: Quit) -> list[str]:
        place = (group, setting)
        values: tuple[Value, ...] = (before, quit_.after, quit_.finetuned)
        old, new, tuned = (shown(self.runs.mean(place, value)) for value in values)
        lost = "" if setting == OPEN else shown(self.runs.difference((group, OPEN), place, before))
        closed = "" if setting == OPEN else self._closed(group, setting, quit_)
        heads = self.runs.mean(place, lambda one: float(one.measured["heads"]))
        seconds = self.runs.mean(place, lambda one: one.seconds)
        return [setting, old, lost, new, closed, tuned, _whole(heads), _whole(seconds)]

    def _closed(self, group: str, setting: str, quit_: Quit, metric: str = ACCURACY) -> str:
        gap, closed = (
            self.claims.gap(group, quit_, metric),
            self.claims.closed(group, setting, quit_, metric=metric),
        )
        return f"{closed.value / gap.value:.0%}" if gap and closed and gap.value > 0 else ""

    def _figure(self, group: str, quit_: Quit) -> str:
        def dots(value: Value) -> tuple[Dot, ...]:
            means = [(rate, self.runs.mean((group, rate_setting(rate)), value)) for rate in RATES]
            return tuple(Dot(rate, m.value, None, m.half, rate_setting(rate)) for rate, m in means if m)

        def level(place: str, value: Value) -> tuple[Dot, ...]:
            mean = self.runs.mean((group, place), value)
            return tuple(Dot(x, mean.value, None, mean.half, place) for x in (RATES[0], RATES[-1])) if mean else ()

        series = [
            Dots("before the quit", dots(before)),
            Dots("after the quit", dots(quit_.after)),
            Dots("after the quit, fine-tuned", dots(quit_.finetuned)),
            Dots("standalone", level(OPEN, quit_.standalone)),
            Dots("further heads, before", level(MULTI_HEAD, before)),
            Dots("further heads, after", level(MULTI_HEAD, quit_.after)),
        ]
        return plot(series, ("rate of party dropout", "accuracy"), f"Accuracy by rate, {group}: {quit_.words}")


def _whole(value: Mean | None) -> str:
    return "–" if value is None else f"{value.value:.0f}"


def _file(group: str, quit_: Quit) -> str:
    words = f"quitting {group} {'' if len(QUITS[group]) == 1 else quit_.words}".lower()
    return "-".join(words.replace("-", " ").split()) + ".svg"


def _picture(group: str, quit_: Quit) -> str:
    return f"![Accuracy by rate, {group}: {quit_.words}](figures/{_file(group, quit_)})"
