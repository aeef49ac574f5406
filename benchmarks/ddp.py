"""Two workers per party, started by `torchrun`, against one: rows per second, and how far the losses differ.

The reference job of `local_training` on this machine, without TLS, by `cutlayer party` in a process for each worker.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.local_training import reference_job
from cutlayer import cli
from cutlayer.training.folder import RunFolder
from cutlayer.workers import usable_cores
from tools.ports import free_port

PARTIES = ("active", "passive")
TIMEOUT = 3600


@dataclass(frozen=True)
class DataParallel:
    """Speed of several workers per party, against one.

    Attributes:
        name: Name of the benchmark.
        ratio: Median over the epochs of the rows per second with several workers, over those with one.
        lowest: Lowest ratio of an epoch.
        highest: Highest ratio of an epoch.
        rate: Rows per second with several workers, at the median epoch.
        rate_one: The same with one.
        workers: Number of workers per party.
        cores: Number of cores of the machine, for all workers of both parties.
        loss_difference: Largest relative difference of the loss of an epoch: rounding.
        repeats: Number of epochs of each, after one to warm up.
    """

    name: str
    ratio: float
    lowest: float
    highest: float
    rate: int
    rate_one: int
    workers: int
    cores: int
    loss_difference: float
    repeats: int


def ddp(table: str, batch_size: int, repeats: int, workers: int = 2) -> DataParallel:
    """Train with one worker per party, then with several; the first epoch of each warms up."""
    single, several = (_history(Path(table), batch_size, repeats + 1, each) for each in (1, workers))
    rates = [[float(line["rows_per_second"]) for line in lines[1:]] for lines in (single, several)]
    ratios = [ours / alone for alone, ours in zip(*rates, strict=True)]
    losses = [(float(alone["loss"]), float(ours["loss"])) for alone, ours in zip(single, several, strict=True)]
    return DataParallel(
        name="ddp",
        ratio=round(statistics.median(ratios), 3),
        lowest=round(min(ratios), 3),
        highest=round(max(ratios), 3),
        rate=round(statistics.median(rates[1])),
        rate_one=round(statistics.median(rates[0])),
        workers=workers,
        cores=usable_cores(),
        loss_difference=max(abs(ours / alone - 1) for alone, ours in losses),
        repeats=repeats,
    )


def _history(table: Path, batch_size: int, epochs: int, workers: int) -> list[dict[str, Any]]:
    """The epochs of a training with a number of workers per party."""
    raw = reference_job(table, batch_size, epochs, "never").model_dump(mode="json", exclude_none=True)
    raw["train"]["workers"], raw["alignment"] = workers, "plain"
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(workers)]
    shared = {name: {"role": raw["parties"][name]["role"]} for name in PARTIES}
    shared["active"] |= {"address": addresses[0], "lanes": addresses[1:]}
    with tempfile.TemporaryDirectory(prefix="cutlayer-bench-") as scratch:
        folder = Path(scratch)
        (folder / "job.yaml").write_text(json.dumps({**raw, "parties": shared}))
        (folder / "key").write_bytes(bytes(32))
        (folder / "key").chmod(0o600)
        started = []
        for name in PARTIES:
            private = {key: value for key, value in raw["parties"][name].items() if key in _PRIVATE}
            (folder / f"{name}.yaml").write_text(json.dumps(private))
            started.append(_start(_arguments(folder, name), workers))
        try:
            codes = [wait() for wait, _ in started]
        finally:
            for _, kill in started:
                kill()
        if any(code != 0 for code in codes):  # `None`: it did not end
            raise RuntimeError(f"a party ended with exit codes {codes}")
        return list(RunFolder(folder / "run-active").history())


_PRIVATE = ("table", "id", "label", "features", "audit")


def _arguments(folder: Path, name: str) -> list[str]:
    files = ["--local", f"{folder / name}.yaml", "--out", str(folder / f"run-{name}"), "--key", str(folder / "key")]
    return ["party", str(folder / "job.yaml"), "--as", name, *files, "--plaintext", "--quiet", "--json"]


def _start(arguments: list[str], workers: int) -> tuple[Callable[[], int | None], Callable[[], None]]:
    """Start a party, several workers by `torchrun`; how to wait for its exit code, and how to kill it."""
    if workers == 1:
        alone = processes.context.Process(target=_run_alone, args=(arguments,))
        alone.start()

        def wait() -> int | None:
            alone.join(TIMEOUT)
            return alone.exitcode

        return wait, alone.kill
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", "-m", "--", "cutlayer"]
    launched = subprocess.Popen([sys.executable, "-m", *launcher, *arguments], stdout=subprocess.DEVNULL)
    return partial(launched.wait, TIMEOUT), launched.kill


def _run_alone(arguments: list[str]) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["cutlayer", *arguments]
    cli.main()
