"""The page of the study of departures: sections of settings by values."""

from __future__ import annotations

from collections.abc import Callable

from studies.charts import Chart, Series, series_of
from studies.departures.claims import (
    ACCURACY,
    AUC,
    DEPARTURES,
    MULTI_HEAD,
    NO_DROPOUT,
    PAPER,
    PAPER_ALONE,
    RATES,
    Departure,
    before,
    closed,
    departure_claims,
    gap,
    majority,
    rate_setting,
)
from studies.page import ClaimsTable, Page, Section, Table, file_name, table
from studies.results import Condition, Results, SeedMean, Value, formatted, measured, seconds

_READING = (
    "Accuracy on test rows. *p*: the rate of party dropout. After a departure zeros stand for the embeddings of the "
    "parties that left; *multi-head* then answers by the further head for those that remain. *Standalone*: the same "
    "network trained from the start without the parties that leave. *Gap closed*: share of the gap after the "
    "departure between p 0 and the standalone model, by the means, where p 0 is below it. *Fine-tuned*: after 5 more "
    "epochs of the top model without them. *Majority class*: the accuracy that others have to be compared with, most "
    "of all where one class is large. There a departure may turn nearly all answers to the smaller class, and "
    "whatever undoes that closes most of the gap. So for two classes a second table shows the ROC AUC, which does not "
    "depend on the level of the answers. Seconds are of the training alone."
)


def departures_page(results: Results) -> Page:
    """Claims, the paper's table, and a section for each data set and departure."""
    return Page(
        (
            Section("", (ClaimsTable(departure_claims(results)),)),
            Section("The paper's table, CIFAR-100", (_paper_table(results, "CIFAR-100 halves"),)),
            Section("Every data set", (_READING,)),
            *(_section(results, group, departure) for group, all_ in DEPARTURES.items() for departure in all_),
        )
    )


def _paper_table(results: Results, group: str) -> Table:
    (departure,) = DEPARTURES[group]
    paper = PAPER[group]
    columns: dict[str, Callable[[str], SeedMean | str | None]] = {
        "paper, before": lambda setting: f"{paper[setting][0]:.4f}",
        "paper, after": lambda setting: f"{paper[setting][1]:.4f}",
        "here, before": lambda setting: results.mean((group, setting), before()),
        "here, after": lambda setting: results.mean((group, setting), departure.after()),
    }
    alone = formatted(results.mean((group, NO_DROPOUT), departure.standalone()))
    tail = [("standalone", "", f"{PAPER_ALONE[group]:.4f}", "", alone)]
    return table("setting", {setting: setting for setting in paper}, columns, tail)


def _section(results: Results, group: str, departure: Departure) -> Section:
    conditions, base = results.conditions(group), (group, NO_DROPOUT)
    alone, largest = (formatted(results.mean(base, value)) for value in (departure.standalone(), majority))
    columns: dict[str, Callable[[Condition], SeedMean | str | None]] = {
        "before": results.column(before()),
        "lost (paired)": lambda own: "" if own == base else results.difference(base, own, before()),
        "after": results.column(departure.after()),
        "gap closed": lambda own: _share_closed(results, own, departure, ACCURACY),
        "fine-tuned": results.column(departure.finetuned()),
        "heads": lambda own: _whole(results.mean(own, measured("heads"))),
        "seconds": lambda own: _whole(results.mean(own, seconds)),
    }
    tail = [("standalone", "", "", alone), ("majority class", "", "", largest)]
    by_auc = _auc_table(results, group, departure)
    return Section(
        f"{group}: {departure.title}",
        (
            _chart(results, group, departure),
            table("setting", conditions, columns, tail),
            *(("By ROC AUC:", by_auc) if by_auc.rows else ()),
        ),
        level=3,
    )


def _auc_table(results: Results, group: str, departure: Departure) -> Table:
    """The settings whose trials have an AUC."""
    known = {name: own for name, own in results.conditions(group).items() if results.mean(own, before(AUC))}
    columns: dict[str, Callable[[Condition], SeedMean | str | None]] = {
        "before": results.column(before(AUC)),
        "after": results.column(departure.after(AUC)),
        "gap closed": lambda own: _share_closed(results, own, departure, AUC),
        "fine-tuned": results.column(departure.finetuned(AUC)),
    }
    alone = formatted(results.mean((group, NO_DROPOUT), departure.standalone(AUC)))
    return table("setting", known, columns, [("standalone", "", alone)])


def _share_closed(results: Results, own: Condition, departure: Departure, metric: str) -> str:
    """Share of the gap that a setting closes; blank at rate 0, or without a gap."""
    group, setting = own
    whole, part = gap(results, group, departure, metric), closed(results, group, setting, departure, metric=metric)
    if setting == NO_DROPOUT or not whole or not part or whole.value <= 0:
        return ""
    return f"{part.value / whole.value:.0%}"


def _chart(results: Results, group: str, departure: Departure) -> Chart:
    def by_rate(name: str, value: Value) -> Series:
        points = [(rate, results.mean((group, rate_setting(rate)), value), rate_setting(rate)) for rate in RATES]
        return series_of(name, points)

    def level(name: str, setting: str, value: Value) -> Series:
        return series_of(
            name, [(rate, results.mean((group, setting), value), setting) for rate in (RATES[0], RATES[-1])]
        )

    lines = (
        by_rate("before the departure", before()),
        by_rate("after the departure", departure.after()),
        by_rate("after the departure, fine-tuned", departure.finetuned()),
        level("standalone", NO_DROPOUT, departure.standalone()),
        level("further heads, before", MULTI_HEAD, before()),
        level("further heads, after", MULTI_HEAD, departure.after()),
    )
    words = departure.title if len(DEPARTURES[group]) > 1 else ""
    label = f"Accuracy by rate, {group}: {departure.title}"
    return Chart(file_name("departures", group, words), label, ("rate of party dropout", "accuracy"), lines)


def _whole(value: SeedMean | None) -> str:
    return "–" if value is None else f"{value.value:.0f}"
