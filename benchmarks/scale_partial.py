"""Memory of a run on all rows, of which a partner has 30 %, beside one on the common rows of the same tables."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.scale import MEMORY, Meter, apart
from benchmarks.scale_tables import make_tables, scale_job
from cutlayer.config import Job, validated
from cutlayer.data.party_data import PartyTable
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.phases.active_epochs import ActiveEpochs
from cutlayer.parties.phases.active_side import ActiveSide
from cutlayer.training.keys import Keys
from cutlayer.training.process import keep_freed_memory

OVERLAP = 0.3


def peaks(folder: Path, kind: str) -> dict[str, float]:
    """Largest anonymous memory of the process in each stage and outside of all, in MB, and processor time in seconds.

    Args:
        folder: Folder of the tables.
        kind: `common` or `all`.
    """
    keep_freed_memory()
    raw = scale_job(folder, MEMORY, "never").model_dump(mode="json", exclude_unset=True)
    raw["rows"] = kind
    if kind == "all":  # whose batches are drawn by the ids
        del raw["train"]["shuffle"]
    meter, began = Meter(), time.process_time()
    patches = [
        mock.patch.object(PartyTable, "prepare", meter.wrap("encode", PartyTable.prepare)),
        mock.patch.object(ActiveEpochs, "steps", _staged(meter, "train", ActiveEpochs.steps)),
        mock.patch.object(ActiveSide, "evaluate", _staged(meter, "evaluate", ActiveSide.evaluate)),
    ]
    with meter.running():
        for patch in patches:
            patch.start()
        try:
            job = validated(Job, raw, "scale")
            execute(job, folder / f"run-{kind}", Options(Keys(folder, bytes(32))), Progress())
        finally:
            for patch in patches:
                patch.stop()
    found = {name: round(stage.peak_mb, 1) for name, stage in meter.stages.items()}
    return {**found, "outside": round(meter.between_mb, 1), "seconds": round(time.process_time() - began, 1)}


def _staged(meter: Meter, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
    """The same generator, as a stage."""

    def timed(owner: ActiveEpochs | ActiveSide, *arguments: Any) -> Any:
        meter.enter(name)
        result = yield from inner(owner, *arguments)
        meter.leave()
        return result

    return timed


def scale_partial(rows: int) -> dict[str, dict[str, float]]:
    """Both kinds of runs, each in a process of its own.

    Args:
        rows: Number of rows of each table, 50,000 or more: a batch has 8,192.
    """
    with tempfile.TemporaryDirectory(prefix="cutlayer-partial-") as scratch:
        make_tables(Path(scratch), rows, OVERLAP)
        return {kind: apart(peaks, Path(scratch), kind) for kind in ("common", "all")}


def main() -> None:
    """Print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    print(json.dumps(scale_partial(parser.parse_args().rows), indent=2))


if __name__ == "__main__":
    main()
