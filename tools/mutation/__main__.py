"""The command: measure the tests, test mutants, list the survivors."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db

from tools.mutation.forks import run_jobs
from tools.mutation.measurements import Store, digests, test_files
from tools.mutation.mutants import sources
from tools.mutation.session import Plan, Session
from tools.mutation.settings import HERE, ROOT, Settings, equivalents
from tools.mutation.summary import survivors, table, tested
from tools.mutation.trees import private_trees
from tools.mutation.trial import preload


@dataclass(frozen=True)
class _Command:
    """One call of the command.

    Attributes:
        options: of the command line.
        settings: what is mutated and tested.
        modules: source of each target module by its path.
        store: the measurements.
    """

    options: argparse.Namespace
    settings: Settings
    modules: dict[str, str]
    store: Store

    def measure(self) -> None:
        """Measure the test files that are not measured yet; all of them where a target module changed."""
        if self.store.sources() != digests(self.modules):
            self.store.clear()
        self.store.note_sources(self.modules)
        wanted = self.options.tests or [""]
        files = [file for text in wanted for file in self._test_files() if text in file]
        with self._trees() as trees:
            jobs = self.store.jobs(files, list(self.modules), trees, self.options.root)
            for outcome in run_jobs(jobs, trees):
                measured = self.store.read(outcome.name)
                failing = sorted(measured.failing) if measured else [outcome.output[-1000:]]
                print(f"{outcome.seconds:6.1f} s  {outcome.name}", *failing, sep="\n    ", flush=True)

    def test(self, session: Session) -> None:
        """Test the pending mutants."""
        measured = [entry for file in self._test_files() if (entry := self.store.read(file)) is not None]
        if not measured:
            sys.exit("expected measurements of the tests, got none; run `python -m tools.mutation --measure` first")
        chosen = self.options
        items = session.pending(chosen.module, chosen.sample, chosen.seed, chosen.retry_survivors)
        print(f"{len(session)} mutants, {len(items)} to test", flush=True)
        with self._trees() as trees:
            plan = Plan(
                self.modules,
                measured,
                self.store.sources(),
                chosen.max_seconds,
                self.settings.definitions,
                trees,
                chosen.root,
            )
            for outcome in run_jobs(session.jobs(items, plan), trees):
                print(session.note(outcome, plan), flush=True)

    def _test_files(self) -> list[str]:
        return test_files(self.options.root, self.settings.tests, self.modules)

    def _trees(self) -> AbstractContextManager[list[Path]]:
        preload(self.settings.preloaded)
        return private_trees(self.options.root, self.options.state, self.settings.copied, self.options.workers)


def main() -> None:
    """Read the options and do what they ask for."""
    # A run in the background ignores an interrupt by default, and its forks must end with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    options = _options()
    settings = Settings.read(options.settings)
    modules = sources(options.root, settings.targets)
    command = _Command(options, settings, modules, Store(options.state / "measured"))
    if options.measure:
        command.measure()
        return
    with use_db(str(options.state / "session.sqlite"), WorkDB.Mode.create) as database:
        session = Session(database, modules)
        if not (options.list_survivors or options.summary):
            command.test(session)
        entries = tested(session.results(options.module), equivalents(options.settings.with_name("equivalent.toml")))
        print("\n".join(survivors(entries) if options.list_survivors else table(entries)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure which tests execute which lines; comes first")
    parser.add_argument("--tests", nargs="+", metavar="TEXT", help="with --measure: only test files named so in part")
    parser.add_argument("--module", default="", metavar="PATTERN", help="part of the module's path, e.g. accounting/")
    parser.add_argument("--sample", type=int, metavar="N", help="test N mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the draw; the same seed goes on with the same sample")
    parser.add_argument("--retry-survivors", action="store_true", help="test the survivors so far again")
    parser.add_argument("--max-seconds", type=float, default=60.0, help="processor time of the tests of one mutant")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="forks at a time")
    parser.add_argument("--list-survivors", action="store_true", help="print the survivors so far, and test nothing")
    parser.add_argument("--summary", action="store_true", help="print the counts so far, and test nothing")
    parser.add_argument("--root", type=Path, default=ROOT, help="root of the repository")
    parser.add_argument("--settings", type=Path, default=HERE / "mutation.toml", help="what is mutated and tested")
    parser.add_argument("--state", type=Path, help="folder of the session; .mutation in the root unless given")
    options = parser.parse_args()
    options.root = options.root.resolve()
    options.state = (options.state or options.root / ".mutation").resolve()
    options.state.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main()
