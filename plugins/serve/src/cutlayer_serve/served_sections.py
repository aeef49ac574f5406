"""Results of attacks on a sample of served embeddings."""

from __future__ import annotations

from collections.abc import Iterator

from cutlayer.attacks.knowledge import in_words
from cutlayer.report.rounding import count, interval, metric
from cutlayer.report.section import Cell, Section, number, table
from cutlayer.results.leaks import LeakResult
from cutlayer.results.metric_names import name_of
from cutlayer_serve.served_result import ServedAudit


def served_sections(audit: ServedAudit) -> Iterator[Section]:
    """The leaks of labels, and those of features, if any were measured."""
    baselines = {baseline.party: baseline for baseline in audit.baselines}

    def columns(leak: LeakResult) -> str:
        return metric(baselines[leak.party].own_columns) if leak.party in baselines else ""

    def chance(leak: LeakResult) -> str:
        return metric(baselines[leak.party].chance) if leak.party in baselines else ""

    if audit.leaks:
        leaks = table(
            "Attacks on labels, with 95\u00a0% intervals",
            sorted(audit.leaks, key=lambda leak: -leak.leak),
            ("Party and attack", lambda leak: Cell(f"{leak.party}, {leak.attack}", in_words(leak.knowledge))),
            (number("Leak"), lambda leak: Cell(metric(leak.leak), (interval(leak.low, leak.high),))),
            (number("Own columns"), columns),
            (number("Permuted"), chance),
            (number("Rows"), lambda leak: count(leak.rows)),
        )
        yield Section("served-labels", "Label leakage from served embeddings", (), (leaks,), "", ())
    if audit.features:
        features = table(
            "Attacks on features, with 95\u00a0% intervals",
            audit.features,
            ("Party and attack", lambda result: Cell(f"{result.party}, {result.attack}", (result.column,))),
            ("Metric", lambda result: name_of(result.metric)),
            (number("Reached"), lambda result: Cell(metric(result.value), (interval(result.low, result.high),))),
            (number("Without embedding"), lambda result: metric(result.baseline)),
            (number("Rows"), lambda result: count(result.rows)),
        )
        yield Section("served-features", "Feature leakage from served embeddings", (), (features,), "", ())
