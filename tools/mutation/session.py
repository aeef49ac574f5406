"""A mutation run: which mutants are pending, the tests of each, and its result in the session database."""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

from tools.mutation.forks import Job, Outcome
from tools.mutation.measurements import Measured, Selection, digests, select
from tools.mutation.mutants import mutated, statement_at, work_items
from tools.mutation.significance import significant
from tools.mutation.summary import TIMEOUT
from tools.mutation.trees import enter
from tools.mutation.trial import kill

_MIN_CPU_SECONDS = 30
_SLOWER = 4
"""How many times the processor time of its tests a mutant may take."""

_SLOWER_BY_THE_CLOCK = 20
_MAX_OUTPUT = 1500


@dataclass(frozen=True)
class Plan:
    """What a run works with.

    Attributes:
        modules: source of each target module by its path.
        measured: the test files with the lines that they execute.
        measured_sources: digest of each module when it was measured.
        max_seconds: processor time of the tests of one mutant.
        definitions: see `select`.
        trees: the private copies, one for each slot.
        root: of the repository.
    """

    modules: dict[str, str]
    measured: Sequence[Measured]
    measured_sources: dict[str, str]
    max_seconds: float
    definitions: Sequence[str]
    trees: Sequence[Path]
    root: Path

    def selection(self, spec: MutationSpec) -> Selection:
        """The tests that may kill a mutant."""
        module = str(spec.module_path)
        source = self.modules[module]
        by_line = self.measured_sources.get(module) == digests({module: source})[module]
        statement = statement_at(source, spec.start_pos[0])
        return select(self.measured, module, statement, by_line, self.max_seconds, self.definitions)


class Session:
    """The mutants of the target modules as they are now, and the results so far.

    Args:
        database: Cosmic Ray's session database. Mutants that it lacks are added; results of modules that changed
            since stay in it and are not read.
        modules: source of each target module by its path.
    """

    def __init__(self, database: WorkDB, modules: dict[str, str]) -> None:
        self._database = database
        self._items = {item.job_id: item for module, source in modules.items() for item in work_items(module, source)}
        known = {item.job_id for item in database.work_items}
        database.add_work_items(item for name, item in self._items.items() if name not in known)

    def __len__(self) -> int:
        return len(self._items)

    def results(self, pattern: str) -> list[tuple[WorkItem, WorkResult]]:
        """The results of the present mutants of the modules that a pattern names."""
        found = [(self._items[name], result) for name, result in self._database.results if name in self._items]
        return [pair for pair in found if _named(pair[0], pattern)]

    def pending(self, pattern: str, sample: int | None, seed: int, survivors_too: bool) -> list[WorkItem]:
        """Mutants without a result, in the order of the code.

        Args:
            pattern: of the module's path within the package.
            sample: how many mutants of those modules to draw; those with a result count too, so that an interrupted
                sample goes on. `None` for all.
            seed: of the draw.
            survivors_too: whether survivors are tested again.
        """
        items = [item for item in self._items.values() if _named(item, pattern)]
        if sample is not None and sample < len(items):
            chosen = set(random.Random(seed).sample(range(len(items)), sample))  # noqa: S311 (no secret)
            items = [item for number, item in enumerate(items) if number in chosen]
        done = {
            name
            for name, result in self._database.results
            if not (survivors_too and result.test_outcome == TestOutcome.SURVIVED)
        }
        return [item for item in items if item.job_id not in done]

    def jobs(self, items: Sequence[WorkItem], plan: Plan) -> Iterator[Job]:
        """A job for each mutant that a test should see and can; the results of the others are noted at once."""
        for item in items:
            spec = item.mutations[0]
            source = plan.modules[str(spec.module_path)]
            changed = mutated(source, spec)
            if changed is None or not significant(source, changed):
                self._database.set_result(item.job_id, WorkResult(WorkerOutcome.SKIPPED))
                continue
            selection = plan.selection(spec)
            if not selection.files:
                self._survived(item, source, changed, "no test executes it")
                continue
            yield _job(item, changed, selection, plan)

    def note(self, outcome: Outcome, plan: Plan) -> str:
        """Store how the tests of a mutant ended; returns a line about it."""
        item = self._items[outcome.name]
        spec = item.mutations[0]
        source = plan.modules[str(spec.module_path)]
        changed = mutated(source, spec) or source
        (plan.trees[outcome.slot] / spec.module_path).write_text(source, encoding="utf-8")
        if outcome.status == 0:
            selection = plan.selection(spec)
            left_out = f", {selection.skipped} left out for their cost" if selection.skipped else ""
            self._survived(item, source, changed, f"{len(selection.files)} test files passed{left_out}")
            kind = "survived"
        else:
            kind = "timeout" if outcome.timed_out else "killed"
            output = (TIMEOUT if outcome.timed_out else "") + outcome.output[-_MAX_OUTPUT:]
            diff = _diff(source, changed)
            result = WorkResult(WorkerOutcome.NORMAL, output, TestOutcome.KILLED, diff)
            self._database.set_result(item.job_id, result)
        return f"{kind:<9} {outcome.seconds:6.1f} s  {spec.module_path}:{spec.start_pos[0]} {spec.operator_name}"

    def _survived(self, item: WorkItem, source: str, changed: str, note: str) -> None:
        result = WorkResult(WorkerOutcome.NORMAL, note, TestOutcome.SURVIVED, _diff(source, changed))
        self._database.set_result(item.job_id, result)


def _job(item: WorkItem, changed: str, selection: Selection, plan: Plan) -> Job:
    module = item.mutations[0].module_path

    def write(slot: int) -> None:
        (plan.trees[slot] / module).write_text(changed, encoding="utf-8")

    def test(slot: int) -> int:
        enter(plan.trees[slot], plan.root)
        return kill(selection.files, selection.rest, selection.hits, selection.failing)

    cpu_seconds = _MIN_CPU_SECONDS + int(_SLOWER * selection.seconds)
    return Job(item.job_id, write, test, cpu_seconds, _SLOWER_BY_THE_CLOCK * cpu_seconds)


def _named(item: WorkItem, pattern: str) -> bool:
    return fnmatch(str(item.mutations[0].module_path), f"*{pattern}*")


def _diff(source: str, changed: str) -> str:
    return "\n".join(difflib.unified_diff(source.splitlines(), changed.splitlines(), n=0, lineterm=""))
