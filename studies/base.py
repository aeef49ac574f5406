"""What a study is: a table of trainings, run once each and kept, and one page that compares them with a paper."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from scipy import stats

from cutlayer.audit.leak import BEST_ASSIGNMENT
from cutlayer.config import Job
from cutlayer.durable import locked, write_whole
from cutlayer.errors import ConfigError
from cutlayer.runs.execute import Options, Progress, execute
from cutlayer.runs.folder import RunFolder
from cutlayer.runs.together import Keys


@dataclass(frozen=True)
class Cell:
    """One training of a study.

    Attributes:
        group: the data and network, such as `Criteo`.
        setting: what is varied, such as `marvell sum_kl 0.16`.
        tables: data in memory, by party, where the job names no files.
    """

    group: str
    setting: str
    seed: int
    job: Job
    tables: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def slug(self) -> str:
        """A file name."""
        text = f"{self.group} {self.setting} seed {self.seed}"
        return "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in text)


@dataclass(frozen=True)
class Found:
    """What one training gave.

    Attributes:
        metric: the headline metric on test rows.
        leaks: `message/attack` to {"auc": worst over parties and epochs, "epoch": when, "last": of the last epoch}.
        layers: the same by `party/layer`.
        measured: what the study's `measure` adds.
    """

    group: str
    setting: str
    seed: int
    metric: float
    seconds: float
    leaks: Mapping[str, Mapping[str, float]]
    layers: Mapping[str, Mapping[str, float]]
    measured: Mapping[str, Any] = field(default_factory=dict)


ASSIGNED = "best assignment"
"""What follows the name of an attack that finds classes, under the names that fit the truth best."""


class Study(ABC):
    """One paper's figures, rerun.

    Class attributes:
        name: as in `python -m studies NAME`. title, source: of the page.
        settings: data and preset, and what differs from the paper's; a Markdown paragraph.
        full_settings: the same of the paper's sizes; empty where a study has one size.

    Args:
        full: run the paper's sizes.

    Raises:
        ConfigError: this study has one size.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    settings: ClassVar[str]
    full_settings: ClassVar[str] = ""

    def __init__(self, *, full: bool = False) -> None:
        if full and not self.full_settings:
            raise ConfigError.expected("a study of two sizes with --full", self.name, "leave --full out")
        self.full = full

    @abstractmethod
    def cells(self, data: Path, seeds: int) -> Iterator[Cell]:
        """All trainings, those to be run first first.

        Args:
            data: the folder of data sets.
            seeds: how many seeds of each setting.
        """

    def train(self, cell: Cell, work: Path, progress: Progress) -> dict[str, Any]:
        """Train one cell in the folder `work`; returns the attributes of `Found` as JSON values."""
        return run_cell(self, cell, work, progress)

    def measure(self, cell: Cell, folder: RunFolder) -> dict[str, Any]:
        """Further figures of one training, from its run folder before that is removed; JSON values."""
        return {}

    @abstractmethod
    def page(self, found: Sequence[Found]) -> str:
        """The body of the page, Markdown: claim, the paper's number, ours, verdict; then tables and figures."""

    def figures(self, found: Sequence[Found]) -> dict[str, str]:
        """SVG files by name, each of which the page shows as `figures/NAME`."""
        return {}


def run_cells(study: Study, data: Path, out: Path, seeds: int, progress: Progress) -> list[Found]:
    """Run every training that has no result in `out` yet; a study that was interrupted goes on where it stopped.

    Raises:
        RunFolderError: another process runs this study in `out`.
    """
    kept = out / ("cells-full" if study.full else "cells")
    kept.mkdir(parents=True, exist_ok=True)
    found = []
    with locked(out / "study.lock", f"the study {study.name}"):  # two processes would share the folder `work`
        for cell in study.cells(data, seeds):
            path = kept / f"{cell.slug}.json"
            if not path.exists():
                progress.stage(f"{cell.group}: {cell.setting}, seed {cell.seed}")
                write_whole(path, json.dumps(study.train(cell, out / "work", progress)), mode=0o644)
            found.append(Found(**json.loads(path.read_text())))
    return found


