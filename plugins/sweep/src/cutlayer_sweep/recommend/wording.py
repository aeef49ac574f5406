"""A recommendation for readers: the verdict, the tables, and the changes to the job file."""

from __future__ import annotations

import copy
import difflib
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from cutlayer.config.load import as_yaml, dump_job, job_from_values
from cutlayer.report.rounding import auc, difference, excess, metric
from cutlayer.report.section import Cell, Table, number, table
from cutlayer.results.decimals import NOT_AVAILABLE
from cutlayer.results.metric_names import name_of
from cutlayer.storage.durable import write_whole
from cutlayer_sweep.changes import with_changes
from cutlayer_sweep.recommend.candidates import Candidates
from cutlayer_sweep.recommend.result import CheckedCandidate, Recommendation
from cutlayer_sweep.seed_mean import SeedMean


def verdict(result: Recommendation) -> str:
    """The recommended or the nearest setting, with its figures of the fresh seeds."""
    best = next((candidate for candidate in result.checked if candidate.name == result.best), None)
    if best is None:
        return "No protection could be checked"
    measured = _leak_and_loss(result, best)
    if result.chosen is not None:
        doubt = "" if result.limits.settled(best) else "; the intervals reach past the limits, so more seeds may differ"
        return f"Recommended for {result.limits}: {best.name}, with {measured}{doubt}"
    return f"Nothing reaches {result.limits}; the nearest is {best.name}, with {measured}"


def _leak_and_loss(result: Recommendation, best: CheckedCandidate) -> str:
    read = f"{result.limits.of} {best.leak}"
    if result.limits.max_rebuilt is not None:
        read += f", columns rebuilt {best.rebuilt}"
    lost = f"{name_of(result.metric)} loss {difference(best.loss.value)} ± {metric(best.loss.half_width)}"
    return f"{read} and {lost} over {len(best.seeds)} fresh seeds"


def lowest_columns(result: Recommendation) -> str:
    """A sentence where a party's own columns reveal more than the limit: no protection of messages changes that."""
    limit = result.limits.max_leak
    columns = [candidate.columns for candidate in result.last.values() if candidate.columns is not None]
    if limit is None or not columns or max(columns) <= limit:
        return ""
    return (
        f"A passive party's own columns reach {auc(max(columns))} without any message: a leak of {limit:g} is below "
        "that. Limit --max-excess instead, what messages reveal beyond the columns"
    )


def front_table(result: Recommendation) -> Table:
    """Every candidate of the last rung by ascending leak."""
    return table(
        "Candidates of the last rung",
        sorted(result.last, key=lambda name: (result.limits.leak(result.last[name]), result.last[name].loss, name)),
        ("Protection", lambda name: name),
        (number(name_of(result.metric)), lambda name: metric(result.last[name].utility)),
        (number("loss"), lambda name: difference(result.last[name].loss)),
        (number("leak"), lambda name: auc(result.last[name].leak)),
        (number("excess"), lambda name: _excess(result.last[name].excess)),
        (number("rebuilt"), lambda name: auc(result.last[name].rebuilt)),
        ("rank", lambda name: "front" if name in result.front else ""),
        highlight=lambda name: name == result.best,
    )


def _excess(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else excess(value)


def check_table(result: Recommendation) -> Table:
    """The candidates that were trained again with fresh seeds, each mean with half its 95 % interval."""

    def cell(mean: SeedMean) -> Cell:
        return Cell(metric(mean.value), (f"± {metric(mean.half_width)}",))

    rebuilt = number("rebuilt"), lambda candidate: cell(candidate.rebuilt)
    return table(
        "Fresh seeds",
        result.checked,
        ("Protection", lambda candidate: candidate.name),
        (number(f"test {name_of(result.metric)}"), lambda candidate: metric(candidate.utility.value)),
        (number("loss"), lambda candidate: cell(candidate.loss)),
        (number(result.limits.of), lambda candidate: cell(candidate.leak)),
        *([rebuilt] if result.limits.max_rebuilt is not None else []),
        ("within limits", lambda candidate: _within(result, candidate)),
        highlight=lambda candidate: candidate.name == result.best,
    )


def _within(result: Recommendation, candidate: CheckedCandidate) -> str:
    if not candidate.reached:
        return "no"
    return "yes" if result.limits.settled(candidate) else "the means are"


def recommended_diff(result: Recommendation, file: Path, out: Path) -> str:
    """The changes to the job file as a unified diff; the whole new file is written as `recommended.yaml`.

    Args:
        result: Recommendation with a best candidate.
        file: The job file, which stays as it is.
        out: Folder of `recommended.yaml`, in which paths are absolute.

    Returns:
        The diff; empty if the job file states the best candidate already, or if there is none.
    """
    if result.best is None:
        return ""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    raw = yaml.load(file.read_text(encoding="utf-8"))
    candidates = Candidates(file, result.limits)
    recommended = with_changes(candidates.of_file.raw, candidates.changes[result.best])
    changed = _rewritten(raw, recommended)
    write_whole(out / "recommended.yaml", dump_job(job_from_values(recommended, file.parent)))
    title = "nearest, not within the limits" if result.chosen is None else "recommended"
    before, after = (as_yaml(values, yaml).splitlines() for values in (raw, changed))
    return "\n".join(difflib.unified_diff(before, after, str(file), title, lineterm="", n=1))


def _rewritten(raw: Any, wanted: Any) -> Any:
    """A copy of round-trip values that equals other values; what is equal already keeps its style and its comments."""
    section = copy.deepcopy(raw)
    for key in [key for key in section if key not in wanted]:
        section.pop(key)
    for key, value in wanted.items():
        present = section.get(key)
        if isinstance(present, dict) and present and isinstance(value, dict) and value:
            section[key] = _rewritten(present, value)
        elif key not in section or present != value:
            section[key] = copy.deepcopy(value)
    return section
