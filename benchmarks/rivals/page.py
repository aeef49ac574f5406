"""The tables of the page of rivals, as Markdown, each behind a line that opens it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from cutlayer_sweep.seed_mean import seed_mean_of
from studies.page import Table, folded

HEADS = (
    *("seeds", "AUC", "less that of `both`", "processor s", "wall s", "megabytes", "labels: AUC", "columns: R²"),
    "its output: R²",
)


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    """A table for each data set: utility, cost, and what is read."""
    tables = []
    for name in dict.fromkeys(line["data"] for line in lines):
        rows = tuple(_rows([line for line in lines if line["data"] == name]))
        tables.append(folded(Table((name, *HEADS), rows), open_rows=0))
    return "\n\n".join(tables) + "\n"


def _rows(lines: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """A row for each system, as many texts as there are headings."""
    of_both = {line["seed"]: line["auc"] for line in lines if line["system"] == "Cutlayer, both"}
    for system in dict.fromkeys(line["system"] for line in lines):
        some = [line for line in lines if line["system"] == system]
        cells = [
            str(seed_mean_of(line["auc"] for line in some)),
            _less(some, of_both),
            *(f"{_mean(some, key):.1f}" for key in ("cpu", "wall")),
        ]
        cells.append(f"{_mean(some, 'bytes') / 1e6:.2f}" if _mean(some, "bytes") else "–")
        cells += [_labels(some), _read(some, "columns"), _read(some, "output")]
        yield (system, f"{len(some)}", *cells)


def _less(lines: Sequence[Mapping[str, Any]], of_both: Mapping[int, float]) -> str:
    """Difference of the AUC to that of grades on the same rows, with the interval over seeds: test rows are shared."""
    found = [line["auc"] - of_both[line["seed"]] for line in lines if line["seed"] in of_both]
    return "–" if not found or not any(found) else str(seed_mean_of(found))


def _mean(lines: Sequence[Mapping[str, Any]], key: str) -> float:
    return fmean(line[key] for line in lines)


def _labels(lines: Sequence[Mapping[str, Any]]) -> str:
    found = [line["labels"] for line in lines if "labels" in line]
    found += [line["notes"]["label leak"] for line in lines if line["notes"].get("label leak")]
    return f"{fmean(found):.3f}" if found else "–"


def _read(lines: Sequence[Mapping[str, Any]], key: str) -> str:
    found = [line[key] for line in lines if key in line]
    if not found:
        return "–"
    return f"{fmean(each['r2'] for each in found):.3f} ({fmean(each['best column'] for each in found):.3f})"
