"""Two organisations over TLS, killed at random times or with a link that is harmed: the numbers of a quiet run.

Whoever ends before the run does is resumed.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from cutlayer.channel.trail import verify_trail
from cutlayer.storage.tensor_file import read_tensors
from cutlayer.training.folder import RunFolder
from tools.faults.proxy import Faults, Proxy
from tools.faults.trial import ACTIVE, PASSIVE
from tools.organisations.sites import issue_certificates
from tools.ports import free_port

PARTIES = (ACTIVE, PASSIVE)
EPOCHS, STEPS = 12, 10
LOST = (-9, 3)
"""Exit codes of a party that was killed, or that lost the other."""
HARMED = 2
"""Exit code of a party that refused what came through a harmed link, or that was told so."""
MAX_FAULTS = 4
"""Faults of a run, so that it ends."""
PATIENCE = 300.0
MISSED = 15.0
"""Seconds for which the other still runs, from which on a party that has ended is missed."""
_fork = multiprocessing.get_context("forkserver")
_JOB = """federation: faults
rows: {rows}
parties:
  {active}: {{role: active, address: "127.0.0.1:{port}"}}
  {passive}: {{role: passive, on_absent: wait}}
model: {{bottom: {{kind: mlp, hidden: [8, 4]}}, top: {{kind: mlp, hidden: [4]}}}}
train: {{epochs: {epochs}, batch_size: 64, seed: 3, threads: 1, keep: last, checkpoint_every: 2}}
"""


def kill_often(kills: int, seed: int, rows: str = "common") -> dict[str, Any]:
    """Kill each party a number of times in all over as many runs as that takes; compare each with a quiet run.

    Args:
        kills: Number of kills of each party.
        seed: Seed of the tables and of the times.
        rows: `common`, or `all`: then the passive party lacks two fifths of the rows.

    Returns:
        Kills by party, number of runs, and what differed: nothing may.
    """
    draw, done, runs = random.Random(seed), dict.fromkeys(PARTIES, 0), 0
    wrong: list[str] = []
    with _sites(seed, rows) as (base, _):
        _train(base, "quiet", random.Random(0), {}, {})
        while min(done.values()) < kills:
            runs += 1
            _train(base, f"run-{runs}", draw, {name: kills - done[name] for name in PARTIES}, done)
            wrong += _differences(base, f"run-{runs}")
        wrong += _trail_problems(base)
    return {"kills": done, "runs": runs, "epochs": EPOCHS, "steps_per_epoch": STEPS, "wrong": wrong}


def harm_often(runs: int, seed: int, rows: str = "common") -> dict[str, Any]:
    """Train through a proxy that harms what passes, a number of times, and compare each run with a quiet one.

    Args:
        runs: Number of runs.
        seed: Seed of the tables and of the faults.
        rows: As in `kill_often`.

    Returns:
        Number of faults by kind, of starts after an error, and what differed: nothing may.
    """
    draw, faults = random.Random(seed), Counter[str]()
    wrong: list[str] = []
    resumed = 0
    with _sites(seed, rows) as (base, port):
        _train(base, "quiet", random.Random(0), {}, {})
        for number in range(runs):
            harm = Faults(draw.randrange(2**32), 0.05)

            def some(piece: bytes, harm: Faults = harm) -> bytes | None:
                return harm(piece) if len(harm.done) < MAX_FAULTS else piece

            with Proxy(f"127.0.0.1:{port}", some) as proxy:
                resumed += _train(base, f"run-{number}", draw, {}, {}, ("--address", proxy.address))
            faults.update(harm.done)
            wrong += _differences(base, f"run-{number}")
        wrong += _trail_problems(base)
    return {"runs": runs, "rows": rows, "faults": dict(faults), "resumed": resumed, "wrong": wrong}


def _train(
    base: Path,
    out: str,
    draw: random.Random,
    left: dict[str, int],
    done: dict[str, int],
    through: Sequence[str] = (),
) -> int:
    """One run of both parties, who are resumed until it has ended.

    Args:
        base: Folder of the sites.
        out: Name of the run folders.
        draw: Draws the kills.
        left: Kills that are left, by party.
        done: Kills so far, by party.
        through: Options of the passive party, which reaches the other through a harmed link.

    Returns:
        Number of starts after the first of each party.
    """
    may_end = (*LOST, HARMED) if through else LOST
    more = {ACTIVE: (), PASSIVE: through}
    running = {name: _start(base / name, name, out, more[name], resume=False) for name in PARTIES}
    until, again = time.monotonic() + PATIENCE, 0
    ended: dict[str, float] = {}
    # A party may lose the other at the very end, when both have stopped before this loop looks again.
    while any(process.exitcode in (None, *may_end) for process in running.values()):
        victim = draw.choice(PARTIES)
        if left.get(victim, 0) > 0 and _commits(base, out):
            time.sleep(draw.random() * 0.6)
            if running[victim].is_alive():
                running[victim].kill()
                running[victim].join()
                left[victim] -= 1
                done[victim] += 1
                time.sleep(draw.random() * 0.2)
        lost = any(process.exitcode in may_end for process in running.values())
        for name, process in running.items():
            # One that has ended starts again too where another resumes, which would wait for it.
            since = ended.setdefault(name, time.monotonic()) if process.exitcode == 0 else math.inf
            if (lost and process.exitcode in (0, *may_end)) or time.monotonic() > since + MISSED:
                ended.pop(name, None)
                running[name] = _start(base / name, name, out, more[name], resume=True)
                again += 1
        if time.monotonic() > until:
            raise SystemExit(f"{out} did not end within {PATIENCE:g} s")
        time.sleep(0.02)
    failed = {name: process.exitcode for name, process in running.items() if process.exitcode}
    if failed:
        errors = "\n".join((base / name / "output.json").read_text() for name in failed)
        raise SystemExit(f"{out} failed: {failed}\n{errors}")
    return again


def _trail_problems(base: Path) -> list[str]:
    return [
        f"{name}: {problem}"
        for name in PARTIES
        for problem in verify_trail(base / name / ".cutlayer" / f"{name}.key.trail").problems
    ]


def _commits(base: Path, out: str) -> bool:
    return (base / ACTIVE / out / "checkpoint" / ACTIVE / "committed.json").exists()


def _differences(base: Path, out: str) -> Iterator[str]:
    """What a run left that differs from the quiet run."""
    for name in PARTIES:
        mine, quiet = (base / name / folder for folder in (out, "quiet"))
        paths = sorted((quiet / "checkpoint" / name).glob("*.safetensors"))
        if [path.name for path in paths] != sorted(p.name for p in (mine / "checkpoint" / name).glob("*.safetensors")):
            yield f"{out}: files of {name}"
        for path in paths:
            tensors, other = read_tensors(path)[0], read_tensors(mine / "checkpoint" / name / path.name)[0]
            yield from (f"{out}: {key} of {name}" for key, t in tensors.items() if not t.equal(other[key]))
        if list(mine.rglob("*.partial")):
            yield f"{out}: a leftover of {name}"
        if (mine / "ledger.json").read_bytes() != (quiet / "ledger.json").read_bytes():
            yield f"{out}: ledger of {name}"
    losses = [[line["loss"] for line in RunFolder(base / ACTIVE / folder).history()] for folder in (out, "quiet")]
    if losses[0] != losses[1]:
        yield f"{out}: history"


@contextmanager
def _sites(seed: int, rows_of_run: str) -> Iterator[tuple[Path, int]]:
    """A folder for each organisation, with its table, certificate and private file, and the port of the active one."""
    _fork.set_forkserver_preload(["cutlayer.cli", "cutlayer.jobs.party"])
    draw = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(prefix="cutlayer-kills-") as scratch:
        base = Path(scratch)
        issue_certificates(base, "faults", ACTIVE, [PASSIVE])
        rows, port = STEPS * 64 * 5 // 4, free_port()
        ids, x = np.arange(rows), draw.normal(size=(rows, 4))
        labels = (x.sum(1) + draw.normal(size=rows) > 0).astype(int)
        tables = {ACTIVE: {"id": ids, "a": x[:, 0], "y": labels}, PASSIVE: {"id": ids, "b": x[:, 1], "c": x[:, 2]}}
        for name, columns in tables.items():
            order = draw.permutation(rows)
            if rows_of_run == "all" and name == PASSIVE:
                order = order[: rows * 3 // 5]
            table = pa.table({key: values[order] for key, values in columns.items()})
            pa.csv.write_csv(table, base / name / "own.csv")
            private = "table: own.csv\nid: id\naudit: {every: never}\n"
            private += "label: y\nprivacy: {label_dp: {eps: 2.0}}\n" if name == ACTIVE else ""
            (base / name / "party.yaml").write_text(private)
            job = _JOB.format(rows=rows_of_run, active=ACTIVE, passive=PASSIVE, port=port, epochs=EPOCHS)
            (base / name / "job.yaml").write_text(job)
            # The same key for all runs, so that they are to end with the same numbers.
            (base / name / "noise.key").write_bytes(bytes(range(32)))
            (base / name / "noise.key").chmod(0o600)
        yield base, port


def _start(folder: Path, name: str, out: str, options: Sequence[str], *, resume: bool) -> BaseProcess:
    # Killed before it made a run folder, a party has nothing to resume.
    more = [*options, *(["--resume"] if resume and (folder / out / "job.yaml").exists() else [])]
    files = ["--local", "party.yaml", "--out", out, "--key", "noise.key", "--timeout", "120", "--reconnect", "1"]
    process = _fork.Process(
        target=_command, args=(folder, ["party", "job.yaml", "--as", name, *files, "--json", *more])
    )
    process.daemon = True
    process.start()
    return process


def _command(folder: Path, arguments: list[str]) -> None:
    os.chdir(folder)
    for descriptor, name in ((1, "output.json"), (2, "errors.txt")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    from cutlayer import cli

    sys.argv = ["cutlayer", *arguments]
    cli.main()
