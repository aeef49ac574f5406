"""Which tests execute which lines: measured once for each test file, and read for each mutant."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutation.forks import Job
from tools.mutation.mutants import Statement
from tools.mutation.trees import enter
from tools.mutation.trial import digest, measure

_CPU_SECONDS, _WALL_SECONDS = 600, 1800.0


@dataclass(frozen=True)
class Measured:
    """What one test file does to the mutated modules.

    Attributes:
        file: its path, relative to the root.
        seconds: processor time of the whole file, with the import of the package.
        tests: processor time of each test by its id, in seconds.
        failing: ids of the tests that fail without a mutant, and so prove nothing.
        lines: for each test and module, the lines that it executes.
    """

    file: str
    seconds: float
    tests: dict[str, float]
    failing: frozenset[str]
    lines: dict[str, dict[str, frozenset[int]]]

    def hits(self, module: str, statement: Statement, by_line: bool) -> frozenset[str]:
        """The tests that execute a statement.

        Args:
            module: path of the module.
            statement: where the mutation lies.
            by_line: whether lines can be compared: the module is as it was when it was measured. Where not, or where
                the statement runs when the module is imported, each test counts that executes any line of the module.
        """
        if not by_line or statement.on_import:
            return frozenset(test for test, modules in self.lines.items() if module in modules)
        return frozenset(t for t, modules in self.lines.items() if statement.lines & modules.get(module, frozenset()))

    def cost(self, tests: frozenset[str]) -> float:
        """Processor time of some of its tests, in seconds."""
        return sum(self.tests.get(test, 0.0) for test in tests)


@dataclass(frozen=True)
class Selection:
    """The tests that may kill a mutant.

    Attributes:
        files: test files that execute the mutated statement, the cheapest first.
        rest: those of them of which the other tests run too, last.
        hits: ids of the tests that execute the mutated statement, with the processor time of each in seconds.
        failing: ids of the tests that fail without a mutant.
        seconds: processor time of the selected tests without a mutant.
        skipped: how many further test files execute the statement and are left out for their cost.
    """

    files: tuple[str, ...]
    rest: tuple[str, ...]
    hits: dict[str, float]
    failing: frozenset[str]
    seconds: float
    skipped: int


def select(
    measured: Sequence[Measured],
    module: str,
    statement: Statement,
    by_line: bool,
    max_seconds: float,
    definitions: Collection[str] = (),
) -> Selection:
    """The tests that execute a statement, the cheapest file first, up to a processor time.

    The file with the most of such tests is selected whatever it costs: it is the one written for the statement. What is
    left of the time is for the other tests of the files.

    Args:
        measured: all test files.
        module: path of the mutated module.
        statement: where the mutation lies.
        by_line: see `Measured.hits`.
        max_seconds: processor time of the tests together.
        definitions: test files that look at definitions and execute no function: all their tests count for a statement
            that runs when the module is imported.
    """
    hits = {entry.file: entry.hits(module, statement, by_line) for entry in measured}
    if statement.on_import:
        hits |= {entry.file: frozenset(entry.tests) for entry in measured if entry.file in definitions}
    hitting = sorted((entry for entry in measured if hits[entry.file]), key=lambda entry: entry.cost(hits[entry.file]))
    own = max(hitting, key=lambda entry: len(hits[entry.file]), default=None)
    seconds = own.cost(hits[own.file]) if own else 0.0
    chosen, rest = [], []
    for entry in hitting:
        cost = 0.0 if entry is own else entry.cost(hits[entry.file])
        if entry is own or seconds + cost <= max_seconds:
            chosen.append(entry)
            seconds += cost
    for entry in sorted(chosen, key=lambda entry: entry.seconds):
        others = entry.seconds - entry.cost(hits[entry.file])
        if seconds + others <= max_seconds:
            rest.append(entry)
            seconds += others
    return Selection(
        files=tuple(entry.file for entry in chosen),
        rest=tuple(entry.file for entry in rest),
        hits={test: entry.tests.get(test, 0.0) for entry in chosen for test in hits[entry.file]},
        failing=frozenset().union(*(entry.failing for entry in chosen)),
        seconds=seconds,
        skipped=len(hitting) - len(chosen),
    )


def test_files(root: Path, patterns: Sequence[str], modules: dict[str, str]) -> list[str]:
    """The test files, and the modules whose docstrings hold examples."""
    files = sorted({path.relative_to(root).as_posix() for pattern in patterns for path in root.glob(pattern)})
    return [*(module for module, source in modules.items() if ">>>" in source), *files]


def digests(modules: dict[str, str]) -> dict[str, str]:
    """A digest of each module's source, by its path."""
    return {module: hashlib.sha256(source.encode()).hexdigest() for module, source in modules.items()}


class Store:
    """The measurements in a folder: a JSON file for each test file.

    Args:
        folder: where they are; made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, file: str) -> Path:
        """Where the measurement of a test file is."""
        return self._folder / f"{file.replace('/', '.')}.json"

    def read(self, file: str) -> Measured | None:
        """The measurement of a test file, if there is any."""
        path = self.path(file)
        if not path.exists():
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
        lines = {
            test: {module: frozenset(numbers) for module, numbers in modules.items()}
            for test, modules in content["lines"].items()
        }
        return Measured(file, content["seconds"], content["tests"], frozenset(content["failing"]), lines)

    def jobs(self, files: Sequence[str], targets: Sequence[str], trees: Sequence[Path], root: Path) -> Iterator[Job]:
        """One job for each test file that is not measured yet, or that changed since."""
        for file in files:
            if self._is_measured(file, root):
                continue

            def work(slot: int, file: str = file) -> int:
                result = self.path(file).resolve()
                enter(trees[slot], root)
                return measure(file, targets, result)

            yield Job(file, _nothing, work, _CPU_SECONDS, _WALL_SECONDS)

    def _is_measured(self, file: str, root: Path) -> bool:
        path = self.path(file)
        if not path.exists():
            return False
        return bool(json.loads(path.read_text(encoding="utf-8"))["digest"] == digest(root / file))

    def clear(self) -> None:
        """Forget all measurements: the sources changed, so the lines are others."""
        for path in self._folder.glob("*.json"):
            path.unlink()

    def note_sources(self, modules: dict[str, str]) -> None:
        """Remember which sources the lines belong to."""
        (self._folder / "sources.json").write_text(json.dumps(digests(modules)))

    def sources(self) -> dict[str, str]:
        """The digests of the sources that the lines belong to."""
        path = self._folder / "sources.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _nothing(slot: int) -> None:
    """A test file needs no preparation: its tree is as the repository is."""
