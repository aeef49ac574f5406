"""A small job on disk, and the command line called on it in this process."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from cutlayer.attacks.feature import decoder, kernel_ridge
from cutlayer.attacks.label import drawn_labels, feature_prior, probe, strong_probe
from cutlayer.attacks.label.co_training import Trees, predict_by_trees
from cutlayer.audit import known_labels, own_columns
from cutlayer.audit.features import measures
from cutlayer.cli.app import _run
from cutlayer.config import load
from cutlayer.kernels.fits import whole_numbers

ROWS = 200
BRIEF = {"attacks": ["norm"]}
"""The audit of a run that is not audited for the audit's sake."""
BOTH = {"attacks": ["norm", "spectral"]}
"""One that attacks every kind of message and every layer, for what is printed, kept and resumed of an audit."""
JOB: Mapping[str, Any] = {
    "parties": {
        "bank": {"role": "active", "table": "bank.csv", "id": "id", "label": "default", "audit": BRIEF},
        "telco": {"role": "passive", "table": "telco.csv", "id": "id"},
    },
    "model": {"bottom": {"kind": "mlp", "hidden": [8, 4]}, "top": {"kind": "mlp", "hidden": [4], "activation": "silu"}},
    "train": {"epochs": 2, "batch_size": 64, "seed": 1},
}


@dataclass(frozen=True)
class Result:
    """What one call of the command line left."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The message, on one line however a terminal would wrap it; without what was said of connections before."""
        error = re.sub(r"\A(\d\d:\d\d:\d\d .*\n)+", "", self.err)
        assert error.startswith("error "), self.err
        return error.removeprefix("error ")

    def document(self) -> Any:
        """The one JSON document on standard output; anything else on it fails, and so do NaN and infinity."""
        return json.loads(self.out, parse_constant=_no_number)


class Place:
    """A folder with a job and its tables."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.file, self.capsys = folder, folder / "job.yaml", capsys
        write_tables(folder)
        self.write(JOB)

    @property
    def run_folder(self) -> Path:
        """Where a run goes if nothing else is said."""
        return self.folder / "runs" / "job"

    def write(self, job: Any) -> None:
        """Replace the job file, by text or by values."""
        self.file.write_text(job if isinstance(job, str) else as_yaml(job), encoding="utf-8")

    def change(self, changes: Mapping[str, Any]) -> None:
        """Set dotted keys of the job."""
        self.write(changed(JOB, changes))

    def rows(self, party: str, edit: Callable[[int, list[str]], list[str]]) -> None:
        """Rewrite each row of a party's table, given its number and cells."""
        path = self.folder / f"{party}.csv"
        head, *rows = path.read_text().splitlines()
        edited = [",".join(edit(number, row.split(","))) for number, row in enumerate(rows)]
        path.write_text("\n".join([head, *edited]) + "\n")

    def call(self, *arguments: object) -> Result:
        """Call the command line in this process."""
        self.capsys.readouterr()
        code = _run([str(argument) for argument in arguments])
        out, err = self.capsys.readouterr()
        return Result(code, out, err)

    def left(self) -> set[str]:
        """What lies in the folder beside the job, its tables and the parties' long-lived keys."""
        mine = {"job.yaml", "bank.csv", "telco.csv", ".cutlayer"}
        return {path.name for path in self.folder.iterdir()} - mine

    def refused(self, *phrases: str, verbs: tuple[str, ...] = ("run", "check"), options: tuple[str, ...] = ()) -> str:
        """The first verb refuses the job in words, and the last by JSON: exit code 2, one message with all phrases,
        nothing left behind.
        """
        before = self.left()
        result = self.call(verbs[0], self.file, *options)
        assert (result.code, result.out) == (2, ""), result
        assert "Traceback" not in result.err
        as_json = self.call(verbs[-1], self.file, "--json", *options)
        said = as_json.document()
        assert (said.keys(), said["exit_code"], as_json.err) == ({"error", "exit_code"}, 2, "")
        assert len(verbs) > 1 or said["error"] == result.error.removesuffix("\n")
        for phrase in phrases:
            assert phrase in result.error, (verbs[0], phrase, result.err)
            assert phrase in said["error"], (verbs[-1], phrase, said)
        assert self.left() == before
        return result.error


