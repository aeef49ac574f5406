"""The honest files that the hostile ones are made from: a job, its runs, an exported model, files of two parties."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from cutlayer.cli.exchange import EXIT_WAITING
from tools.organisations.sites import issue_certificates
from tools.ports import free_port

ROWS = 240
SKLEARN = "sklearn.linear_model"
"""The module that a reader of the run `fit` has consented to."""
_NET = """name: net
parties:
  bank:
    role: active
    table: bank.csv
    id: id
    label: y
    audit: {attacks: [spectral], every: end, layers: false}
  telco: {role: passive, table: telco.csv, id: id, audit: {attacks: [inversion], every: end}}
model: {bottom: {kind: mlp, hidden: [4]}, top: {kind: mlp, hidden: [4]}}
train: {epochs: 1, batch_size: 64, seed: 1, threads: 1}
compare: []
"""
_FIT = """name: fit
federation: hostile
parties:
  bank: {{role: active{bank}}}
  telco: {{role: passive{telco}}}
model:
  bottom: {{bank: {{kind: columns}}, telco: {{kind: linear, width: 4}}}}
  top: {{kind: sklearn, path: "sklearn.linear_model:LogisticRegression"}}
train: {{release: once, seed: 1, threads: 1}}
compare: []
"""
_GRADED = """name: graded
parties:
  bank:
    role: active
    table: bank.csv
    id: id
    label: y
    privacy: {label_dp: {eps: 4.0}}
    audit: {attacks: [sent_labels], every: end}
  telco:
    role: passive
    table: telco.csv
    id: id
    fit: {kind: grade, candidates: [linear], folds: 2, limits: {other: 1.0}}
    privacy: {grade_dp: {epsilon: 8.0}}
    audit: {attacks: [best_guess], every: end}
model:
  bottom: {bank: {kind: auto}, telco: {kind: grade, least_rows: 0}}
  top: {kind: linear}
train: {release: once, seed: 1, threads: 1}
compare: []
"""
_BANK = {"table": "bank.csv", "id": "id", "label": "y", "privacy": "{label_free: }", "audit": "{attacks: [spectral]}"}
_TELCO = {"table": "telco.csv", "id": "id", "fit": "{kind: sketch}", "audit": "{attacks: [inversion]}"}


def make(base: Path) -> None:
    """Write the honest files into the folders `job`, `net`, `fit`, `graded`, `part`, `bank` and `telco` of `base`.

    Raises:
        SystemExit: A verb failed.
    """
    home = write_job(base)
    stated = {name: _section(keys, ", {key}: {value}") for name, keys in (("bank", _BANK), ("telco", _TELCO))}
    (home / "fit.yaml").write_text(_FIT.format(**stated))
    _cutlayer(home, "run", "job.yaml", "--out", "../net")
    (home / "graded.yaml").write_text(_GRADED)
    _cutlayer(home, "run", "graded.yaml", "--out", "../graded")
    _cutlayer(home, "run", "fit.yaml", "--out", "../fit", "--allow-model", SKLEARN)
    _cutlayer(base, "export", "net", "--as", "bank", "--out", "part")
    _cutlayer(base, "predict", "net", "--out", "net.csv")
    _make_apart(base)


def write_job(base: Path) -> Path:
    """Write the job and its tables into the folder `job` of `base`, and return it."""
    home = base / "job"
    home.mkdir(parents=True)
    _write_tables(home)
    (home / "job.yaml").write_text(_NET)
    return home


def _make_apart(base: Path) -> None:
    """Two organisations who exchange files: the files of an alignment and of a release, and the run of the owner."""
    issue_certificates(base, "hostile", "bank", ["telco"])
    address = f', address: "127.0.0.1:{free_port()}"'
    for name, keys in (("bank", _BANK), ("telco", _TELCO)):
        _write_tables(base / name)
        (base / name / "job.yaml").write_text(_FIT.format(bank=address, telco=""))
        (base / name / f"{name}.yaml").write_text(_section(keys, "{key}: {value}\n"))
    release = ("--allow-model", SKLEARN, "--out", "telco.release")
    _cutlayer(base / "telco", "release", "job.yaml", "--as", "telco", "--local", "telco.yaml", *release)
    (base / "telco" / "telco.release").rename(base / "bank" / "telco.release")
    for name in ("bank", "telco", "bank", "telco"):
        exchange = ("--exchange", "../exchange", "--wait", "0")
        _cutlayer(base / name, "align", "job.yaml", "--as", name, "--local", f"{name}.yaml", *exchange, may_wait=True)


def _section(keys: dict[str, str], form: str) -> str:
    return "".join(form.format(key=key, value=value) for key, value in keys.items())


def _write_tables(folder: Path) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(ROWS, 4)).round(3)
    y = (x.sum(1) + draw.normal(size=ROWS) > 0).astype(int)
    colour = np.array(["red", "green", "blue"])[draw.integers(0, 3, ROWS)]
    ids = np.arange(ROWS)
    pa.csv.write_csv(pa.table({"id": ids, "a": x[:, 0], "colour": colour, "y": y}), folder / "bank.csv")
    pa.csv.write_csv(pa.table({"id": ids, "b": x[:, 1], "c": x[:, 2]}), folder / "telco.csv")
    (folder / "telco.sql").write_text("select id, b, c from telco")
    write_database(folder / "telco.db", x)


def write_database(path: Path, x: npt.NDArray[np.float64]) -> None:
    """A table `telco` in an SQLite file."""
    with sqlite3.connect(path) as database:
        database.execute("create table telco (id integer, b real, c real)")
        rows = [(number, *row) for number, row in enumerate(x[:, 1:3].tolist())]
        database.executemany("insert into telco values (?, ?, ?)", rows)
    database.close()


def _cutlayer(folder: Path, *arguments: str, may_wait: bool = False) -> None:
    """Call the command line.

    Raises:
        SystemExit: It failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "cutlayer", *arguments, "--json"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode not in ((0, EXIT_WAITING) if may_wait else (0, 1)):
        raise SystemExit(f"{' '.join(arguments)} failed in {folder}:\n{done.stdout}\n{done.stderr}")
