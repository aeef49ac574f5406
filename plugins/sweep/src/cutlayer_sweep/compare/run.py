"""Trains every setting with the same seeds; what is trained already is taken over."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from cutlayer.config import Job
from cutlayer.errors import ConfigError, CutlayerError, Interrupted
from cutlayer.jobs.forecast import forecast
from cutlayer.jobs.options import Options, Progress
from cutlayer.problem.task import Task
from cutlayer.storage.durable import locked, make_folder, write_whole
from cutlayer.training.keys import Keys
from cutlayer.training.run_ledger import ledger_of
from cutlayer.version import __version__
from cutlayer_sweep.changes import JobChanges
from cutlayer_sweep.compare.result import Comparison
from cutlayer_sweep.compare.settings import jobs_of
from cutlayer_sweep.leak_kind import LeakKind
from cutlayer_sweep.measure import RenamedProgress, check_folder, check_measured, measure
from cutlayer_sweep.metrics import TrialMetrics


def compare(
    file: Path | str,
    protect: Sequence[str],
    *,
    seeds: int = 5,
    out: Path | str | None = None,
    leak: LeakKind = LeakKind.ALL,
    progress: Progress | None = None,
) -> Comparison:
    """Train a job under several settings and compare them by seed; the same call continues, or adds what is new.

    Args:
        file: The job file.
        protect: The settings, as `jobs_of` takes them; others are compared with the first.
        seeds: Number of seeds, from that of the job upwards.
        out: Folder of the results; by default `runs/NAME-compare` next to `NAME.yaml`.
        leak: Messages whose leak is compared.
        progress: Shows how far each training is.

    Returns:
        The comparison, which is also written to the folder: JSON, Markdown, CSV, LaTeX, SVG and PDF.

    Raises:
        ConfigError: The job or a setting is wrong, or the first setting failed with every seed.
        DataError: The tables are wrong.
        Interrupted: Ctrl-C; the same call goes on.
    """
    file, progress = Path(file), progress or Progress()
    if seeds < 1:
        raise ConfigError.expected("--seeds of 1 or more", seeds, "an interval needs two")
    folder = Path(out) if out else file.parent / "runs" / f"{file.stem}-compare"
    check_folder(folder, "a comparison", ("compare.", "trials"))
    every = JobChanges.of(file)
    base, jobs = every.base, jobs_of(every, protect)
    for job in jobs.values():
        check_measured(job, leak.messages)
    forecast(next(iter(jobs.values())))
    make_folder(folder)
    options = Options(Keys(file.parent / ".cutlayer", simulated=True))
    found: dict[str, dict[int, TrialMetrics]] = {name: {} for name in jobs}
    failed: dict[str, str] = {}
    with locked(folder / "compare.lock", "a comparison"):
        # The seeds are outermost, so that what an interruption leaves are whole comparisons.
        for step in range(seeds):
            seed = (base.train.seed + step) % 2**63
            for name, job in jobs.items():
                trial = job.uncompared(train=job.train.model_copy(update={"seed": seed}))
                try:
                    shown = RenamedProgress(progress, f"seed {seed} {name}")
                    found[name][seed] = _trained(trial, folder / "trials", options, leak, shown)
                except KeyboardInterrupt:
                    raise Interrupted(f"interrupted; the same command continues from {folder}") from None
                except CutlayerError as failure:
                    failed[name] = f"seed {seed}: {failure}"
        if not next(iter(found.values())):
            raise ConfigError(next(iter(failed.values())))
        guarantees = {name: tuple(total.statement for total in ledger_of(job).totals) for name, job in jobs.items()}
        result = Comparison(base.name, Task.of(base).metric, str(leak), found, guarantees, failed)
        result.write(folder)
    return result


def _trained(job: Job, trials: Path, options: Options, leak: LeakKind, progress: Progress) -> TrialMetrics:
    """Metrics of one training: those of its file, or new ones."""
    folder = trials / _identity(job, leak)
    stored = folder / "metrics.json"
    if stored.exists():
        return TrialMetrics(**json.loads(stored.read_text()))
    shutil.rmtree(folder, ignore_errors=True)  # of a training that did not end
    metrics = measure(job, folder, options, leak, progress)
    write_whole(stored, json.dumps(asdict(metrics), allow_nan=False))
    return metrics


def _identity(job: Job, leak: LeakKind) -> str:
    """Digest of all that a training depends on; of tables the path, size and time of change."""
    paths = [party.table.path for party in job.parties.values() if party.table is not None and party.table.path]
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths if path.is_file()]
    content = job.model_dump_json(exclude={"compare", "alternatives"})
    return hashlib.blake2b(repr((__version__, content, stamps, str(leak))).encode(), digest_size=8).hexdigest()
