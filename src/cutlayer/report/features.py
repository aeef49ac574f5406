"""What embeddings tell of features: the page's panel, the terminal's table and the Markdown one read it from here."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from cutlayer.report.png import png_uri
from cutlayer.report.rounding import count, interval, metric, name_of, plain
from cutlayer.results.features import FeatureResult, ImagePair
from cutlayer.results.report import THIS_RUN, Report

TOLD = "by the active party, from what it received; 95 % interval below; without embedding: the best constant answer"


@dataclass(frozen=True)
class Line:
    """One attack on one release of one party's embeddings; `further` are other measures by name."""

    party: str
    run: str
    attack: str
    column: str
    release: str
    measure: str
    value: str
    bounds: str
    baseline: str
    known: str
    rows: str
    further: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Columns:
    """The table of one attack's columns; each cell row begins with the column's name."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Shown:
    """An image and what was made of it, as data URIs."""

    title: str
    truth: str
    rebuilt: str
    figures: str


@dataclass(frozen=True)
class Told:
    """The panel "What embeddings tell of features".

    Attributes:
        lines: the table's. columns: of each attack that asks column by column. pictures: by what they are of.
        knowledge: what the attacker is given, by attack.
    """

    lines: tuple[Line, ...]
    columns: tuple[Columns, ...]
    pictures: tuple[tuple[str, tuple[Shown, ...]], ...]
    knowledge: tuple[tuple[str, str], ...]


def told_of(report: Report) -> Told | None:
    """The panel of a report; `None` where no attack on features was run."""
    parts = report.features
    if not parts:
        return None
    tables: dict[str, Columns] = {}
    for part in parts:
        if part.columns:
            tables.setdefault(_title(part), _columns(part))
    pictures = {_title(part): tuple(_shown(one) for one in part.pictures) for part in parts if part.pictures}
    return Told(
        lines=tuple(_line(part) for part in parts),
        columns=tuple(tables.values()),
        pictures=tuple(pictures.items()),
        knowledge=tuple(dict.fromkeys((part.attack, "; ".join(part.knowledge)) for part in parts)),
    )


def told_said(report: Report) -> str:
    """The answer to what embeddings tell, in a sentence: this run's figure farthest above its baseline."""
    own = [part for part in report.features if part.run == THIS_RUN]
    known = [(part.value - part.baseline, part) for part in own if part.value is not None and part.baseline is not None]
    if not known:
        return ""
    part = max(known, key=lambda pair: pair[0])[1]
    about = f" of {part.column}" if part.column else ""
    return (
        f"{part.attack} on the embeddings of {part.party} ({part.release}) reaches {name_of(part.metric)} "
        f"{metric(part.value)}{about}; without an embedding {metric(part.baseline)}."
    )


def told_table(report: Report) -> Table | None:
    """The table for a terminal."""
    found = told_of(report)
    if found is None:
        return None
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    table.add_column("party, attack", max_width=34, overflow="fold")
    table.add_column("", no_wrap=True)
    for words in ("reached", "no embedding", "rows"):
        table.add_column(words, justify="right", no_wrap=True)
    for line in found.lines:
        about = ", ".join(one for one in (line.run, line.column, line.release) if one)
        name = Text(plain(f"{line.party}, {line.attack}")) + Text(f"\n{plain(about)}", "dim")
        figure = Text(line.value) + Text(f"\n{line.bounds}", "dim")
        table.add_row(name, Text(line.measure), figure, Text(line.baseline), Text(line.rows))
    return table


def _line(part: FeatureResult) -> Line:
    return Line(
        party=part.party,
        run=part.run,
        attack=part.attack,
        column=part.column,
        release=part.release,
        measure=name_of(part.metric),
        value=metric(part.value),
        bounds=interval(part.low, part.high),
        baseline=metric(part.baseline),
        known=count(part.known),
        rows=count(part.rows),
        further=tuple((name_of(name), metric(value)) for name, value in part.metrics.items()),
    )


def _title(part: FeatureResult) -> str:
    return f"{part.attack} on {part.party}, {part.run}, {part.release}"


def _columns(part: FeatureResult) -> Columns:
    """Those measures that some column has."""
    names = ("value", "baseline", "mse", "baseline_mse", "accuracy", "majority")
    words = (name_of(part.metric), "without embedding", "MSE", "MSE without embedding", "accuracy", "majority share")
    kept = [
        (name, word)
        for name, word in zip(names, words, strict=True)
        if any(getattr(one, name) is not None for one in part.columns)
    ]
    rows: Sequence[tuple[str, ...]] = [
        (one.column, *(metric(getattr(one, name)) for name, _ in kept)) for one in part.columns
    ]
    return Columns(_title(part), tuple(word for _, word in kept), tuple(rows))


def _shown(one: ImagePair) -> Shown:
    likeness = "" if one.ssim is None else f", SSIM {metric(one.ssim)}"
    truth, rebuilt = (_uri(text, one.shape) for text in (one.truth, one.rebuilt))
    return Shown(one.title, truth, rebuilt, f"PSNR {metric(one.psnr)} dB{likeness}")


def _uri(text: str, shape: tuple[int, int, int]) -> str:
    """An empty picture where the report's bytes are no image of that shape."""
    try:
        return png_uri(base64.b64decode(text, validate=True), shape)
    except (binascii.Error, ValueError):
        return "data:,"