class QuietPlace(Place):
    """A place of a fixture that several tests share: what is printed is caught without one of pytest's."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "job.yaml"

    def call(self, *arguments: object) -> Result:
        """Call the command line in this process."""
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            code = _run([str(argument) for argument in arguments])
        return Result(code, out.getvalue(), err.getvalue())


def audit_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack with fewer numbers of known labels, drawn twice in place of three times, with fewer trees and folds, with
    smaller networks that are trained for fewer epochs, and kernels of one width; fewer logarithms are undone, and
    intervals are of fewer resamples.

    All results are there, sooner: most of the time of an audit of 200 rows goes into these repetitions, which
    `tests/audit` tests.
    """
    monkeypatch.setattr(known_labels, "LABEL_COUNTS", (1, 5, 20))  # of few rows every second one
    monkeypatch.setattr(known_labels, "DRAWS", 2)
    monkeypatch.setattr(strong_probe, "TREES", 10)
    monkeypatch.setattr(predict_by_trees, "__defaults__", (Trees(folds=2, trees=10),))
    monkeypatch.setattr(drawn_labels, "TREES", replace(drawn_labels.TREES, folds=2, trees=10))
    monkeypatch.setattr(probe, "FOLDS", 2)
    monkeypatch.setattr(own_columns, "TREES", 10)
    monkeypatch.setattr(feature_prior, "FOLDS", 2)
    monkeypatch.setattr(decoder, "EPOCHS", 8)
    monkeypatch.setattr(decoder, "HIDDEN", 32)
    monkeypatch.setattr(kernel_ridge, "SCALES", (1.0,))
    monkeypatch.setattr(measures, "REPEATS", 200)
    monkeypatch.setattr(whole_numbers, "_RATES", whole_numbers._RATES[::20])


def write_jobs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that a run has written is text from then on, and one that was read is values: to serialise it takes a tenth
    of the time of a small run, and so does the parser.
    """
    write = load.as_yaml
    monkeypatch.setattr(load, "_parsed", _parsed)

    def once(values: object, yaml: YAML | None = None, *, flow: bool | None = False) -> str:
        if yaml is not None or flow is not False:
            return write(values, yaml, flow=flow)
        return _written(repr(values), _Held(values), _Held(write))

    monkeypatch.setattr(load, "as_yaml", once)


def share_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """CSV files and dates are read by one database of the engine, which takes long to start, and a call starts several.

    It may read any file; that one of a job reads its own file alone is tested with the sources of `data`.
    """
    for module in ("sources.csv", "column_formats"):
        monkeypatch.setattr(f"cutlayer.data.{module}.connect", lambda *_: _database(os.getpid()).cursor())


@cache
def _database(_process: int) -> Any:
    """The database of a process; without threads of its own, which a fork would lack."""
    import duckdb

    settings: dict[str, Any] = {"threads": 1, "enable_external_file_cache": False, "autoload_known_extensions": False}
    database = duckdb.connect(":memory:", config=settings)
    database.execute("SET enable_progress_bar = false")
    return database


def changed(job: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a job with dotted keys set."""
    whole: dict[str, Any] = copy.deepcopy(dict(job))
    for path, value in changes.items():
        *way, last = path.split(".")
        inner = whole
        for key in way:
            inner = inner.setdefault(key, {})
        inner[last] = copy.deepcopy(value)
    return whole


def as_yaml(job: Any) -> str:
    """YAML text of plain values."""
    return _dumped(repr(job), _Held(job))


@dataclass(frozen=True)
class _Held:
    """A value that all others equal, so that only what it stands beside is the key of a cache."""

    value: Any = field(compare=False)


@cache
def _written(_key: str, held: _Held, write: _Held) -> str:
    text: str = write.value(held.value)
    return text


_parsed = cache(load._parsed.__wrapped__)
"""Of any number of texts; whoever asks gets a copy of the values."""


@cache
def _dumped(_key: str, held: _Held) -> str:
    stream = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(held.value, stream)
    return stream.getvalue()


def write_tables(folder: Path) -> None:
    """Two tables of the same people in different orders, with a label that both help to predict."""
    for name, text in _tables():
        (folder / name).write_text(text)


@cache
def _tables() -> tuple[tuple[str, str], ...]:
    """Names and texts of both files."""
    draw = np.random.default_rng(5)
    balance, usage = draw.normal(size=(2, ROWS))
    plan = draw.integers(0, 4, ROWS)
    default = (balance + usage + 0.5 * plan + 0.5 * draw.normal(size=ROWS) > 0.9).astype(int)
    bank = (f"{row},{balance[row]:.4f},{default[row]}" for row in range(ROWS))
    telco = (f"{row},{usage[row]:.4f},{'abcd'[plan[row]]}" for row in reversed(range(ROWS)))
    heads = {"bank.csv": ("id,balance,default", bank), "telco.csv": ("id,usage,plan", telco)}
    return tuple((name, "\n".join([head, *rows]) + "\n") for name, (head, rows) in heads.items())


def _no_number(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")
