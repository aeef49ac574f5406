"""`cutlayer doctor`: check this installation, and this machine's part of a job between organisations."""

from __future__ import annotations

import os
import platform
import re
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutlayer.cli.app import Json, app
from cutlayer.cli.check import Local, Name
from cutlayer.config.extras import EXTRAS, missing_of, remedy_of
from cutlayer.errors import ConfigError
from cutlayer.jobs.one_check import PreflightCheck, checked
from cutlayer.report.rounding import times

if TYPE_CHECKING:
    from cutlayer.config import Job, PrivateFile

OwnJob = Annotated[Path | None, typer.Argument(help="A job between organisations, with --as and --local.")]
SECONDS = 3.0
"""How long a connection to the active party may take."""


@app.command()
def doctor(job: OwnJob = None, name: Name = None, local: Local = None, json: Json = False) -> None:
    """Check this installation and machine; with a job, its files, certificate and address too. Trains two steps."""
    from cutlayer.cli.party import show_checks

    if (job is None, name is None, local is None) not in ((True, True, True), (False, False, False)):
        raise ConfigError.expected("a job, --as and --local together, or none of them", "some of them")
    checks = [*_installation(), *_machine()]
    if not any(check.problem for check in checks):
        checks += [checked("device", _device), checked("self-test", _self_test)]
    if job is not None and name is not None and local is not None:
        checks += _own_part(job, name, local)
    raise typer.Exit(show_checks(checks, as_json=json))


def _installation() -> Iterator[PreflightCheck]:
    """Versions against what this package requires, and the extras; nothing is imported."""
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
    """What is wrong with an installed package, by a requirement such as `numpy>=1.26`; empty if nothing is."""
    name, lowest = re.match(r"([\w.-]+)[^>]*>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
    found = _version(name)
    if found is None or _numbers(found) < _numbers(lowest):
        return f"expected {name} {lowest} or later, got {found or 'none'}"
    return ""


def _version(name: str) -> str | None:
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
    now, made = datetime.now(UTC), datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
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
    job, losses = validated(Job, raw, ""), []
    with tempfile.TemporaryDirectory() as scratch:
        for run in ("first", "second"):
            keys = Keys(Path(scratch), bytes(32))
            folder = execute(job, Path(scratch) / run, Options(keys, tables=tables), Progress())
            losses.append(folder.history()[0]["loss"])
    if losses[0] != losses[1]:
        remedy = "another process of these libraries may change its random state; please report it"
        raise ConfigError.expected("the same loss twice, to the last bit", f"{losses[0]!r} and {losses[1]!r}", remedy)
    return f"two steps with two parties, twice: the same loss, {losses[0]!r}"


def _own_part(job: Path, name: str, local: Path) -> Iterator[PreflightCheck]:
    """Files, certificate and address of one party; no row is read, and no other party is needed."""
    from cutlayer.config.load import load_job, load_private_part, with_private_part
    from cutlayer.jobs.links import address_of, security_of
    from cutlayer.jobs.preflight import certificate_of

    private = load_private_part(local)
    whole = with_private_part(load_job(job), name, private)
    early: list[str] = []
    yield PreflightCheck("job", f"digest {whole.digest()}, to be equal at all parties")
    yield checked("table", lambda: _readable(whole, name))
    certificate = checked(
        "certificate", lambda: certificate_of(security_of(whole, name, private, local.parent, early.append))
    )
    yield replace(certificate, caution=bool(early), result="; ".join([certificate.result, *early]))
    yield checked("address", lambda: _reached(whole, name, private, address_of(whole)))


def _readable(job: Job, name: str) -> str:
    """The party's table can be read.

    Raises:
        ConfigError: It cannot, or the job names none.
    """
    table = job.parties[name].table
    if table is None or not os.access(table.path, os.R_OK):
        got = "none" if table is None else f"{table.path}, which cannot be read"
        raise ConfigError.expected(f"parties.{name}.table that this user can read", got)
    return f"{table.path} can be read"


def _reached(job: Job, name: str, private: PrivateFile, address: str) -> str:
    """The active party can listen at its address; a passive one finds somebody there.

    Raises:
        ConfigError: The address cannot be listened at, or nobody answers.
    """
    from cutlayer.channel.address import split_address

    if name != job.active:
        try:
            socket.create_connection(split_address(address), SECONDS).close()
        except OSError as failure:
            got = f"{failure.strerror or failure}"
            remedy = f"has {job.active} begun, and do firewalls let this machine through?"
            raise ConfigError.expected(f"somebody who listens at {address}", got, remedy) from None
        return f"somebody listens at {address}"
    where = private.listen or address
    host, port = split_address(where)
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as failure:
        remedy = "another program may listen there; `listen` of the private file names another address"
        raise ConfigError.expected(f"{where} free to listen at", failure.strerror or failure, remedy) from None
    return f"{where} is free to listen at"
