"""A recommendation for readers: the verdict, the tables, and the changes to the job file."""

from __future__ import annotations

import difflib
import io
from pathlib import Path

from ruamel.yaml import YAML

from cutlayer.config.load import absolute
from cutlayer.durable import write_whole
from cutlayer.report.rounding import auc, difference, excess, metric, name_of
from cutlayer.report.section import Table, number, table
from cutlayer.sweeps.recommend.candidates import Candidates
from cutlayer.sweeps.recommend.result import Checked, Recommendation


def verdict(found: Recommendation) -> str:
    """What is recommended, or what comes nearest, with its figures of the fresh seeds."""
    best = next((one for one in found.checked if one.name == found.best), None)
    if best is None:
        return "No protection could be checked"
    figures = _figures(found, best)
    if found.chosen is not None:
        return f"Recommended for {found.limits}: {best.name}, with {figures}"
    return f"Nothing reaches {found.limits}; the nearest is {best.name}, with {figures}"


def _figures(found: Recommendation, best: Checked) -> str:
    of = "leak" if found.limits.max_leak is not None else "excess"
    lost = f"{name_of(found.metric)} loss {difference(best.loss)} ± {metric(best.loss_margin)}"
    return f"{of} {auc(best.leak)} ± {metric(best.leak_margin)} and {lost} over {len(best.seeds)} fresh seeds"


def lowest_columns(found: Recommendation) -> str:
    """A sentence where a party's own columns tell more than the limit: no protection of messages changes that."""
    limit = found.limits.max_leak
    telling = [one.columns for one in found.last.values() if one.columns is not None]
    if limit is None or not telling or max(telling) <= limit:
        return ""
    return (
        f"A passive party's own columns tell {auc(max(telling))} without any message: a leak of {limit:g} is below "
        "that. Ask for --max-excess, what messages tell beyond the columns"
    )


def front_table(found: Recommendation) -> Table:
    """Every candidate of the last rung by ascending leak."""
    ranked = sorted(found.last, key=lambda name: (found.limits.leak(found.last[name]), found.last[name].loss, name))
    return table(
        "Candidates of the last rung",
        ranked,
        ("Protection", lambda name: name),
        (number(name_of(found.metric)), lambda name: metric(found.last[name].utility)),
        (number("loss"), lambda name: difference(found.last[name].loss)),
        (number("leak"), lambda name: auc(found.last[name].leak)),
        (number("excess"), lambda name: _excess(found.last[name].excess)),
        ("rank", lambda name: "front" if name in found.front else ""),
        own=lambda name: name == found.best,
    )


def _excess(value: float | None) -> str:
    return "n/a" if value is None else excess(value)


def check_table(found: Recommendation) -> Table:
    """The candidates that were trained again with fresh seeds."""
    of = "leak" if found.limits.max_leak is not None else "excess"
    return table(
        "Fresh seeds",
        found.checked,
        ("Protection", lambda one: one.name),
        (number(f"test {name_of(found.metric)}"), lambda one: metric(one.utility)),
        (number("loss"), lambda one: f"{difference(one.loss)} ± {metric(one.loss_margin)}"),
        (number(of), lambda one: f"{metric(one.leak)} ± {metric(one.leak_margin)}"),
        ("within limits", lambda one: "yes" if one.reached else "no"),
        own=lambda one: one.name == found.best,
    )


def recommended_diff(found: Recommendation, file: Path, out: Path) -> str:
    """The changes to the job file as a unified diff; the whole new file is written as `recommended.yaml`.

    Args:
        found: Recommendation with a best candidate.
        file: The job file, which stays as it is.
        out: Folder of `recommended.yaml`, in which paths are absolute.
    """
    if found.best is None:
        return ""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    raw = yaml.load(file.read_text(encoding="utf-8"))
    candidates = Candidates(file, None if found.limits.guarantee is None else found.limits.guarantee)
    changed = candidates.recommended(found.best, raw)
    plain = absolute(candidates.recommended(found.best, candidates.raw), file.parent.resolve())
    write_whole(out / "recommended.yaml", _dumped(YAML(typ="safe", pure=True), plain), mode=0o644)
    before, after = (_dumped(yaml, values).splitlines() for values in (raw, changed))
    return "\n".join(difflib.unified_diff(before, after, str(file), "recommended", lineterm="", n=1))


def _dumped(yaml: YAML, values: object) -> str:
    stream = io.StringIO()
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(values, stream)
    return stream.getvalue()