def run_cell(study: Study, cell: Cell, work: Path, progress: Progress) -> dict[str, Any]:
    """Run the cell's job, and take from its folder what the study keeps."""
    shutil.rmtree(work, ignore_errors=True)
    keys = Keys(work.parent / "keys", study_key(cell.job), simulated=True)
    folder = execute(cell.job, work, Options(keys, tables=cell.tables), progress)
    summary, audit = folder.read_json("summary.json"), folder.read_json("audit.json")
    own = next(row for row in summary["utility"]["rows"] if row["name"] == "this run")
    cells = audit["runs"]["this run"]["cells"]
    leaks = worst_leaks([c for c in cells if c["message"] != "layer"])
    layers = {f"{c['party']}/{c['layer']}": _worst(c) for c in cells if c["message"] == "layer"}
    measured = study.measure(cell, folder)
    shutil.rmtree(work)
    return {
        "group": cell.group,
        "setting": cell.setting,
        "seed": cell.seed,
        "metric": own["metrics"][summary["utility"]["metric"]],
        "seconds": summary["run"]["seconds"],
        "leaks": leaks,
        "layers": layers,
        "measured": measured,
    }


def study_key(job: Job) -> bytes:
    """The key, 32 bytes, of all parties in a study's trainings of one seed.

    It is no secret: a study's data are public. Under it all settings of a seed start from the same weights and can be
    compared, and another seed has other weights, noise and draws.
    """
    return hashlib.blake2b(f"cutlayer study {job.train.seed}".encode(), digest_size=32).digest()


def worst_leaks(cells: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By `message/attack`, what was learned from the passive party that leaks most, as `Found.leaks` has it.

    Where classes are found but must be named, also the figure under the best assignment, as `message/attack, best
    assignment`, at that party's worst epoch of the other.

    Args:
        cells: of messages, as in `audit.json`.
    """
    found: dict[str, dict[str, float]] = {}
    for cell in cells:
        key = f"{cell['message']}/{cell['attack']}"
        told = {key: _worst(cell)}
        if BEST_ASSIGNMENT in cell["also"]:
            told[f"{key}, {ASSIGNED}"] = {**told[key], "auc": cell["also"][BEST_ASSIGNMENT]}
        for name, worst in told.items():
            if name not in found or distance(worst["auc"]) > distance(found[name]["auc"]):
                found[name] = worst
    return found


def _worst(cell: Mapping[str, Any]) -> dict[str, float]:
    found = {"auc": cell["batch_auc"], "epoch": cell["epoch"], "last": cell["last_epoch_leak"]}
    return {key: math.nan if value is None else value for key, value in found.items()}


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with its 95 % interval (Student's t); no interval from one seed."""

    value: float
    half: float | None

    def __str__(self) -> str:
        """Three digits, as `0.723 ± 0.004`."""
        value = f"{round(self.value, 3) + 0.0:.3f}"  # never -0.000
        return value if self.half is None else f"{value} ± {self.half:.3f}"


def mean(values: Sequence[float]) -> Mean:
    """Mean and half-width of the 95 % t interval.

    >>> str(mean([0.7, 0.72, 0.71]))
    '0.710 ± 0.025'
    """
    if len(values) < 2:
        return Mean(values[0], None)
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return Mean(statistics.fmean(values), half)


def by_setting(found: Sequence[Found], group: str) -> dict[str, list[Found]]:
    """The results of one group by setting, in the order they were run."""
    grouped: dict[str, list[Found]] = {}
    for one in found:
        if one.group == group:
            grouped.setdefault(one.setting, []).append(one)
    return grouped


def distance(auc: float) -> float:
    """|AUC - 0.5|, what an attacker gains whichever way its scores point."""
    return abs(auc - 0.5)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table.

    >>> print(table(["a", "b"], [[1, 2]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)
