"""Parties in operating-system processes of their own, each in a folder that holds nothing of the others."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from ruamel.yaml import YAML

from cutlayer import cli
from cutlayer.models import modules_of
from tests.alignment.quick_masks import mask_quickly, masks_are_quick
from tests.cli.jobs import audit_briefly, share_engine
from tests.models.estimator_rows import (
    few_repetitions,
    fit_briefly,
    fits_are_brief,
    one_strength,
    repetitions_are_few,
    strength_is_one,
)
from tests.parties.runs import ACTIVE, KEY
from tools.ports import free_port

PATIENCE = 120.0
forkserver = multiprocessing.get_context("forkserver")
# Verbs import what they compute with when they run: what each forked process would else import again, for two seconds.
IMPORTED = (
    "benchmarks.serving_load",
    "cutlayer.cli.progress",
    "cutlayer_serve.verb",
    "cutlayer.jobs.align",
    "cutlayer.jobs.execute",
    "cutlayer.jobs.party",
    "cutlayer.jobs.preflight",
    "cutlayer.cli.logged",
    "cutlayer.models.embedding_table",
    "cutlayer_loggers.logged_run",
    "cutlayer.report.build",
    "cutlayer.report.html",
    "cutlayer.report.junit",
    "cutlayer.report.markdown",
    "cutlayer.report.card.build",
    "cutlayer.report.card.passive",
    "cutlayer.report.passive.build",
    "cutlayer.report.passive.page",
    "cutlayer.report.terminal",
    "cutlayer.serving.between",
    "cutlayer.serving.by_file",
    "cutlayer_serve.http",
    "cutlayer_serve.process",
    "cutlayer.serving.predict",
    "cryptography.hazmat.backends.openssl",
    "dp_accounting.pld.privacy_loss_distribution",
    "duckdb",
    "encodings.idna",
    "encodings.unicode_escape",
    "encodings.utf_8_sig",
    "grpc._channel",
    "grpc._server",
    "grpc._utilities",
    "importlib.readers",
    "jinja2",
    "optuna",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.pandas_compat",
    "pyarrow.vendored.version",
    "pydantic.v1",
    "rbcl",
    "scipy.stats",
    "sklearn.decomposition",
    "sklearn.ensemble",
    "sklearn.kernel_approximation",
    "sklearn.linear_model",
    "sklearn.metrics",
    "sklearn.model_selection",
    "sklearn.neighbors",
    "sklearn.pipeline",
    "sklearn.preprocessing",
    "tests.alignment.quick_masks",
    "tests.cli.jobs",
    "tests.models.estimator_rows",
    "tests.parties.runs",
    "torch.profiler._cupti_monitor",
    "torch.utils._device",
    "typer._adapters",
    "typer._click.decorators",
    "uvicorn",
    "uvloop",
)
# The last hides what was imported before it from the garbage collector.
forkserver.set_forkserver_preload([*IMPORTED, "tests.parties.frozen"])
# One process of a test run forks all others, also those of the benchmarks and tools, which name fewer modules: without
# this, the last list that was set before it started would be taken, and that is a benchmark's.
multiprocessing.forkserver.set_forkserver_preload = lambda *_, **__: None


@dataclass(frozen=True)
class Site:
    """One organisation's folder: its table, its private file, its copy of the shared job and the key of the test."""

    name: str
    folder: Path

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def arguments(self, *more: str, tls: bool = False) -> list[str]:
        plain = () if tls else ("--plaintext",)
        named = {"--as": self.name, "--local": "party.yaml", "--out": "run", "--key": "noise.key", "--timeout": "60"}
        return ["party", "job.yaml", *(word for pair in named.items() for word in pair), "--json", *plain, *more]


def lay_out(base: Path, raw: Mapping[str, Any], given: Mapping[str, pa.Table]) -> dict[str, Site]:
    """Write every party's folder; no file in it comes from another party.

    The shared job still names every table beside itself, so whoever tried to open another party's would fail.
    """
    shared = {name: {"role": party["role"], "table": f"{name}.csv"} for name, party in raw["parties"].items()}
    for name, party in raw["parties"].items():
        shared[name] |= {"on_absent": party["on_absent"]} if "on_absent" in party else {}
    shared[ACTIVE] |= {"address": f"127.0.0.1:{free_port()}"}
    sites = {}
    for index, (name, party) in enumerate(raw["parties"].items()):
        site = Site(name, base / name)
        site.folder.mkdir(parents=True)
        table = site.folder / f"own.{('csv', 'parquet')[index % 2]}"
        write = pa.csv.write_csv if table.suffix == ".csv" else pa.parquet.write_table
        write(given[name], table)
        _dump(site.folder / "job.yaml", {**raw, "parties": shared})
        private = {key: value for key, value in party.items() if key not in ("role", "address", "on_absent")}
        _dump(site.folder / "party.yaml", {**private, "table": table.name, "allow_models": [*modules_of(raw["model"])]})
        key = site.folder / "noise.key"
        key.write_bytes(KEY)
        key.chmod(0o600)
        sites[name] = site
    return sites


class Forked:
    """A process forked from one that has imported everything: ready in a second instead of four."""

    def __init__(self, work: Callable[..., None], *args: Any, errors: Path | None = None) -> None:
        self._errors = errors
        how = (fits_are_brief(), repetitions_are_few(), masks_are_quick(), strength_is_one())
        given = (how, work, *args)
        self._process = forkserver.Process(target=_as_briefly, args=given, daemon=True)
        self._process.start()

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.is_alive()

    def signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """As `kill -9`."""
        self._process.kill()

    def wait(self, patience: float = PATIENCE) -> int:
        """Wait for the end; the exit code, or minus the signal. Prints what it said, for the report of a failure."""
        self._process.join(patience)
        if self._errors is not None and self._errors.exists():
            print(f"{self._errors}:\n{self._errors.read_text()}")
        assert self._process.exitcode is not None, "the process did not end"
        return int(self._process.exitcode)


def _as_briefly(how: tuple[bool, bool, bool, bool], work: Callable[..., None], *args: Any) -> None:
    """Models are fitted, and ids masked, as in the process that asks, whose results are compared with this one's."""
    brief, few, quick, one = how
    if quick:
        mask_quickly(pytest.MonkeyPatch())
    if brief:
        fit_briefly(pytest.MonkeyPatch())
        audit_briefly(pytest.MonkeyPatch())
        share_engine(pytest.MonkeyPatch())
    if few:
        few_repetitions(pytest.MonkeyPatch())
    if one:
        one_strength(pytest.MonkeyPatch())
    work(*args)


def forked(work: Callable[..., None], *args: Any) -> Forked:
    """Run a function of a test module in a process of its own."""
    return Forked(work, *args)


def fork(site: Site, *more: str, tls: bool = False) -> Forked:
    """`cutlayer party` in a forked process."""
    return Forked(run_in, site.folder, site.arguments(*more, tls=tls), errors=site.folder / "errors.txt")


def wait_for(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Poll until a condition holds."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {patience:g} s")
        time.sleep(0.005)


def run_in(folder: Path, arguments: list[str], suffix: str = "") -> None:
    """The command line in a folder, which gets the files `output.json` and `errors.txt`."""
    os.chdir(folder)
    for descriptor, name in ((1, f"output{suffix}.json"), (2, f"errors{suffix}.txt")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    sys.argv = ["cutlayer", *arguments]
    cli.main()


def _dump(path: Path, value: Mapping[str, Any]) -> None:
    yaml = YAML(typ="safe", pure=True)
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    with path.open("w") as file:
        yaml.dump(value, file)
