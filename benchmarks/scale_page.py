"""`python -m benchmarks.scale_page` writes docs/results/scale.md and its figures from the results of `scale_rows`."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.scale import STAGES, Size, Stage, summary
from studies.charts import Chart, series_of
from studies.page import wrapped

RESULTS = Path(__file__).parent / "results" / "scale.json"
OUT = Path(__file__).parents[1] / "docs" / "results"
_BASE = "cutlayer"


@dataclass(frozen=True)
class Published:
    """What the page shows.

    Attributes:
        memory: Setting of `memory`.
        conditions: How all of it was measured, in sentences.
        sizes: Costs by side and rows.
        alignment: The sizes of `scale_alignment`.
        parts: Results of `row_memory`: part, rows and `extra_mb`.
    """

    memory: str
    conditions: str
    sizes: list[Size]
    alignment: list[dict[str, float]]
    parts: list[dict[str, Any]]


def load(path: Path) -> Published:
    """Read the results."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    sizes = []
    for size in raw["sizes"]:
        stages = {name: Stage(**stage) for name, stage in size.pop("stages").items()}
        sizes.append(Size(**size, stages=stages))
    ordered = sorted(sizes, key=lambda size: (size.side, size.rows))
    return Published(raw["memory"], raw["conditions"], ordered, raw["alignment"], raw["parts"])


def save(path: Path, published: Published) -> None:
    """Write results that `load` reads."""
    path.write_text(json.dumps(asdict(published), indent=1) + "\n", encoding="utf-8")


def figures(sizes: list[Size]) -> dict[str, str]:
    """Both charts, by file name."""
    sides = sorted({size.side for size in sizes})

    def lines(value: str) -> Chart:
        series = []
        for side in sides:
            of_side = [size for size in sizes if size.side == side]
            points = [
                (math.log10(size.rows), _seconds(size) if value == "seconds" else _peak(size), f"{size.rows:,} rows")
                for size in of_side
            ]
            series.append(series_of(side, points))
        title = "log10 of seconds of processor time" if value == "seconds" else "peak memory, MB"
        label = f"{title} against the number of rows"
        return Chart(f"scale-{value}.svg", label, ("log10 of rows of each table", title), tuple(series))

    return {chart.file: chart.svg() for chart in (lines("seconds"), lines("memory"))}


def _seconds(size: Size) -> float:
    """Logarithm of the time of the stages that both sides have."""
    return math.log10(sum(size.stages[name].seconds for name in ("read", "align", "encode", "train")))


def _peak(size: Size) -> float:
    return max(stage.peak_mb for stage in size.stages.values())


def page(published: Published) -> str:
    """The page as Markdown."""
    memory, conditions, sizes, alignment = (
        published.memory,
        published.conditions,
        published.sizes,
        published.alignment,
    )
    ours = [size for size in sizes if size.side == _BASE]
    scaling = summary(memory, sizes)
    slopes = "\n".join(f"| {name} | {slope:.2f} |" for name, slope in scaling.slopes.items())
    aligned = "\n".join(f"| {int(row['rows']):,} | {row['seconds']:.2f} | {row['peak_mb']:.0f} |" for row in alignment)
    sums = "\n".join(
        f"| {size.rows:,} | {size.bytes['report'] / 1024:,.0f} | {size.bytes['audit'] / 1024:,.0f} "
        f"| {size.bytes['transcript'] / 2**20:,.1f} | {size.bytes['labels'] / 2**20:,.1f} |"
        for size in ours
    )
    text = _TEXT.format(
        memory=memory,
        conditions=conditions,
        seconds=_table(sizes, "seconds", "{:.2f}"),
        peaks=_table(sizes, "peak_mb", "{:.0f}"),
        slopes=slopes,
        first=f"{ours[0].rows:,}",
        last=f"{ours[-1].rows:,}",
        throughput=f"{scaling.throughput:.2f}",
        rates=", ".join(f"{size.rows_per_second:,.0f} at {size.rows:,}" for size in ours),
        sums=sums,
        aligned=aligned,
        slope=f"{_slope(alignment):.2f}",
        largest=f"{max(stage.peak_mb for stage in ours[-1].stages.values()):,.0f}",
        parts=_parts(published.parts),
    )
    return wrapped(text)


def _slope(alignment: list[dict[str, float]]) -> float:
    first, last = alignment[0], alignment[-1]
    return math.log(last["seconds"] / first["seconds"]) / math.log(last["rows"] / first["rows"])


