"""What a session found: counts by module, and the survivors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

from tools.mutation.settings import Equivalent

TIMEOUT = "a time limit ended the tests\n"
"""How the output of a mutant begins that was killed so."""

_COLUMNS = ("killed", "timeout", "survived", "equivalent", "skipped")


@dataclass(frozen=True)
class Tested:
    """One mutant with its result.

    Attributes:
        spec: the mutation.
        kind: killed, timeout, survived, equivalent or skipped (no test should see it).
        before: the first line that it changes.
        after: that line in the mutant.
        reason: why it is equivalent, or what the run noted about a survivor.
    """

    spec: MutationSpec
    kind: str
    before: str
    after: str
    reason: str


def tested(
    results: Iterable[tuple[WorkItem, WorkResult]], equivalent: dict[tuple[str, str, str], Equivalent]
) -> list[Tested]:
    """Classify the results of a session, in the order of the code."""
    entries = [_classified(item.mutations[0], result, equivalent) for item, result in results]
    return sorted(entries, key=lambda entry: (str(entry.spec.module_path), entry.spec.start_pos))


def _classified(spec: MutationSpec, result: WorkResult, equivalent: dict[tuple[str, str, str], Equivalent]) -> Tested:
    before, after = changed_lines(result.diff or "")
    output = result.output or ""
    listed = equivalent.get((str(spec.module_path), before, after))
    if result.worker_outcome == WorkerOutcome.SKIPPED:
        kind = "skipped"
    elif result.test_outcome == TestOutcome.SURVIVED:
        kind, output = ("equivalent", listed.reason) if listed else ("survived", output)
    else:
        kind = "timeout" if output.startswith(TIMEOUT) else "killed"
    return Tested(spec, kind, before, after, output)


def changed_lines(diff: str) -> tuple[str, str]:
    """The first removed and the first added line of a unified diff, without indentation."""
    lines = diff.splitlines()
    removed = next((line[1:].strip() for line in lines if line.startswith("-") and not line.startswith("---")), "")
    added = next((line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")), "")
    return removed, added


def table(entries: Iterable[Tested]) -> Iterator[str]:
    """A line for each module, a total, and the share of survivors."""
    by_module: dict[str, Counter[str]] = {}
    for entry in entries:
        by_module.setdefault(str(entry.spec.module_path), Counter())[entry.kind] += 1
    total = sum(by_module.values(), Counter[str]())
    yield f"{'module':<52}" + "".join(f"{name:>11}" for name in _COLUMNS)
    for module, counts in [*sorted(by_module.items()), ("total", total)]:
        yield f"{module:<52}" + "".join(f"{counts[name]:>11}" for name in _COLUMNS)
    judged = total["killed"] + total["timeout"] + total["survived"]
    if judged:
        share = total["survived"] / judged
        yield f"survived: {total['survived']} of {judged} that are not equivalent, {share:.1%}"


def survivors(entries: Iterable[Tested]) -> Iterator[str]:
    """Each survivor: where it is, the two lines, and what the run noted."""
    for entry in entries:
        if entry.kind == "survived":
            name = entry.spec.operator_name.partition("/")[2]
            yield f"{entry.spec.module_path}:{entry.spec.start_pos[0]} in {entry.spec.definition_name} ({name})"
            yield f"  - {entry.before}"
            yield f"  + {entry.after}"
            yield f"  {entry.reason.strip()}"
