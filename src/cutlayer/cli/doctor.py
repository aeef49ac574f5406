"""`cutlayer doctor`: check this installation and machine."""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import typer

from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError
from cutlayer.jobs.one_check import PreflightCheck, run_check
from cutlayer.report.rounding import times


@verb()
def doctor(*, json: bool = False) -> None:
    """Check this installation and machine. Trains two steps.

    Example: cutlayer doctor --json
    """
    from cutlayer.cli.party import show_checks

    checks = [*_installation(), *_machine()]
    if not any(check.problem for check in checks):
        checks += [run_check("device", _device), run_check("self-test", _self_test)]
    raise typer.Exit(show_checks(checks, as_json=json))


def _installation() -> Iterator[PreflightCheck]:
    """Versions against what this package requires, and the extras; nothing is imported."""
    from importlib.metadata import PackageNotFoundError, requires

    from cutlayer.config.extras import EXTRAS, missing_of, remedy_of

    yield PreflightCheck("python", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    try:
        wanted = [line for line in requires("cutlayer") or () if "extra ==" not in line]
    except PackageNotFoundError:
        yield PreflightCheck("packages", "versions unknown: cutlayer runs from a folder, not installed", caution=True)
        wanted = []
    old = [problem for line in wanted if (problem := _outdated(line))]
    remedy = f"{'; '.join(old)}; install cutlayer again, by pip install --upgrade" if old else ""
    yield PreflightCheck("packages", f"{len(wanted)} as required, torch {_version('torch') or 'missing'}", remedy)
    for extra in EXTRAS:
        missing = missing_of(extra)
        yield PreflightCheck(f"extra {extra}", f"not installed; {remedy_of(extra)}" if missing else "installed")


def _outdated(requirement: str) -> str:
    """Fault of an installed package, by a requirement such as `numpy>=1.26`; empty without one."""
    name, lowest = re.match(r"([\w.-]+)[^>]*>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
    found = _version(name)
    if found is None or _numbers(found) < _numbers(lowest):
        return f"expected {name} {lowest} or later, got {found or 'none'}"
    return ""


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])


def _machine() -> Iterator[PreflightCheck]:
    import numpy as np  # loads its linear algebra, whose threads are stated
    from threadpoolctl import threadpool_info

    from cutlayer.workers import usable_cores

    blas = [f"{each['internal_api']} with {times(each['num_threads'], 'thread')}" for each in threadpool_info()]
    stated = os.environ.get("OMP_NUM_THREADS", "not set")
    numbers = f"NumPy {np.__version__}, {', '.join(blas) or 'no BLAS that is known'}"
    yield PreflightCheck("threads", f"{usable_cores()} cores for this process, OMP_NUM_THREADS {stated}; {numbers}")
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        remedy = "" if os.access(folder, os.W_OK) else f"{folder} cannot be written to; work in another folder"
        yield PreflightCheck("folder", f"{folder} can be written to", remedy)
    now = datetime.now(UTC)
    made = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    behind = f"the clock says {now:%Y-%m-%d %H:%M} UTC, before this file was installed; set it: certificates need it"
    zone = datetime.now().astimezone().tzname()
    yield PreflightCheck("clock", f"{now:%Y-%m-%d %H:%M} UTC, time zone {zone}", behind if now < made else "")


def _device() -> str:
    import torch

    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    apple = "; MPS is there, which no party trains on" if torch.backends.mps.is_available() else ""
    return (f"CUDA {torch.version.cuda}: {', '.join(gpus)}" if gpus else "cpu, no GPU that PyTorch can use") + apple


def _self_test() -> str:
    """Two steps of a small job, trained twice from the same key, give the same losses to the last bit.

    Raises:
        ConfigError: They do not.
    """
    import pyarrow as pa

    from cutlayer.config import Job, validated
    from cutlayer.jobs.execute import execute
    from cutlayer.jobs.options import Options, Progress
    from cutlayer.training.keys import Keys

    ids = list(range(64))
    tables = {
        "bank": pa.table({"id": ids, "label": [row % 2 for row in ids], "x": [row % 7 for row in ids]}),
        "telco": pa.table({"id": ids, "y": [row % 5 for row in ids]}),
    }
    bank = {"role": "active", "id": "id", "label": "label", "audit": {"every": "never"}}
    train = {"epochs": 1, "batch_size": 32, "split": {"test": 0.2, "validation": 0}}
    raw = {"parties": {"bank": bank, "telco": {"role": "passive", "id": "id"}}, "train": train}
    job = validated(Job, raw, "")
    losses = []
    with tempfile.TemporaryDirectory() as scratch:
        for run in ("first", "second"):
            keys = Keys(Path(scratch), bytes(32))
            folder = execute(job, Path(scratch) / run, Options(keys, tables=tables), Progress())
            losses.append(folder.history()[0]["loss"])
    if losses[0] != losses[1]:
        remedy = "another process of these libraries may change its random state; please report it"
        raise ConfigError.expected("the same loss twice, to the last bit", f"{losses[0]!r} and {losses[1]!r}", remedy)
    return f"two steps with two parties, twice: the same loss, {losses[0]!r}"
