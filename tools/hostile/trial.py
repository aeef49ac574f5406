"""One hostile file opened by one verb, and what may not come of it."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cutlayer.data.typed_table import TABLE_MEMORY
from tools.hostile.variants import Variant, copy_base, variants
from tools.hostile.verbs import verb_of
from tools.hostile.watch import Seen, Watched, call, preload

MAX_ADDED_BYTES = 200 * 2**20
"""Memory that a verb may take above what it takes for the honest file and the size of the hostile one."""
CHANGED = "CL124"
"""Code of the finding that a file of the run was changed, which fails an audit."""
MAX_MESSAGE = 20_000
"""Characters that an error may have."""
_PRELOADED = ("sqlalchemy.dialects.sqlite", "skops.io", "sklearn.linear_model", "scipy.stats")
"""What verbs import when they need it, besides the package."""
_REMEDY = re.compile(r"expected|;|cannot be|did you mean|is damaged|missing|no such file|changed:", re.IGNORECASE)
Wrong = tuple[str, str]
"""What happened, in a word, and its detail."""
Found = dict[str, dict[str, list[Wrong]]]
"""By variant and verb."""


@dataclass
class Trials:
    """A world, the bait beside it, and what each verb does with an honest file.

    Args:
        scratch: An empty folder.
        world: The honest files.
    """

    scratch: Path
    world: Path
    _honest: dict[tuple[str, str], Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        preload(*_PRELOADED)
        self.outside = self.scratch / "outside"
        self._lay_bait()
        self._watched = Watched(self.outside)
        self.bait: Mapping[str, str] = {"outside": str(self.outside), "trap": str(self._watched.port)}

    def close(self) -> None:
        """End the trap."""
        self._watched.close()

    def run(self, variant: Variant, verb: str) -> list[Wrong]:
        """Open a variant with a verb; returns what may not happen."""
        honest = self._honest_of(variant.base, verb)
        with self._folder(variant.base) as trial:
            variant.write(trial / variant.base, self.bait)
            size = sum(path.stat().st_size for path in trial.rglob("*") if path.is_file())
            seen = self._called(verb, variant.base, trial)
        self._lay_bait()
        # The rows of a query may take what their party allows to a table.
        most = TABLE_MEMORY if variant.name.startswith("query:") else MAX_ADDED_BYTES
        return list(_wrong(seen, honest, size, most, is_private=variant.is_private))

    def _honest_of(self, base: str, verb: str) -> Seen:
        if (base, verb) not in self._honest:
            with self._folder(base) as trial:
                self._honest[base, verb] = self._called(verb, base, trial)
        return self._honest[base, verb]

    def _called(self, verb: str, base: str, trial: Path) -> Seen:
        function, folder = verb_of(verb, base, trial)
        return call(function, folder, trial, self._watched)

    @contextmanager
    def _folder(self, base: str) -> Iterator[Path]:
        trial = self.scratch / "trial"
        trial.mkdir()
        (trial / "modules").mkdir()
        (trial / "modules" / "hostile_model.py").write_text("class Model: ...\n")
        try:
            copy_base(self.world, base, trial)
            yield trial
        finally:
            shutil.rmtree(trial)

    def _lay_bait(self) -> None:
        """Files that no hostile file may read, change or add to; a database that can be opened."""
        self.outside.mkdir(exist_ok=True)
        for path in self.outside.iterdir():
            if path.name not in ("bait", "bait.csv", "bait.db"):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        csv = (self.world / "job" / "telco.csv").read_bytes()
        for name in ("bait", "bait.csv"):
            if not (self.outside / name).exists() or (self.outside / name).read_bytes() != csv:
                (self.outside / name).write_bytes(csv)
        with sqlite3.connect(self.outside / "bait.db") as database:
            database.execute("create table if not exists telco as select 1 as id, 2.0 as b, 3.0 as c")
        database.close()


def _wrong(seen: Seen, honest: Seen, size: int, most: int, *, is_private: bool) -> Iterator[Wrong]:
    """What a verb did that it must not."""
    allowed = {"import", "program"} if is_private else {"import", "program", "connect", "write", "read"}
    yield from sorted((kind, name) for kind, name in seen.events - honest.events if kind in allowed)
    added = seen.peak - honest.peak - size
    if added > most or "too little memory" in seen.output or "MemoryError" in seen.output:
        yield "memory", f"{added / 2**20:,.0f} MiB more than for the honest file"
    if "Traceback" in seen.output or "a fault of cutlayer itself" in seen.output or seen.code == 70:
        yield "fault", _last_line(seen.output)
    elif seen.code < 0:
        yield "killed", f"signal {-seen.code} after {seen.seconds:.0f} s"
    elif seen.code not in (0, 2, honest.code) and not (seen.code == 1 and CHANGED in seen.output):
        yield "exit code", f"{seen.code}: {_last_line(seen.output)}"
    elif seen.code == 2 and not _REMEDY.search(seen.output):
        yield "message", _last_line(seen.output)
    elif len(seen.output) > len(honest.output) + MAX_MESSAGE:
        yield "message", f"{len(seen.output):,} characters: {_last_line(seen.output)}"


def _last_line(output: str) -> str:
    lines: Iterable[str] = [line for line in output.splitlines() if re.match(r"error|Traceback", line)]
    return next(iter(lines), output[-200:])[:240]


def try_share(
    scratch: Path, world: Path, only: str, sample: int, every: int, number: int, workers: int
) -> tuple[int, int, Found]:
    """Try every `workers`-th of the variants, from the one of that number on.

    Args:
        scratch: A new folder.
        world: The honest files.
        only: Text in the name of each variant.
        sample: Number of odd values in each JSON file.
        every: Of how many variants one is tried.
        number: Which of the shares this is, from 0.
        workers: Number of shares.

    Returns:
        Number of variants, of openings, and what may not happen.
    """
    scratch.mkdir()
    trials = Trials(scratch, world)
    chosen = [variant for variant in variants(world, sample) if only in variant.name][::every][number::workers]
    found: Found = {}
    opened = 0
    try:
        for variant in chosen:
            for verb in variant.verbs:
                opened += 1
                if wrong := trials.run(variant, verb):
                    found.setdefault(variant.name, {})[verb] = wrong
    finally:
        trials.close()
    return len(chosen), opened, found
