"""Each system on one data set: what it predicts, costs, and sends. The rivals run in environments of their own."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet
from ruamel.yaml import YAML
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from benchmarks.graded_rows import Rows
from benchmarks.rivals.environments import INSIDE, python_of
from benchmarks.rivals.relay import Relay
from benchmarks.utility.datasets import DataSet
from benchmarks.utility.sides import ID, LABEL, TEST, table_in, write_tables
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.audit.features import unknown_cases
from cutlayer.cli.init import init
from cutlayer.config import validated
from cutlayer.config.job import Job
from cutlayer.data.ids import row_digests
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.results.run import RunId, RunKind
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import predictions_path
from cutlayer.training.keys import Keys
from tools.ports import free_port

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
SECONDS = 1_800
"""Most time of one rival on one data set."""
PARTNER_STREAM_HEADER = 9
"""Bytes before the gradients in a reply of XGBoost's server: five of gRPC, four of the message's field."""


@dataclass(frozen=True)
class Outcome:
    """One system on one data set.

    Attributes:
        test_scores: Score of each test row, in the order of the row numbers.
        wall: Wall time of training and scoring, in seconds.
        cpu: Processor time of all parties, in seconds.
        bytes: Bytes between the parties.
        rows: Row numbers of the training rows that `seen` and `received` are about.
        seen: What the label owner saw of each of them, (n, ...); `None` where it is shares or nothing.
        received: What the partner received of each of them that comes from labels; greater for positives. (n,)
        output: The score of each of these rows that the label owner has at the end, where a score is all it gets.
        notes: Further figures.
    """

    test_scores: Floats
    wall: float
    cpu: float
    bytes: int
    rows: Codes
    seen: Floats | None = None
    received: Floats | None = None
    output: Floats | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


class Bench:
    """A data set and its split, as files for the rivals.

    Args:
        data: Columns by party, and labels.
        seed: Seed of the split and of the models.
        environments: Folder of the rivals' environments.
    """

    def __init__(self, data: DataSet, seed: int, environments: Path) -> None:
        self.data, self.seed, self._environments = data, seed, environments
        self.rows = Rows.of(data, seed)
        self.test = np.setdiff1d(np.arange(len(self.rows.labels)), self.rows.training)

    @contextmanager
    def files(self) -> Iterator[Path]:
        """A folder with the encoded columns of each party, and the labels of training rows beside the owner's."""
        with tempfile.TemporaryDirectory(prefix="cutlayer-rivals-") as scratch:
            train, folder = self.rows.training, Path(scratch)
            own, other = (side.matrix.astype(np.float32) for side in (self.rows.bank, self.rows.partner))
            np.savez(folder / "0.npz", columns=own, train=train, labels=self.rows.labels[train])
            np.savez(folder / "1.npz", columns=other, train=train)
            yield folder

    def vertimosaic(self, model: str) -> Outcome:
        """VertiMosaic in one process, in its in-memory transport, whose audit counts the bytes."""
        with self.files() as folder:
            settings = json.dumps({"model": model, "seed": self.seed})
            arguments = [INSIDE / "vertimosaic_run.py", folder / "0.npz", folder / "1.npz", settings, folder / "o.npz"]
            _run([[python_of("vertimosaic", self._environments), *arguments]])
            out = np.load(folder / "o.npz")
            received = -out["received"].mean(axis=1)
            return Outcome(
                out["scores"][self.test], float(out["wall"]), float(out["cpu"]), int(out["bytes"]), out["rows"],
                seen=out["seen"], received=received, notes={"rounds": int(out["received"].shape[1])},
            )  # fmt: skip

    def fedtree(self, settings: Mapping[str, Any]) -> Outcome:
        """FedTree in its simulation, in one process; no message is seen, so that bytes are not counted."""
        with self.files() as folder:
            given = json.dumps({**settings, "seed": self.seed})
            arguments = [INSIDE / "fedtree_run.py", folder / "0.npz", folder / "1.npz", given, folder / "o.npz"]
            _run([[python_of("fedtree", self._environments), *arguments]])
            out = np.load(folder / "o.npz")
            own = self.rows.bank.matrix[self.rows.training]
            seen = not_split_by(own, np.hstack([turns(column) for column in out["leaves"].T]))
            return Outcome(
                out["scores"][self.test], float(out["wall"]), float(out["cpu"]), 0, self.rows.training,
                seen=seen, notes={"trees": out["leaves"].shape[1], "partner splits": seen.shape[1]},
            )  # fmt: skip

    def spu(self, settings: Mapping[str, Any]) -> Outcome:
        """SPU in two processes over brpc on the loopback."""
        with self.files() as folder:
            ports = [free_port(), free_port()]
            relays = [Relay(port) for port in ports]
            commands = []
            for rank in (0, 1):
                reached = [ports[at] if at == rank else relays[at].port for at in (0, 1)]
                given = {**settings, "seed": self.seed, "addresses": [f"127.0.0.1:{port}" for port in reached]}
                files = folder / f"{rank}.npz", json.dumps(given), folder / f"out{rank}.npz"
                python = python_of("spu", self._environments)
                commands.append([python, INSIDE / "spu_party.py", rank, *files])
            _run(commands)
            outs = [np.load(folder / f"out{rank}.npz") for rank in (0, 1)]
            scores, crossed = outs[0]["scores"], sum(relay.bytes for relay in relays)
            cpu = sum(float(out["cpu"]) for out in outs)
            train = self.rows.training
            return Outcome(
                scores[self.test], float(outs[0]["wall"]), cpu, crossed, train, output=scores[train][:, None]
            )

    def xgboost(self) -> Outcome:
        """XGBoost's federated plugin: a server and two parties."""
        with self.files() as folder:
            python, script, port = python_of("xgboost", self._environments), INSIDE / "xgboost_party.py", free_port()
            server = subprocess.Popen([*map(str, (python, script, "serve", port))], env=_environment())
            try:
                time.sleep(5)
                relays = [Relay(port), Relay(port, keep=True)]
                _run(
                    [
                        [python, script, rank, folder / f"{rank}.npz", relays[rank].port, folder / f"out{rank}.npz"]
                        for rank in (0, 1)
                    ]
                )
            finally:
                server.terminate()
                server.wait()
            outs = [np.load(folder / f"out{rank}.npz") for rank in (0, 1)]
            fit, trees = outs[0]["rows"], json.loads(str(outs[0]["trees"]))
            bits, thresholds = _decisions(trees, self.rows, fit)
            first = first_gradients(max(relays[1].kept, key=len), len(fit))
            return Outcome(
                outs[0]["scores"][self.test], float(outs[0]["wall"]), sum(float(out["cpu"]) for out in outs),
                sum(relay.bytes for relay in relays), fit, seen=bits, received=-first,
                notes={"trees": len(trees), "partner splits opened": bits.shape[1], "thresholds": thresholds},
            )  # fmt: skip

    def cutlayer(self, protect: str) -> Outcome:
        """The job that `init --protect` writes, in one process; its messages are counted as they are encoded."""
        with tempfile.TemporaryDirectory(prefix="cutlayer-rivals-") as scratch:
            folder = Path(scratch)
            write_tables(self.data, folder)
            with redirect_stdout(io.StringIO()):
                init(folder, label=LABEL, protect=protect, yes=True)
            job, audited = self._job(folder, audited=False), self._job(folder, audited=True)
            began, used = time.perf_counter(), _processor()
            run = execute(job, folder / "run", Options(Keys(folder / "keys")), Progress())
            wall, cpu = time.perf_counter() - began, _processor() - used
            notes: dict[str, Any] = {}
            if protect != "labels":  # of which nothing crosses
                notes = _label_leaks(execute(audited, folder / "audited", Options(Keys(folder / "other")), Progress()))
            predicted = parquet.read_table(predictions_path(run))
            order = np.argsort(predicted.column(ID).to_numpy())
            scores = predicted.columns[1].to_numpy()[order].astype(float)
            crossed = sum(p.bytes_sent for p in run.summary.parties)
            at, seen = _released(job, run, len(self.rows.labels))
            chosen = np.isin(at, self.rows.training)
            return Outcome(scores, wall, cpu, crossed, at[chosen], seen=seen[chosen], notes=notes)

    def scikit(self, columns: str, model: str) -> Outcome:
        """scikit-learn on the label owner's encoded columns, or on all in one place."""
        own, other = self.rows.bank.matrix, self.rows.partner.matrix
        x = own if columns == "own" else np.hstack([own, other])
        fitted: Any = (
            LogisticRegression(max_iter=1000)
            if model == "linear"
            else HistGradientBoostingClassifier(random_state=self.seed)
        )
        began, used, train = time.perf_counter(), _processor(), self.rows.training
        fitted.fit(x[train], self.rows.labels[train])
        scores = fitted.predict_proba(x[self.test])[:, 1]
        return Outcome(scores, time.perf_counter() - began, _processor() - used, 0, train)

    def _job(self, folder: Path, audited: bool) -> Job:
        raw: dict[str, Any] = YAML(typ="safe").load(folder / "job.yaml")
        for party in raw["parties"].values():
            party["table"] = table_in(folder, party["table"])
            party["audit"] = {"attacks": []}
        del raw["compare"]
        if audited and raw["parties"]["bank"].get("privacy", {}).get("label_dp"):
            raw["parties"]["bank"]["audit"] = {"attacks": ["sent_labels"]}
        elif audited and "privacy" not in raw["parties"]["bank"]:
            raw["parties"]["bank"]["audit"] = {"attacks": ["norm", "direction", "spectral"]}
        raw["train"] |= {"seed": self.seed, "threads": 1}
        raw["train"]["split"] = {**raw["train"].get("split", {}), "test": TEST}
        return validated(Job, raw, "job")


