"""Private set intersection of two tables: this package on all cores, and openmined-psi in its single process.

Both run the whole protocol in memory, both sides included: no link, no reading of tables. openmined-psi 2.0.6 uses raw
points on the curve P-256, and reveals the intersection to the client alone; this package also proves it to both sides.
Each side is a process of its own, `python -m benchmarks.psi ours ROWS`; this module imports little, since the worker
processes import it too.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from cutlayer.workers import usable_cores


@dataclass(frozen=True)
class Intersections:
    """Results, each as the median of the repeats, lowest and highest of the ratios.

    Attributes:
        rows: Number of rows of each of the two tables; half of them are common.
        repeats: Number of pairs of runs, interleaved.
        cores: Number of cores that this package used.
        wall_ratio: Wall time of this package over that of openmined-psi.
        wall_lowest: Lowest of it.
        wall_highest: Highest of it.
        cpu_ratio: The same of processor time, which other work on the machine changes less.
        cpu_lowest: Lowest of it.
        cpu_highest: Highest of it.
        seconds: Wall time of this package.
        cpu_seconds: Processor time of this package, all processes together.
        peak_mb: Memory of this package: the largest sum of resident sizes, those of the four workers included.
        other_seconds: Wall time of openmined-psi.
        other_cpu_seconds: Processor time of openmined-psi.
        other_peak_mb: Memory of openmined-psi.
    """

    rows: int
    repeats: int
    cores: int
    wall_ratio: float
    wall_lowest: float
    wall_highest: float
    cpu_ratio: float
    cpu_lowest: float
    cpu_highest: float
    seconds: float
    cpu_seconds: float
    peak_mb: float
    other_seconds: float
    other_cpu_seconds: float
    other_peak_mb: float


Cost = list[float]
"""Wall seconds, processor seconds, peak memory in megabytes."""


def intersections(rows: int, repeats: int) -> Intersections:
    """Time both in turn, each in a new process.

    Raises:
        ModuleNotFoundError: openmined-psi (extra `psi`) is not installed.
    """
    import private_set_intersection.python  # noqa: F401  (before minutes of work)

    costs = [(_apart("ours", rows), _apart("theirs", rows)) for _ in range(repeats)]
    walls = [mine[0] / other[0] for mine, other in costs]
    cpus = [mine[1] / other[1] for mine, other in costs]
    medians = [
        [round(statistics.median(pair[side][what] for pair in costs), 2) for what in range(3)] for side in (0, 1)
    ]
    return Intersections(
        rows,
        repeats,
        usable_cores(),
        round(statistics.median(walls), 3),
        round(min(walls), 3),
        round(max(walls), 3),
        round(statistics.median(cpus), 3),
        round(min(cpus), 3),
        round(max(cpus), 3),
        *medians[0],
        *medians[1],
    )


def ours(rows: int) -> int:
    """Align two tables of `rows` rows; returns the number of common ones."""
    import numpy as np
    import pyarrow as pa

    from cutlayer.alignment.common_rows import rows_active, rows_passive
    from cutlayer.alignment.intersection import Alignment
    from cutlayer.alignment.points import AligningSide
    from cutlayer.channel import link
    from cutlayer.config import LimitsConfig
    from cutlayer.data.party_data import PartyTable
    from cutlayer.parties.drive.drive import drive_together

    bank, telco = (
        PartyTable(name, pa.table({"id": pa.array(np.arange(rows) + start), "x": pa.array(np.zeros(rows))}), "id")
        for name, start in (("bank", 0), ("telco", rows // 2))
    )
    here, there = link("bank", "telco", "benchmark")
    alignment = Alignment("psi")
    result = drive_together(
        {
            "bank": rows_active(
                AligningSide("bank", bank, {"telco": here}, {"telco": rows}, LimitsConfig(), alignment)
            ),
            "telco": rows_passive(
                AligningSide("telco", telco, {"bank": there}, {"bank": rows}, LimitsConfig(), alignment)
            ),
        }
    )
    return len(result["bank"].positions)


def theirs(rows: int) -> int:
    """The same by openmined-psi, as its documentation shows."""
    import private_set_intersection.python as psi

    bank, telco = ([str(item) for item in range(start, start + rows)] for start in (0, rows // 2))
    client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
    setup = server.CreateSetupMessage(0.0, rows, telco, psi.DataStructure.RAW)
    response = server.ProcessRequest(client.CreateRequest(bank))
    return len(client.GetIntersection(setup, response))


def _apart(side: str, rows: int) -> Cost:
    command = [sys.executable, "-m", "benchmarks.psi", side, str(rows)]
    cost: Cost = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return cost


def _measured(name: str, rows: int) -> Cost:
    side = {"ours": ours, "theirs": theirs}[name]
    side(100)  # loads the libraries
    peak = Peak()
    peak.start()
    began, cpu = time.perf_counter(), _cpu()
    common = side(rows)
    seconds = time.perf_counter() - began
    if common != rows - rows // 2:
        raise ValueError(f"expected {rows - rows // 2} common rows, got {common}")
    return [seconds, _cpu() - cpu, peak.megabytes]


class Peak(threading.Thread):
    """Samples the resident size of this process and its workers; a worker's `ru_maxrss` has its parent's size in it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.megabytes = 0.0

    def run(self) -> None:
        """Keep the largest sum."""
        while True:
            pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
            self.megabytes = max(self.megabytes, sum(map(_resident, pids)))
            time.sleep(0.2)


def _resident(pid: int | None) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:  # it has ended
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _cpu() -> float:
    """Processor seconds of this process and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in used)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measured(sys.argv[1], int(sys.argv[2]))))
