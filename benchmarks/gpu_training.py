"""The reference job on a GPU, against a centralised loop on the same GPU at its best, with what each protection adds.

Both parties are in one process, so that tensors cross without leaving the GPU. The centralised loop is compiled, its
Adam is fused, and its table lies on the GPU; Cutlayer gathers every batch from the memory map. Without a GPU nothing is
measured, and the result says so; the tests run the same code on the CPU, where its figures mean nothing.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import nn

from benchmarks.dcor_loss import sample
from benchmarks.local_training import CATEGORIES, LR, NUMBERS, Centralised, EpochClock, make_table, reference_job
from cutlayer.config import Job
from cutlayer.config.load import with_device
from cutlayer.kernels.distance_correlation import class_distance_correlation_sqr
from cutlayer.parties.device import CPU, described
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import train_together

Timed = Callable[[], float]
BATCHES, ROWS, WIDTH = (8192, 65_536), 8192, 128
NOISE: Mapping[str, Any] = {"clip": 1.0, "noise_multiplier": 1.0}
DEFENCES: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("active", "max_norm", {}),
    ("active", "marvell", {"sum_kl": 0.16}),
    ("active", "iso_noise", {"ratio": 1.0}),
    ("active", "noisy_gradient", {"scale": 0.001}),
    ("active", "gradient_compression", {"keep": 0.1}),
    ("active", "discrete_sgd", {"levels": 2}),
    ("active", "ppdl", {"theta": 0.01}),
    ("active", "dcor", {"alpha": 0.01}),
    ("active", "dimip", {"lam": 0.01}),
    ("active", "party_dropout", {"rate": 0.1}),
    ("passive", "nopeek", {"alpha": 0.1}),
    ("passive", "dp_embedding", NOISE),
)
UNTIMED: Mapping[str, str] = {
    "label_dp": "it draws labels once, before the first step",
    "dp_bottom": "a row's gradient of this job is 4 MB, and all of them cross to the CPU",
}


@dataclass(frozen=True)
class Rate:
    """Both loops at one size of the batch.

    Attributes:
        batch_size: Rows of a step.
        ratio: Median over the repeats of Cutlayer's rows per second over the centralised loop's; goal 0.8.
        lowest: Lowest ratio.
        highest: Highest ratio.
        rate: Cutlayer's rows per second at the median epoch.
        rate_centralised: The centralised loop's.
    """

    batch_size: int
    ratio: float
    lowest: float
    highest: float
    rate: int
    rate_centralised: int


@dataclass(frozen=True)
class Cost:
    """What a protection adds.

    Attributes:
        protection: Its name.
        share: Median over the repeats of what it adds to an epoch, over the epoch without it.
    """

    protection: str
    share: float


@dataclass(frozen=True)
class GpuTraining:
    """The benchmark's result.

    Attributes:
        name: Name of the benchmark.
        device: What was measured; empty where there was none.
        skipped: Why nothing was measured; empty if it was.
        rates: Speed by size of the batch.
        costs: Cost of each protection at the smaller batch.
        dcor_over_products: Median time of distance correlation, forward and backward, over that of its three matrix
            products; goal 2.
        repeats: Number of repeats, after one to warm up.
    """

    name: str
    device: str = ""
    skipped: str = ""
    rates: tuple[Rate, ...] = ()
    costs: tuple[Cost, ...] = ()
    dcor_over_products: float = 0.0
    repeats: int = 0


def gpu_training(
    rows: int,
    repeats: int,
    device: torch.device | None = None,
    batches: Sequence[int] = BATCHES,
    defences: Sequence[tuple[str, str, Mapping[str, Any]]] = DEFENCES,
    size: tuple[int, int] = (ROWS, WIDTH),
) -> GpuTraining:
    """Measure on a GPU; the further arguments are for the tests.

    Args:
        rows: Rows of the synthetic table.
        repeats: Number of repeats.
        device: Device; by default the GPU, and nothing is measured where there is none.
        batches: Rows of a step.
        defences: Party, name and options of each protection.
        size: Rows and columns of the distance correlation.
    """
    if device is None and not torch.cuda.is_available():
        return GpuTraining("gpu_training", skipped=f"no GPU: PyTorch {torch.__version__} finds none; not measured")
    there = device or torch.device("cuda", torch.cuda.current_device())
    with tempfile.TemporaryDirectory(prefix="cutlayer-bench-") as scratch:
        table = Path(scratch) / "table.parquet"
        make_table(table, rows)
        rates = tuple(_rate(table, rows, batch, there, repeats) for batch in batches)
        costs = tuple(_costs(table, batches[0], there, repeats, defences))
    ratio = _dcor_over_products(*size, there, repeats)
    return GpuTraining("gpu_training", described(there), "", rates, costs, ratio, repeats)


def _rate(table: Path, rows: int, batch: int, device: torch.device, repeats: int) -> Rate:
    ours, plain = _in_turn([_split(table, batch, device, {}), _centralised(table, batch, device)], repeats)
    ratios = [slow / fast for fast, slow in zip(ours, plain, strict=True)]
    rate, other = (round(rows / statistics.median(seconds)) for seconds in (ours, plain))
    return Rate(batch, round(statistics.median(ratios), 3), round(min(ratios), 3), round(max(ratios), 3), rate, other)


def _costs(
    table: Path, batch: int, device: torch.device, repeats: int, defences: Sequence[tuple[str, str, Mapping[str, Any]]]
) -> list[Cost]:
    protected = [_split(table, batch, device, {party: {name: options}}) for party, name, options in defences]
    plain, *others = _in_turn([_split(table, batch, device, {}), *protected], repeats)
    return [
        Cost(name, round(statistics.median(a / b - 1 for a, b in zip(seconds, plain, strict=True)), 3))
        for (_, name, _), seconds in zip(defences, others, strict=True)
    ]


def _in_turn(sides: Sequence[Timed], repeats: int) -> list[list[float]]:
    """Seconds of each side, all of them in turn, after one to warm up."""
    rounds = [[side() for side in sides] for _ in range(repeats + 1)]
    return [list(seconds) for seconds in zip(*rounds[1:], strict=True)]


def _split(table: Path, batch: int, device: torch.device, privacy: Mapping[str, Mapping[str, Any]]) -> Timed:
    """Cutlayer: one run is one epoch, checkpoint included."""
    job = with_device(reference_job(table, batch, 1, "never"), str(device))
    parties = {name: part.model_copy(update={"privacy": privacy.get(name, {})}) for name, part in job.parties.items()}
    protected: Job = job.model_copy(update={"parties": parties})
    scratch = Path(tempfile.mkdtemp(prefix="split-", dir=table.parent))
    tables = {name: open_table(protected, name, {}) for name in protected.parties}

    def once() -> float:
        clock = EpochClock()
        folder = RunFolder.create(Path(tempfile.mkdtemp(dir=scratch)) / "run", resume=False)
        keys = Keys(scratch, bytes(32))
        train_together(protected, folder, tables, keys, clock, data=scratch.parent / "data")
        return clock.seconds[0]

    return once


def _centralised(table: Path, batch: int, device: torch.device) -> Timed:
    """Plain PyTorch with everything on the device, and one launch of a graph a step where it is a GPU."""
    read = pq.read_table(table)
    codes = torch.from_numpy(np.stack([read[f"c{i}"].to_numpy() for i in range(CATEGORIES)], axis=1)).to(device)
    numbers = torch.from_numpy(np.stack([read[f"x{i}"].to_numpy() for i in range(NUMBERS)], axis=1)).to(device)
    labels = torch.from_numpy(read["y"].to_numpy().astype(np.float32)).to(device)
    model: Any = Centralised(tuned=True).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, fused=True)
    model = model if device == CPU else torch.compile(model, mode="reduce-overhead")
    loss_of = nn.BCEWithLogitsLoss()

    def once() -> float:
        _wait(device)
        began = time.perf_counter()
        # All batches are whole, so that one compiled form does.
        whole = torch.randperm(len(labels), device=device)[: len(labels) // batch * batch]
        for rows in torch.split(whole, batch):
            loss = loss_of(model(codes.index_select(0, rows), numbers.index_select(0, rows)), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        _wait(device)
        return (time.perf_counter() - began) * len(labels) / max(len(labels) // batch * batch, 1)

    return once


def _dcor_over_products(rows: int, width: int, device: torch.device, repeats: int) -> float:
    e, labels = (tensor.to(device) for tensor in sample(rows, width))

    def correlation() -> None:
        x = e.clone().requires_grad_()
        class_distance_correlation_sqr(x, labels, 2).backward()  # type: ignore[no-untyped-call]

    def products() -> None:
        squared = e @ e.T  # the distances of the forward pass
        squared = e @ e.T  # and again of the backward pass, which stores no matrix
        _ = squared @ e  # the weighted rows

    ours, plain = _in_turn([_clocked(correlation, device), _clocked(products, device)], repeats)
    return round(statistics.median(a / b for a, b in zip(ours, plain, strict=True)), 2)


def _clocked(work: Callable[[], None], device: torch.device) -> Timed:
    def once() -> float:
        _wait(device)
        began = time.perf_counter()
        work()
        _wait(device)
        return time.perf_counter() - began

    return once


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