def _parts(parts: list[dict[str, Any]]) -> str:
    """Memory of the parts of a run at each number of rows."""
    counts = sorted({part["rows"] for part in parts})
    cells = {(part["part"], part["rows"]): f"{part['extra_mb']:,.0f}" for part in parts}
    head = " | ".join(f"{rows:,}" for rows in counts)
    lines = [
        f"| {name} | {' | '.join(cells.get((name, rows), '–') for rows in counts)} |"
        for name in dict.fromkeys(part["part"] for part in parts)
    ]
    return "\n".join([f"| part | {head} |", f"|---|{'---|' * len(counts)}", *lines])


def _table(sizes: list[Size], attribute: str, form: str) -> str:
    head = f"| rows of each table | side | {' | '.join(STAGES)} |\n|---|---|{'---|' * len(STAGES)}"
    rows = []
    for size in sizes:
        cells = [form.format(getattr(size.stages[name], attribute)) if name in size.stages else "–" for name in STAGES]
        rows.append(f"| {size.rows:,} | {size.side} | {' | '.join(cells)} |")
    return "\n".join([head, *rows])


_TEXT = """# Cost against the number of rows

Time grows no faster than the rows, up to 100,000,000 in each table, and the memory of most stages hardly grows with
them.

`python -m benchmarks scale_rows --rows 10000000` and `scale_alignment` measure it; `python -m
benchmarks.scale_page` writes this page from `benchmarks/results/scale.json`.

{conditions}

The tables are synthetic and shaped like Criteo's: the active party has the label and 13 numbers, the passive one 26
categories of 10,000 values. Ids are shuffled, and each table has 80 % of its rows in common with the other. The job
trains one epoch at batch 8192 with `shuffle: blocks`, with the audit of the epoch, and at `memory: {memory}`, the
least that can be set: all tables but the smallest one of the active party are read in batches. Beside it, pandas
joins and encodes the tables in memory, and a plain loop trains the same layers.

## Time

Seconds of processor time of each stage:

{seconds}

![Processor time](figures/scale-seconds.svg)

Slope of log time against log rows, from {first} to {last} rows; 1 is linear, and below it fixed costs have a part:

| stage | slope |
|---|---|
{slopes}

Training rows per second of processor time: {rates}; the last is {throughput} of the first.

## Memory

Peak anonymous memory of the process in each stage, in MB, the libraries included. Pages of mapped files are not in
it: the system drops them when it needs room.

{peaks}

![Memory](figures/scale-memory.svg)

The libraries take some 400 MB of it; the largest stage took {largest} MB at {last} rows. Whatever has an entry
for each row lies in a mapped file where it has 16 MB or more, and is read a million rows at a time. See [how memory
is bounded](../how-to/large-tables.md#memory).

`python -m benchmarks row_memory --rows 9000000` measures the parts of a run that have an entry for each row. This is
the largest anonymous memory above that before the part, in MB, by the number of rows of the part. Tables of a hundred
million rows have 80 million common rows, and 16 million test rows.

{parts}

What a part takes is the memory of a million rows, or of a part of them that is put into order.

Rows are put into order as rows of a fixed width, a category as the number of its value: 108 bytes for each row of the
passive party. A column with more than four times `max_codes` values is ordered as text; this is not measured here.

## Alignment

`scale_alignment --rows 10000000` intersects the digests of two tables that share 80 % of their rows; the slope is
{slope}:

| rows of each table | seconds of processor time | peak memory, MB |
|---|---|---|
{aligned}

## Report, transcript and audit

Report, audit and recorded messages do not grow with the table. The audit reads whole steps of each epoch, about
`audit.rows` rows, and the messages of `audit.followed` training rows, drawn by a key of the run.
The active party stores the labels and the training rows beside its messages, 14 bytes for each common row, so
that the audit can be repeated.

| rows of each table | report, KB | audit, KB | messages, MB | labels, MB |
|---|---|---|---|---|
{sums}

## Block shuffle

On 20,000 training rows of the Criteo sample, in windows of 800 rows, a logistic model reaches the test AUC of the
shuffle of all rows within the noise of four seeds (`tests/data/test_block_shuffle.py`).

## Not measured

- pandas at a hundred million rows, which would need some 100 GB of memory.
- A store that is larger than the machine's memory, and cold reads: files were in the system's cache.
- Several repeats: each figure is of one run. Processor time hardly depends on what else runs; wall time does, and
  is in the results file.
- A GPU (`python -m benchmarks.gpu_training` measures one where there is one)."""


def main() -> None:
    """Write the page and its figures."""
    published = load(RESULTS)
    (OUT / "scale.md").write_text(page(published), encoding="utf-8")
    for name, picture in figures(published.sizes).items():
        (OUT / "figures" / name).write_text(picture, encoding="utf-8")
    sys.stdout.write(f"{OUT / 'scale.md'}\n")


if __name__ == "__main__":
    main()
