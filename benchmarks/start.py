"""Time from the start of a verb to its end, as a multiple of the time to import PyTorch.

Each run is a new process. In every repeat the import and all verbs run in turn, and a verb is divided by the import of
its own repeat: other work on the machine slows both.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyarrow import csv, table

IMPORT = ("-c", "import torch")
VERBS = {
    "--help": ("--help",),
    "list attacks": ("list", "attacks"),
    "run of a missing file": ("run", "missing.yaml"),
    "check of a job with a mistyped key": ("check", "mistyped.yaml"),
    "check of a small job": ("check", "job.yaml"),
}
"""Arguments of each verb, in a folder with a job of two parties and 569 rows, as `init` writes it."""
FAILING = {"run of a missing file", "check of a job with a mistyped key"}


@dataclass(frozen=True)
class VerbTime:
    """Time of a verb, over the repeats.

    Attributes:
        verb: What is run.
        seconds: Median of its seconds.
        ratio: Median of its seconds over those of `import torch`.
        lowest: Lowest of it.
        highest: Highest of it.
        cpu_ratio: Median of the same of processor time, which other work on the machine changes less.
        cpu_lowest: Lowest of it.
        cpu_highest: Highest of it.
    """

    verb: str
    seconds: float
    ratio: float
    lowest: float
    highest: float
    cpu_ratio: float
    cpu_lowest: float
    cpu_highest: float


@dataclass(frozen=True)
class StartTimes:
    """Time of each verb against the import of PyTorch.

    Attributes:
        repeats: Number of runs of each.
        import_seconds: Median of the seconds of `import torch`.
        import_cpu_seconds: Median of its processor seconds.
        verbs: Every verb.
    """

    repeats: int
    import_seconds: float
    import_cpu_seconds: float
    verbs: list[VerbTime]


def start_times(repeats: int) -> StartTimes:
    """Run the import and every verb `repeats` times, after one run of each that is not counted."""
    with tempfile.TemporaryDirectory(prefix="cutlayer-start-") as scratch:
        folder = Path(scratch)
        write_job(folder)
        (folder / "mistyped.yaml").write_text((folder / "job.yaml").read_text().replace("parties:", "partys:"))
        lines: dict[str, tuple[tuple[str, ...], int]] = {"import torch": (IMPORT, 0)}
        lines |= {verb: (("-m", "cutlayer", *given), 2 * (verb in FAILING)) for verb, given in VERBS.items()}
        rounds = [{verb: timed(folder, *line) for verb, line in lines.items()} for _ in range(repeats + 1)][1:]
    seconds, cpu = (_of(rounds, index) for index in (0, 1))
    return StartTimes(
        repeats,
        round(statistics.median(seconds["import torch"]), 3),
        round(statistics.median(cpu["import torch"]), 3),
        [
            VerbTime(verb, round(statistics.median(seconds[verb]), 3), *_ratios(seconds, verb), *_ratios(cpu, verb))
            for verb in VERBS
        ],
    )


def write_job(folder: Path) -> None:
    """Write the breast cancer table of scikit-learn, its columns split between two parties, and the job for it."""
    from sklearn.datasets import load_breast_cancer

    loaded = load_breast_cancer()
    columns = dict(zip(loaded.feature_names, loaded.data.T, strict=True))
    ids, names = range(len(loaded.target)), [*columns]
    owned = {
        "clinic": {"id": ids, "benign": loaded.target} | {name: columns[name] for name in names[:15]},
        "laboratory": {"id": ids} | {name: columns[name] for name in names[15:]},
    }
    for party, own in owned.items():
        csv.write_csv(table({name: [*values] for name, values in own.items()}), folder / f"{party}.csv")
    timed(folder, ("-m", "cutlayer", "init", ".", "--labels", "clinic.csv", "--label", "benign", "--yes"), 0)


class Took(NamedTuple):
    """Elapsed and processor seconds of a process."""

    seconds: float
    cpu: float


def timed(folder: Path, arguments: tuple[str, ...], code: int) -> Took:
    """Run a new interpreter, whose exit code must be `code`."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=_environment(), capture_output=True, text=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != code:
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return Took(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _environment() -> dict[str, str]:
    """The environment of this process, with its search path, since the verbs run in another folder.

    Bytecode is written, as it is for an installed package: without it most of a short verb's time is its compilation.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def _of(rounds: list[dict[str, Took]], index: int) -> dict[str, list[float]]:
    return {verb: [timed[verb][index] for timed in rounds] for verb in rounds[0]}


def _ratios(taken: dict[str, list[float]], verb: str) -> tuple[float, float, float]:
    ratios = [mine / torch for mine, torch in zip(taken[verb], taken["import torch"], strict=True)]
    return round(statistics.median(ratios), 3), round(min(ratios), 3), round(max(ratios), 3)
