"""What a label owner reads where a partner lowers epsilon in place of a refusal: a part of `grade_attacks`.

Of the cases of `chosen` in the file of results that the default limit alone refuses at a column epsilon of 8: the first
lower epsilon that keeps the limit, and the AUC of the attribute by the grades that are then released. By a refusal the
label owner is left with its own columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.grade_attacks import LEAST_Z, RESULTS, case_of, steered
from benchmarks.grade_rule import labelled
from benchmarks.graded_rows import Rows, attributes
from benchmarks.utility.__main__ import lines_of
from cutlayer.kernels.noise.score_bands import MIN_EPSILON, bands_for, lower_epsilons
from cutlayer.parties.carried_limits import default_limit

FIRST = 8.0
STEPS = (FIRST, *lower_epsilons(FIRST, MIN_EPSILON))


def lowered(name: str, data: Path, seed: int, done: set[str], _: int) -> Iterator[dict[str, Any]]:
    """What grades at each step carry, and what is read of them, in the cases that the limit refuses at the first."""
    cases = [line for line in lines_of(RESULTS) if line["part"] == "chosen" and line["data"] == name]
    cases = [line for line in cases if line["seed"] == seed and not line["fault"] and line["z"] >= LEAST_Z]
    cases = [line for line in cases if _is_refused(line, FIRST)]
    if not (left := [line for line in cases if f"lowered {line['case']}" not in done]):
        return
    table = labelled(name, data)
    rows, every = Rows.of(table, seed), attributes(table.partner)
    for line in left:
        about = {key: line[key] for key in ("data", "seed", "attribute", "known", "true", "filled")}
        attribute, column = every[about["attribute"]], about["attribute"].split(" ")[0]
        found = steered(rows, attribute, line["known"], line["true"], line["filled"], seed, column, STEPS)
        yield {"case": f"lowered {line['case']}", "part": "lowered", **about, **found}


def _is_refused(line: Mapping[str, Any], step: float) -> bool:
    """Whether grades at a step exceed the default limit."""
    limit = default_limit(step, bands_for(step, 16), is_lowered=step < FIRST)
    return bool(line[f"{step:g}"]["carried"] > limit)


def of_lowered(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A table of what is carried and read at each step, and at which step grades are released."""
    names = "; ".join(f"{step:g}" for step in STEPS)
    yield f"| data set, attribute | known | labels | own | carried at {names} | AUC at {names} | released at |"
    yield "|---" * 7 + "|"
    for line in lines:
        shares, aucs = ("; ".join(f"{line[f'{at:g}'][key]:.2f}" for at in STEPS) for key in ("carried", "auc"))
        step = next((each for each in STEPS if not _is_refused(line, each)), None)
        yield f"| {case_of(line)} | {shares} | {aucs} | {'refused' if step is None else f'{step:g}'} |"
