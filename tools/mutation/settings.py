"""What is mutated, which tests may kill a mutant, and which mutants are equivalent."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Settings:
    """What a mutation run covers.

    Attributes:
        targets: patterns of the modules that are mutated, relative to the root.
        tests: patterns of the test files that may kill a mutant, relative to the root.
        definitions: test files that look at the definitions of all modules, such as the ranges of settings.
        copied: folders and files that the tests read, relative to the root.
        preloaded: modules that are imported once, before the forks; none of the package under test.
    """

    targets: tuple[str, ...]
    tests: tuple[str, ...]
    definitions: tuple[str, ...]
    copied: tuple[str, ...]
    preloaded: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Read the lists from a TOML file."""
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(**{name: tuple(values) for name, values in content.items()})


@dataclass(frozen=True)
class Equivalent:
    """A change that no test can see, by the texts of the lines that it changes: line numbers do not stay.

    Attributes:
        module: path of the module, relative to the root.
        before: the first line that the mutant changes, without indentation.
        after: that line in the mutant, without indentation.
        reason: why the two behave alike.
    """

    module: str
    before: str
    after: str
    reason: str


def equivalents(path: Path) -> dict[tuple[str, str, str], Equivalent]:
    """The reviewed equivalent mutants in a TOML file, by module and changed lines."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    entries = [Equivalent(**entry) for entry in content.get("equivalent", [])]
    return {(entry.module, entry.before, entry.after): entry for entry in entries}
