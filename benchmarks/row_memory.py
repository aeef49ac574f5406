"""Memory of the parts of a run that have an entry for each row, apart from the models and the columns."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from benchmarks.scale import apart, memory_mb
from cutlayer.accounting import Ledger
from cutlayer.accounting.run_store import RunLine, RunStore, row_words, rows_digest
from cutlayer.data.labels import encode_labels
from cutlayer.data.stored import contiguous, take_pieces
from cutlayer.kernels.noise.randomized_response import randomized_response
from cutlayer.problem.task import Task
from cutlayer.protections.label_memory.memory import Drawn, LabelMemory
from cutlayer.storage.row_arrays import chunks_of, computed_rows
from cutlayer.training.process import keep_freed_memory
from cutlayer.training.quality import quality
from cutlayer.training.recorder import write_truth
from cutlayer.training.utility import interval

TASK = Task("binary", ("0", "1"))
KEY = bytes(32)
_SAMPLE_SECONDS = 0.005


@dataclass(frozen=True)
class RowMemory:
    """Memory of one part of a run.

    Attributes:
        part: Name of the part.
        rows: Number of rows.
        extra_mb: Largest anonymous memory of the process during the part, above that before it.
    """

    part: str
    rows: int
    extra_mb: float


@dataclass(frozen=True)
class RowMemories:
    """Memory of every part at two numbers of rows."""

    parts: list[RowMemory]


def row_memory(rows: int) -> RowMemories:
    """Measure every part at a third of the rows and at all of them, each in a process of its own."""
    return RowMemories([apart(measure, part, count) for part in PARTS for count in (rows // 3, rows)])


def measure(part: str, rows: int) -> RowMemory:
    """Measure one part in this process."""
    keep_freed_memory()
    with tempfile.TemporaryDirectory(prefix="cutlayer-row-memory-") as scratch:
        work = PARTS[part](rows, Path(scratch))
        before, peak, over = memory_mb("RssAnon"), 0.0, threading.Event()

        def sample() -> None:
            nonlocal peak
            while not over.wait(_SAMPLE_SECONDS):
                peak = max(peak, memory_mb("RssAnon"))

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        work()
        over.set()
        thread.join()
        return RowMemory(part, rows, round(max(peak, memory_mb("RssAnon")) - before, 1))


def _logits(rows: int) -> tuple[Tensor, Tensor]:
    """Logits and labels in mapped files, as an evaluation has them."""
    draw = np.random.default_rng(0)
    logits = computed_rows(rows, np.float32, lambda part: draw.standard_normal((part.stop - part.start, 1)), (1,))
    labels = computed_rows(rows, np.int64, lambda part: draw.random(part.stop - part.start) < 0.3)
    return torch.from_numpy(logits), torch.from_numpy(labels)


def _digests(rows: int) -> npt.NDArray[np.uint8]:
    draw = np.random.default_rng(1)
    return computed_rows(
        rows, np.uint8, lambda part: draw.integers(0, 256, (part.stop - part.start, 16), np.uint8), (16,)
    )


def _metrics(rows: int, _: Path) -> Callable[[], object]:
    logits, labels = _logits(rows)
    return lambda: TASK.evaluate(logits, labels)


def _quality(rows: int, _: Path) -> Callable[[], object]:
    logits, labels = _logits(rows)
    return lambda: quality(TASK, logits, labels, 0.3)


def _interval(rows: int, _: Path) -> Callable[[], object]:
    logits, labels = _logits(rows)
    return lambda: interval(TASK, logits, labels, 0)


def _labels(rows: int, _: Path) -> Callable[[], object]:
    draw = np.random.default_rng(2)
    column = contiguous(pa.chunked_array([draw.integers(0, 2, end - start)]) for start, end in chunks_of(rows))
    order = computed_rows(rows, np.int64, lambda part: np.arange(part.start, part.stop))
    return lambda: encode_labels(column, "binary", "labels", order)


def _truth(rows: int, scratch: Path) -> Callable[[], object]:
    training = computed_rows(rows * 7 // 10, np.int64, lambda part: np.arange(part.start, part.stop))
    labels = _logits(rows)[1]
    return lambda: write_truth(scratch, labels, torch.from_numpy(training))


def _draws(rows: int, _: Path) -> Callable[[], object]:
    labels, digests = _logits(rows)[1], torch.from_numpy(_digests(rows))
    return lambda: randomized_response(labels, digests, 2, 1.0, KEY, "label")


def _memory(rows: int, scratch: Path) -> Callable[[], object]:
    labels, digests = _logits(rows)[1], torch.from_numpy(_digests(rows))
    memory = LabelMemory(scratch / "labels", scratch / "run" / "draws.json", KEY)
    return lambda: memory.recall(labels, digests, Drawn("label", 1.0, 2), "refuse")


def _ledger(rows: int, scratch: Path) -> Callable[[], object]:
    digests = _digests(rows)

    def add() -> None:
        words = row_words(digests)
        line = RunLine("run", "bank", "job", "source", rows_digest(words), len(words), "plan", Ledger(()))
        RunStore(scratch / "ledger.sqlite").add(line, words, scratch / "run" / "line.json", lambda _: None)

    return add


def _ids(rows: int, _: Path) -> Callable[[], object]:
    wanted = computed_rows(rows, np.int64, lambda part: rows - 1 - np.arange(part.start, part.stop))

    def pieces() -> Iterator[pa.ChunkedArray]:
        return (pa.chunked_array([np.arange(start, end)]) for start, end in chunks_of(rows))

    return lambda: contiguous(take_pieces(contiguous(pieces()), wanted))


PARTS: Mapping[str, Callable[[int, Path], Any]] = {
    "labels are read": _labels,
    "labels are written for the audit": _truth,
    "ids of test rows are read": _ids,
    "metrics of test rows": _metrics,
    "their calibration and ranking": _quality,
    "their bootstrap interval": _interval,
    "labels are drawn": _draws,
    "draws of labels are remembered": _memory,
    "the run is counted in the ledger of all runs": _ledger,
}
"""What each part sets up, and returns to be measured, by name."""
