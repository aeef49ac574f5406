"""Feature leakage from embeddings."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterator, Sequence

from cutlayer.attacks.knowledge import in_words
from cutlayer.report.columns_read import (
    EXACT_NOTE,
    column_strength,
    columns_read_figure,
    columns_read_phrase,
    knowledge_phrase,
)
from cutlayer.report.png import png_uri
from cutlayer.report.releases import release_words
from cutlayer.report.rounding import count, interval, metric
from cutlayer.report.section import (
    Answer,
    Block,
    Cell,
    Column,
    Fold,
    Items,
    Paragraph,
    Picture,
    Pictures,
    Section,
    Table,
    number,
    table,
)
from cutlayer.report.sections.scope import attack_glossary
from cutlayer.results.columns_read import by_knowledge, is_of_columns, weakest
from cutlayer.results.features import FeatureResult, ImagePair
from cutlayer.results.metric_names import name_of
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind

TITLE = "Feature leakage from embeddings"
_LEAD = "What the active party recovers from the embeddings that a passive party sent, beside that party's own rows."
_HOW = (
    "Without embedding is the best constant answer; other columns is the same attack on the columns of all other "
    "parties in place of the embedding. R² is of encoded columns; of several columns the one "
    f"recovered best is picked after the fact. {EXACT_NOTE}."
)
_IDEAL = (
    "Of grades the attacker has its own columns and labels too, and other columns is the attack on these without the "
    "grades. Ideal output is the same attack with the score of a model of all columns in place of the grades: a "
    "computation that reveals nothing else hands that to the label owner, so that no system of scores hides it."
)
_BRIEF = "by the active party, from what it received; without embedding: the best constant answer"
_COLUMN_METRICS = ("baseline", "other_columns", "ideal", "mse", "baseline_mse", "accuracy", "majority")


def features_section(report: Report) -> Section | None:
    """Leaks of features; `None` if no attack on features was run."""
    results = report.features
    if not results:
        return None
    ideal = (Paragraph(_IDEAL),) if any(result.ideal is not None for result in results) else ()
    every = (Paragraph(_HOW), *ideal, Items(tuple(_knowledge(results))), _table(report))
    blocks: list[Block] = [Paragraph(_LEAD, "lead"), *_reached(report), Fold("Every attack and run", every)]
    for result in results:
        if result.pictures:
            title = f"{_title(result)}: the best, median and worst reconstruction"
            blocks.append(Pictures(title, tuple(_picture(pair) for pair in result.pictures)))
    columns = {_title(result): _columns(result) for result in results if result.columns}
    if columns:
        blocks.append(Fold("Column by column", tuple(columns.values())))
    blocks += attack_glossary(result.attack for result in results)
    brief: tuple[Block, ...] = (Paragraph(_BRIEF), *_reached(report), _table(report, _strongest(results)))
    return Section("features", TITLE, blocks, brief, "Feature leakage", _answers(report))


def _reached(report: Report) -> list[Table]:
    """What attacks on all columns of a party reach in this run, by what the attacker knows of rows."""
    results = by_knowledge(result for result in report.features if result.run == RunKind.THIS_RUN)
    parties = list(dict.fromkeys(result.party for result in report.features))
    reached = table(
        "The attack that reads most of a party's columns, by what the attacker knows of rows",
        sorted(results, key=lambda result: parties.index(result.party)),
        ("Columns of", lambda result: result.party),
        ("Attacker", knowledge_phrase),
        ("Attack", lambda result: result.attack),
        (number("Reads"), lambda result: Cell(columns_read_figure(result), tone=f"h{column_strength(result)}")),
        layout="stack",
    )
    return [reached] if results else []


def _knowledge(results: Sequence[FeatureResult]) -> Iterator[str]:
    """Knowledge of each attack, with the runs of each number of known rows where these differ."""
    for attack in dict.fromkeys(result.attack for result in results):
        runs: dict[str, dict[str, None]] = {}
        for result in results:
            if result.attack == attack:
                runs.setdefault("; ".join(in_words(result.knowledge, result.known)), {})[result.run] = None
        for text, names in runs.items():
            where = f" ({', '.join(names)})" if len(runs) > 1 else ""
            yield f"{attack} knows {text or 'only messages'}{where}."


def _strongest(results: Sequence[FeatureResult]) -> list[FeatureResult]:
    """All results of this run, and of each attack on another run the release of which it reads most."""
    best: dict[tuple[object, ...], FeatureResult] = {}
    for result in results:
        own = (result.release, result.column) if result.run == RunKind.THIS_RUN else ()
        key = (result.run, result.party, result.attack, result.metric, *own)
        if key not in best or (result.value or 0) > (best[key].value or 0):
            best[key] = result
    return list(best.values())


def _table(report: Report, results: Sequence[FeatureResult] | None = None) -> Table:
    def attack(result: FeatureResult) -> Cell:
        about = ", ".join(part for part in (result.run, result.column, result.release) if part)
        return Cell(f"{result.party}, {result.attack}", (about,))

    def further(result: FeatureResult) -> Cell:
        return Cell(pairs=tuple((name_of(name), metric(value)) for name, value in result.metrics.items()))

    hidden = any(result.ideal is not None for result in report.features)
    return table(
        "Attacks on features, with 95\u00a0% intervals over the attacked rows",
        report.features if results is None else results,
        ("Party and attack", attack),
        ("Metric", lambda result: name_of(result.metric)),
        (number("Reached"), lambda result: Cell(metric(result.value), (interval(result.low, result.high),))),
        (number("Without embedding"), lambda result: metric(result.baseline)),
        (number("Other columns"), lambda result: metric(result.other_columns)),
        *(((number("Ideal output"), lambda result: metric(result.ideal)),) if hidden else ()),
        (Column("Known", "number", note="rows", page_only=True), lambda result: count(result.known)),
        (Column("Attacked", "number", note="rows"), lambda result: count(result.rows)),
        (Column("Further metrics", page_only=True), further),
        highlight=lambda result: result.run == RunKind.THIS_RUN,
    )


def _title(result: FeatureResult) -> str:
    return f"{result.attack} on {result.party}, {result.run}, {result.release}"


def _columns(result: FeatureResult) -> Table:
    """Every column by the metrics that any column has."""
    keys = [key for key in _COLUMN_METRICS if any(getattr(column, key) is not None for column in result.columns)]
    return table(
        _title(result),
        result.columns,
        ("Column", lambda column: column.column),
        (number(name_of(result.metric)), lambda column: metric(column.value)),
        *((number(name_of(key)), lambda column, key=key: metric(getattr(column, key))) for key in keys),
    )


def _picture(pair: ImagePair) -> Picture:
    ssim = "" if pair.ssim is None else f", SSIM {metric(pair.ssim)}"
    truth, rebuilt = (_uri(text, pair.shape) for text in (pair.truth, pair.rebuilt))
    return Picture(pair.title, truth, rebuilt, f"{pair.title}, true and rebuilt: PSNR {metric(pair.psnr)} dB{ssim}")


def _uri(text: str, shape: tuple[int, int, int]) -> str:
    """The image as a data URI, an empty one where the bytes are no image of that shape."""
    try:
        return png_uri(base64.b64decode(text, validate=True), shape)
    except (binascii.Error, ValueError):
        return "data:,"


def _answers(report: Report) -> tuple[Answer, ...]:
    """What is read of each party's columns, and the strongest attack on one of them or on membership."""
    results = [result for result in report.features if result.run == RunKind.THIS_RUN]
    sentences = [
        f"{report.active.name}, {knowledge_phrase(result)}, {columns_read_phrase(result)}: {name_of(result.metric)} "
        f"{metric(result.value)}, 95\u00a0% interval {interval(result.low, result.high)} ({result.attack}, "
        f"{result.release}); without them {metric(result.baseline)}{_ideal(result)}."
        for result in weakest(results).values()
    ]
    others = [result for result in results if not is_of_columns(result) and result.value is not None]
    if others:
        sentences.append(_farthest(others, report.carried))
    return (Answer("Feature leakage", " ".join(sentences)),) if sentences else ()


def _farthest(results: Sequence[FeatureResult], carried: Collection[str]) -> str:
    """The value that is farthest above its baseline."""
    result = max(results, key=lambda result: (result.value or 0) - (result.baseline or 0))
    column = f" of {result.column}" if result.column else ""
    text = (
        f"{result.attack} on the {release_words(carried, [result.party])} ({result.release}) reaches "
        f"{name_of(result.metric)} {metric(result.value)}{column}; without them "
        f"{metric(result.baseline)}{_ideal(result)}."
    )
    if result.knowledge:
        text += f" The attacker knows {'; '.join(in_words(result.knowledge, result.known))}."
    return text


def _ideal(result: FeatureResult) -> str:
    """What no system could hide, as a part of a sentence."""
    if result.ideal is None:
        return ""
    text = f", without the grades {metric(result.other_columns)}, on the ideal output {metric(result.ideal)}"
    if result.pooled is None:
        return text
    together = f"{metric(result.pooled)}, and {metric(result.pooled_without)} without the grades"
    return f"{text}; together with all other partners {together}"