def _label_leaks(run: RunFolder) -> dict[str, Any]:
    attacked = run.audit.runs.get(RunId(RunKind.THIS_RUN).label)
    if attacked is None:
        return {}
    leaks = {f"{leak.attack}": leak.leak for leak in attacked.leaks if leak.leak is not None}
    baseline = attacked.baseline("partner")
    worst = max(leaks, key=lambda name: leaks[name], default=None)
    return {
        "label leak": None if worst is None else leaks[worst],
        "by": worst,
        "own columns": None if baseline is None else baseline.own_columns,
    }


def _released(job: Job, run: RunFolder, rows: int) -> tuple[Codes, Floats]:
    """What the partner released last: the ids of the rows, which are their numbers, and the embeddings (n, width)."""
    *_, case = unknown_cases(job, run, run, "partner")
    view = case.view
    assert isinstance(view, FeatureView)
    order = np.lexsort(row_digests(pa.array(np.arange(rows))).T[::-1])
    return order[view.rows.numpy()].astype(np.int64), view.embeddings.numpy().astype(float)


def turns(leaves: Codes) -> Floats:
    """Whether each row goes left (1) or right (-1) at each node of a tree, or is not there (0), (n, nodes).

    Args:
        leaves: The leaf of each row, numbered from the root 0, whose children are 1 and 2. (n,)
    """
    turns: dict[int, Floats] = {}
    here = leaves.copy()
    while here.any():
        above = (here - 1) // 2
        for node in np.unique(above[here > 0]):
            column = turns.setdefault(int(node), np.zeros(len(leaves)))
            through = (above == node) & (here > 0)
            column[through] = np.where(here[through] % 2 == 1, 1.0, -1.0)
        here = np.where(here > 0, above, 0)
    return np.stack([turns[node] for node in sorted(turns)], axis=1)


