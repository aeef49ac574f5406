"""`python -m studies NAME --data DIR` reruns a paper's tables; without a name it lists the studies."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before the tensor library is loaded, as `cutlayer` does

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from cutlayer.cli.progress import TerminalProgress
from cutlayer.errors import ConfigError, CutlayerError
from cutlayer.jobs.options import Progress
from cutlayer.training.process import keep_freed_memory
from studies.index import write_index
from studies.record import PAGES, PUBLISHED, Record
from studies.registry import STUDIES, render_study, run_study
from studies.trials import Scope

BAD_INPUT, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 good, 2 bad input, 130 interrupted, others as `cutlayer`'s.

    Args:
        arguments: Words after the program's name; those of the process if `None`.
    """
    options = _parser().parse_args(arguments)
    if options.list or (options.name is None and not options.index):
        sys.stdout.write("".join(f"{name:<18} {study.title}\n" for name, study in STUDIES.items()))
        return 0
    try:
        return _run(options)
    except CutlayerError as error:
        sys.stderr.write(f"error {error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"error {error}\n")
        return BAD_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command continues\n")
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument("name", nargs="?", help="the study to run")
    parser.add_argument("--list", action="store_true", help="list the studies")
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--out", type=Path, help="folder of results; default: runs/study-NAME")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each setting; default: 3")
    parser.add_argument("--group", action="append", default=[], help="only this data set; may be repeated")
    parser.add_argument("--setting", action="append", default=[], help="only this setting; may be repeated")
    parser.add_argument("--workers", type=int, default=1, help="processes that train at a time; default: 1")
    parser.add_argument("--full", action="store_true", help="the paper's sizes, where a study has them: days on a CPU")
    parser.add_argument("--render", action="store_true", help="write the page again from NAME.json")
    parser.add_argument("--index", action="store_true", help="write index.md again from all results")
    parser.add_argument("--json", action="store_true", help="print the results as one JSON document")
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.index:
        page = write_index(options.out or PUBLISHED, options.out or PAGES)
        sys.stdout.write(page.read_text(encoding="utf-8"))
        return 0
    run = Path("runs") / f"study-{options.name}{'-full' * options.full}"
    folder = options.out or (PAGES if options.render else run)
    if options.json:
        record = _results(options, folder, Progress())
        sys.stdout.write(json.dumps([asdict(result) for result in record.results], indent=1) + "\n")
        return 0
    with TerminalProgress(Console(stderr=True)) as progress:
        _results(options, folder, progress)
    sys.stdout.write((folder / f"{options.name}.md").read_text(encoding="utf-8"))
    return 0


def _results(options: argparse.Namespace, folder: Path, progress: Progress) -> Record:
    if options.render:
        return render_study(options.name, options.out or PUBLISHED, folder)
    if options.data is None:
        raise ConfigError.expected("--data, the folder of data sets", "none", "name it, or render what is there")
    scope = Scope(options.seeds, tuple(options.group), tuple(options.setting))
    chosen = {"full": options.full, "workers": options.workers}
    return run_study(options.name, options.data, folder, scope, progress, **chosen)


if __name__ == "__main__":
    keep_freed_memory()
    sys.exit(main())
