"""One data set: the organisations in processes of their own, then all of them in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, parquet

from cutlayer.channel.trail import verify_trail
from cutlayer.storage.tensor_file import read_tensors
from cutlayer.training.folder import RunFolder
from tools.organisations.cases import MLP, Case
from tools.organisations.sites import issue_certificates
from tools.ports import free_port

FEDERATION = "trial"
_ALIGNMENT = frozenset({"align", "masked", "remasked", "proof", "common", "order", "ids"})


@dataclass(frozen=True)
class Outcome:
    """What became of a data set.

    Attributes:
        name: Name of the data set.
        rows: Rows of each party's table.
        common: Rows that all parties have, counted without the protocol.
        aligned: Rows that the organisations found.
        losses: Mean training loss of each epoch between organisations.
        differences: What differs from the run in one process: losses, metrics or weights. Nothing may.
        metric: Metric on held-out rows, and its value.
        seconds: Wall time of the organisations' processes, start and report included.
        training_seconds: Wall time of the epochs alone.
        alignment_bytes: Bytes of numbers that the private set intersection sent, both directions.
        training_bytes: Bytes of numbers of all other messages, both directions.
    """

    name: str
    rows: Mapping[str, int]
    common: int
    aligned: int
    losses: tuple[float, ...]
    differences: tuple[str, ...]
    metric: tuple[str, float]
    seconds: float
    training_seconds: float
    alignment_bytes: int
    training_bytes: int

    @property
    def wrong(self) -> bool:
        """Whether something differs."""
        return bool(self.differences) or self.common != self.aligned


def run_case(case: Case, base: Path, seed: int) -> Outcome:
    """Train a job both ways.

    Args:
        case: Data set and job.
        base: Empty folder for the folders of the organisations.
        seed: Seed of the schedule.
    """
    common = case.common()
    _lay_out(case, base, seed)
    _lay_out_together(case, common, base / "together", seed)
    began = time.monotonic()
    _run({name: ["party", "job.yaml", "--as", name, "--local", "party.yaml"] for name in case.parties}, base)
    seconds = time.monotonic() - began
    _run({"together": ["run", "job.yaml"]}, base)
    active = RunFolder(base / case.active / "run")
    summary, sent = active.summary, _sent(case, base)
    row = summary.utility.rows[0]
    return Outcome(
        name=case.name,
        rows={name: table.num_rows for name, table in case.tables.items()},
        common=common[case.active].num_rows,
        aligned=summary.data.common,
        losses=tuple(float(line["loss"]) for line in active.history()),
        differences=tuple(_differences(case, base)),
        metric=next((name, round(float(value or 0.0), 6)) for name, value in row.metrics.items()),
        seconds=round(seconds, 1),
        training_seconds=round(summary.run.seconds, 1),
        alignment_bytes=sum(size for kind, size in sent.items() if kind in _ALIGNMENT),
        training_bytes=sum(size for kind, size in sent.items() if kind not in _ALIGNMENT),
    )


def _lay_out(case: Case, base: Path, seed: int) -> None:
    """Each organisation's folder: its table, its private file, the shared job, its certificate."""
    passives = [name for name in case.parties if name != case.active]
    issue_certificates(base, FEDERATION, case.active, passives)
    shared: dict[str, Any] = {name: {"role": "passive"} for name in case.parties}
    shared[case.active] = {"role": "active", "address": f"127.0.0.1:{free_port()}"}
    for index, (name, private) in enumerate(case.parties.items()):
        table = f"own.{('csv', 'parquet')[index % 2]}"
        _write(case.tables[name], base / name / table)
        _dump(base / name / "job.yaml", _job(case, shared, seed))
        _dump(base / name / "party.yaml", {**private, "table": table, "audit": {"every": "never"}})
        _write_key(base / name)


def _lay_out_together(case: Case, common: Mapping[str, pa.Table], folder: Path, seed: int) -> None:
    """One folder with the common rows of all parties, in reverse: their order must not matter."""
    folder.mkdir()
    parties: dict[str, Any] = {}
    for name, private in case.parties.items():
        role = "active" if name == case.active else "passive"
        parties[name] = {"role": role, **private, "table": f"{name}.parquet", "audit": {"every": "never"}}
        table = common[name]
        _write(table.take(pa.array(range(table.num_rows - 1, -1, -1))), folder / f"{name}.parquet")
    _dump(folder / "job.yaml", _job(case, parties, seed))
    _write_key(folder)


def _job(case: Case, parties: Mapping[str, Any], seed: int) -> dict[str, Any]:
    train = {**case.train, "seed": seed, "threads": 1}
    return {"federation": FEDERATION, "parties": parties, "model": MLP, "train": train}


def _run(commands: Mapping[str, list[str]], base: Path) -> None:
    """Run commands at the same time, each in its folder.

    Raises:
        SystemExit: one failed.
    """
    options = ["--out", "run", "--key", "noise.key", "--json"]
    running = {}
    for name, words in commands.items():
        with (base / name / "output.json").open("w") as out, (base / name / "errors.txt").open("w") as errors:
            running[name] = subprocess.Popen(  # noqa: S603 - the words are those of this file
                [sys.executable, "-m", "cutlayer", *words, *options],
                cwd=base / name,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
                stdout=out,
                stderr=errors,
            )
    failed = {name: code for name, process in running.items() if (code := process.wait())}
    if failed:
        errors_of = "\n".join((base / name / "errors.txt").read_text() for name in failed)
        raise SystemExit(f"failed: {failed}\n{errors_of}")


def _differences(case: Case, base: Path) -> Iterator[str]:
    """What the organisations have otherwise than the run in one process; and damage of a trail."""
    apart, together = RunFolder(base / case.active / "run"), RunFolder(base / "together" / "run")
    for key in ("loss", "metrics"):
        if [line[key] for line in apart.history()] != [line[key] for line in together.history()]:
            yield key
    for name in case.parties:
        paths = sorted((base / name / "run" / "checkpoint" / name).glob("*.safetensors"))
        if not paths:
            yield f"no checkpoint of {name}"
        for path in paths:
            tensors, other = (
                read_tensors(folder / "checkpoint" / name / path.name)[0]
                for folder in (base / name / "run", together.path)
            )
            yield from (
                f"{key} of {name} in {path.name}" for key, each in tensors.items() if not each.equal(other[key])
            )
        yield from (f"trail of {name}: {problem}" for problem in verify_trail(_trail(base, name)).problems)


def _sent(case: Case, base: Path) -> Counter[str]:
    """Bytes of numbers by kind of message, from the trails of all organisations."""
    total: Counter[str] = Counter()
    for name in case.parties:
        for file in verify_trail(_trail(base, name)).files:
            for (_, kind), (_, size) in file.sent.items():
                total[kind] += size
    return total


def _trail(base: Path, name: str) -> Path:
    return base / name / ".cutlayer" / f"{name}.key.trail"


def _write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)


def _write_key(folder: Path) -> None:
    """The same key in both ways: it is a condition for equal numbers, and for this comparison alone."""
    (folder / "noise.key").write_bytes(bytes(range(32)))
    (folder / "noise.key").chmod(0o600)


def _dump(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1))  # JSON is YAML