def not_split_by(own: Floats, turns: Floats) -> Floats:
    """The nodes at which no single column of the label owner's sends the rows as they went, (n, nodes).

    Args:
        own: The label owner's columns, (n, a).
        turns: Whether each row goes left (1) or right (-1) at each node, or is not there (0), (n, nodes).
    """

    def apart(node: Floats) -> bool:
        left, right = own[node > 0], own[node < 0]
        return bool(((left.max(axis=0) < right.min(axis=0)) | (right.max(axis=0) < left.min(axis=0))).any())

    both = (turns > 0).any(axis=0) & (turns < 0).any(axis=0)
    return turns[:, [at for at in np.flatnonzero(both) if not apart(turns[:, at])]]


def _decisions(trees: Sequence[Any], rows: Rows, fit: Codes) -> tuple[Floats, int]:
    """The bits that the partner sends: whether each row that is at a node goes left, for each of its nodes, (n, nodes).

    The trees are those that every party holds at the end. Also the number of different thresholds of the partner's.
    """
    own = rows.bank.matrix.shape[1]
    columns = np.hstack([rows.bank.matrix, rows.partner.matrix]).astype(np.float32)[fit]
    found, thresholds = [], set()

    def walk(node: Any, here: npt.NDArray[np.bool_]) -> None:
        if "leaf" in node:
            return
        number = int(node["split"].removeprefix("f"))
        left = columns[:, number] < np.float32(node["split_condition"])
        if number >= own:
            found.append(np.where(here, np.where(left, 1.0, -1.0), 0.0))
            thresholds.add((number, node["split_condition"]))
        for child in node["children"]:
            walk(child, here & (left if child["nodeid"] == node["yes"] else ~left))

    for tree in trees:
        walk(tree, np.ones(len(fit), dtype=bool))
    return np.stack(found, axis=1), len(thresholds)


def first_gradients(received: bytes | bytearray, rows: int) -> Floats:
    """The gradient of each row in the first round, out of the bytes that the partner's connection received."""
    streams: dict[int, bytearray] = {}
    at = 0
    while at + 9 <= len(received):  # frames of HTTP/2: length, type, flags, stream
        size, stream = int.from_bytes(received[at : at + 3]), int.from_bytes(received[at + 5 : at + 9]) & 0x7FFFFFFF
        if received[at + 3] == 0:
            streams.setdefault(stream, bytearray()).extend(received[at + 9 : at + 9 + size])
        at += 9 + size
    size = 8 * rows + PARTNER_STREAM_HEADER
    for stream in sorted(streams):
        if len(streams[stream]) == size:
            pairs = np.frombuffer(bytes(streams[stream][PARTNER_STREAM_HEADER:]), np.float32).reshape(rows, 2)
            return pairs[:, 0].astype(float)
    raise ValueError(f"expected a message of {size} bytes in what the partner received, found none")


def _run(commands: Sequence[Sequence[Any]]) -> None:
    """Run processes together to their end; an error if one fails."""
    logs = [tempfile.TemporaryFile() for _ in commands]  # noqa: SIM115 - they go with the last reference
    started = [
        subprocess.Popen([*map(str, command)], env=_environment(), stdout=log, stderr=subprocess.STDOUT)
        for command, log in zip(commands, logs, strict=True)
    ]
    try:
        codes = [process.wait(timeout=SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
    for code, log in zip(codes, logs, strict=True):
        log.seek(0)
        if code:
            raise RuntimeError(log.read()[-2000:].decode(errors="replace"))


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": "", "PYTHONWARNINGS": "ignore"}


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
