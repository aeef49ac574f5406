"""The reference job on a GPU, against a centralised loop on the same GPU at its best, with what each protection adds.

    python -m benchmarks.gpu_training [PART ...] [--rows N] [--repeats N] [--seconds S] [--device D]

Each part prints one JSON line with the card's name as it ends, within three minutes, and can be repeated alone. Both
parties are in one process, so that tensors cross without leaving the GPU. The centralised loop is compiled, its Adam is
fused, and its table is on the GPU. Cutlayer trains two epochs, of which the second is timed, as the loop is compiled
before it is timed. Without a GPU nothing is measured, and the result says so; the tests run the same code on the CPU,
where its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import torch
from torch import nn

from benchmarks.dcor_loss import sample
from benchmarks.local_training import CATEGORIES, LR, NUMBERS, Centralised, EpochClock, make_table, reference_job
from cutlayer.config import Job, validated
from cutlayer.config.load import with_device
from cutlayer.kernels.dependence.distance_correlation import class_distance_correlation_sqr
from cutlayer.models import Inputs, build_bottom, build_top
from cutlayer.parties.compute.device import CPU, device_text
from cutlayer.parties.session.checkpoint import Checkpoints
from cutlayer.parties.session.observer import EpochRecord
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.base import Protection
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import train_together

Timed = Callable[[], float]
BATCHES, ROWS, WIDTH = (8192, 65_536), 8192, 128
EPOCHS = 2
"""Epochs of a run, of which the last is timed."""
UNTIMED: Mapping[str, str] = {
    "label_dp": "it draws labels once, before the first step",
    "dp_bottom": "a row's gradient of this job is 4 MB, and all of them cross to the CPU",
}
"""Protections that add nothing to a step, or too much."""


SECONDS = 60.0
"""Time after which a part takes no further repeat; the tables, the first round and the last repeat come on top."""
IMAGES, SIDE, IMAGE_BATCH, IMAGE_CLASSES = 8000, 32, 256, 10


@dataclass(frozen=True)
class Ratio:
    """One comparison, of pairs of measurements that were taken in turn.

    Attributes:
        what: What is compared, and the goal.
        median: Median ratio over the repeats.
        lowest: Lowest ratio.
        highest: Highest ratio.
        seconds: Median seconds of the first of the two.
        other_seconds: Median seconds of the second.
    """

    what: str
    median: float
    lowest: float
    highest: float
    seconds: float
    other_seconds: float

    @classmethod
    def of(cls, what: str, ratios: Sequence[float], first: Sequence[float], second: Sequence[float]) -> Ratio:
        """The summary of the repeats."""
        spread = statistics.median(ratios), min(ratios), max(ratios)
        seconds = statistics.median(first), statistics.median(second)
        return cls(what, *(round(value, 3) for value in spread), *(round(value, 4) for value in seconds))


@dataclass(frozen=True)
class GpuPart:
    """The result of a part.

    Attributes:
        name: Name of the part.
        card: Card that was measured; empty where there was none.
        torch: Version of PyTorch.
        skipped: Why nothing was measured; empty if it was.
        rows: Rows of the table, or of the images.
        repeats: Number of repeats, after a round to warm up.
        ratios: What was compared.
    """

    name: str
    card: str = ""
    torch: str = torch.__version__
    skipped: str = ""
    rows: int = 0
    repeats: int = 0
    ratios: tuple[Ratio, ...] = ()


@dataclass(frozen=True)
class Bench:
    """What the parts share.

    Attributes:
        device: Device that is measured.
        folder: Folder for tables and runs.
        rows: Rows of the synthetic table, or of the images.
        repeats: Maximum number of repeats.
        seconds: Time after which no further repeat begins.
    """

    device: torch.device
    folder: Path
    rows: int
    repeats: int
    seconds: float

    @property
    def table(self) -> Path:
        """The synthetic table, written at its first use."""
        path = self.folder / f"table-{self.rows}.parquet"
        if not path.exists():
            make_table(path, self.rows)
        return path

    def in_turn(self, sides: Sequence[Timed]) -> list[list[float]]:
        """Seconds of each side, all of them in turn, after a round to warm up; at least one round."""
        for side in sides:
            side()
        began, rounds = time.perf_counter(), list[list[float]]()
        while len(rounds) < self.repeats and (not rounds or time.perf_counter() - began < self.seconds):
            rounds.append([side() for side in sides])
        return [list(seconds) for seconds in zip(*rounds, strict=True)]


Part = Callable[[Bench], tuple[Ratio, ...]]


def rates(batch: int) -> Part:
    """Rows per second over the centralised loop's, at a size of the batch."""

    def measure(bench: Bench) -> tuple[Ratio, ...]:
        (centralised, form), split = _centralised(bench, batch), _split(bench, batch, {})
        ours, plain = bench.in_turn((split, centralised))
        steps = [whole - writing for whole, writing in zip(ours, split.writing[1:], strict=True)]
        loop = f"{form}, batch {batch}"
        return tuple(
            Ratio.of(what, [slow / fast for fast, slow in zip(seconds, plain, strict=True)], seconds, plain)
            for what, seconds in (
                (f"rows/s over {loop}; goal 0.8", ours),
                (f"the same without the time that checkpoints are written in, over {loop}; goal 0.8", steps),
            )
        )

    return measure


def part_of(kind: type[Protection[Any]]) -> str:
    """The part that times a protection: of embeddings, or of gradients with noise (rank 20) and without."""
    if kind.gradient_out is Protection.gradient_out:
        return "protections_embeddings"
    return "protections_noise" if kind.rank == 20 else "protections_gradients"


def protections(names: Sequence[str], batch: int = BATCHES[0]) -> Part:
    """What some protections add to an epoch, over the epoch without any, each with the settings to begin with."""

    def measure(bench: Bench) -> tuple[Ratio, ...]:
        chosen = [(kind.side, name, kind.start) for name, kind in REGISTRY.items() if name in names]
        protected = [
            _split(bench, batch, {side: {name: start.model_dump(exclude_unset=True)}}) for side, name, start in chosen
        ]
        plain, *others = bench.in_turn([_split(bench, batch, {}), *protected])
        return tuple(
            Ratio.of(f"{name}: share added", [a / b - 1 for a, b in zip(seconds, plain, strict=True)], seconds, plain)
            for (_, name, _), seconds in zip(chosen, others, strict=True)
        )

    return measure


def dcor(rows: int = ROWS, width: int = WIDTH) -> Part:
    """Distance correlation, forward and backward, over its three matrix products."""

    def measure(bench: Bench) -> tuple[Ratio, ...]:
        e, labels = (tensor.to(bench.device) for tensor in sample(rows, width))

        def correlation() -> None:
            x = e.clone().requires_grad_()
            class_distance_correlation_sqr(x, labels, 2).backward()  # type: ignore[no-untyped-call]

        def products() -> None:
            squared = e @ e.T  # the distances of the forward pass
            squared = e @ e.T  # and again of the backward pass, which stores no matrix
            _ = squared @ e  # the weighted rows

        ours, plain = bench.in_turn([_clocked(work, bench.device) for work in (correlation, products)])
        ratios = [a / b for a, b in zip(ours, plain, strict=True)]
        return (Ratio.of(f"dcor of {rows} x {width} over its three products; goal 2", ratios, ours, plain),)

    return measure


def images(bottom: Mapping[str, Any], side: int = SIDE, batch: int = IMAGE_BATCH) -> Part:
    """Halves of images in both precisions, against a plain loop over the same layers."""

    def measure(bench: Bench) -> tuple[Ratio, ...]:
        path = bench.folder / "images.npz"
        draw = np.random.default_rng(0)
        pixels = draw.integers(0, 256, (min(bench.rows, IMAGES), side, side, 3), dtype=np.uint8)
        labels = draw.integers(0, IMAGE_CLASSES, len(pixels))
        np.savez(path, image=pixels, label=labels)
        jobs = [image_job(path, bottom, batch, precision) for precision in ("float32", "bf16")]
        sides: list[Timed] = []
        for job in jobs:
            sides += [_epoch(bench, job), _plain_images(bench, job, batch, pixels, labels)]
        ours, plain, ours_bf16, plain_bf16 = bench.in_turn(sides)
        return tuple(
            Ratio.of(what, [b / a for a, b in zip(first, second, strict=True)], first, second)
            for what, first, second in (
                ("images/s over a plain loop, float32; goal 0.9", ours, plain),
                ("images/s over a plain loop, bf16", ours_bf16, plain_bf16),
                ("images/s of bf16 over float32; goal 1.3", ours_bf16, ours),
            )
        )

    return measure


PARTS: Mapping[str, Part] = {
    **{f"rates_{batch}": rates(batch) for batch in BATCHES},
    "dcor": dcor(),
    **{
        part: protections([name for name, kind in REGISTRY.items() if part_of(kind) == part and name not in UNTIMED])
        for part in ("protections_noise", "protections_gradients", "protections_embeddings")
    },
    "images": images({"kind": "resnet18"}),
}


def gpu_part(
    name: str, rows: int, repeats: int, seconds: float = SECONDS, device: torch.device | None = None
) -> GpuPart:
    """Measure a part on a GPU.

    Args:
        name: Name of the part, of `PARTS`.
        rows: Rows of the synthetic table.
        repeats: Maximum number of repeats.
        seconds: Time after which no further repeat begins.
        device: Device; by default the GPU, and nothing is measured where there is none.
    """
    if device is None and not torch.cuda.is_available():
        return GpuPart(name, skipped=f"no GPU: PyTorch {torch.__version__} finds none; not measured")
    there = device or torch.device("cuda", torch.cuda.current_device())
    with tempfile.TemporaryDirectory(prefix="cutlayer-bench-") as scratch:
        bench = Bench(there, Path(scratch), rows, repeats, seconds)
        return GpuPart(name, device_text(there), rows=rows, repeats=repeats, ratios=PARTS[name](bench))


def image_job(path: Path, bottom: Mapping[str, Any], batch: int, precision: str) -> Job:
    """Two parties with a half of each image, and the active one with the labels."""
    table = {"path": str(path), "arrays": {"image": "image"}}
    labelled = {**table, "arrays": {"image": "image", "label": "label"}, "part": "left"}
    quiet = {"audit": {"every": "never"}, "id": "@row"}
    raw = {
        "task": "multiclass",
        "parties": {
            "active": {"role": "active", "table": labelled, "label": "label", **quiet},
            "passive": {"role": "passive", "table": {**table, "part": "right"}, **quiet},
        },
        "model": {"bottom": bottom, "top": {"kind": "mlp", "hidden": [64]}},
        "train": {"epochs": EPOCHS, "batch_size": batch, "precision": precision, "threads": 1,
                  "split": {"test": 0.01, "validation": 0.0}},
    }  # fmt: skip
    return validated(Job, raw, "image job")


class Epoch:
    """Cutlayer: one call is one run, and returns the seconds of its last epoch, checkpoint included.

    Attributes:
        writing: Seconds of each run's last epoch in which checkpoints were written.
    """

    def __init__(self, run: Callable[[EpochClock], object]) -> None:
        self._run, self.writing = run, list[float]()

    def __call__(self) -> float:
        """Run."""
        clock = _WritingClock()
        with clock.watching("save"), clock.watching("commit"):
            self._run(clock)
        self.writing.append(clock.written[-1])
        return clock.seconds[-1]


class _WritingClock(EpochClock):
    """Also the seconds of every epoch in which checkpoints are written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self._now = list[float](), 0.0

    def watching(self, name: str) -> Any:
        """Count the time of a method of `Checkpoints`."""
        method = getattr(Checkpoints, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*arguments, **options)
            finally:
                self._now += time.perf_counter() - began

        return mock.patch.object(Checkpoints, name, timed)

    def ended(self, record: EpochRecord) -> None:
        """Stop it and start it again."""
        super().ended(record)
        self.written.append(self._now)
        self._now = 0.0


def _split(bench: Bench, batch: int, privacy: Mapping[str, Mapping[str, Any]]) -> Epoch:
    """Cutlayer on the synthetic table, with some protections."""
    job = reference_job(bench.table, batch, EPOCHS, "never")
    parties = {name: part.model_copy(update={"privacy": privacy.get(name, {})}) for name, part in job.parties.items()}
    return _epoch(bench, job.model_copy(update={"parties": parties}))


def _epoch(bench: Bench, job: Job) -> Epoch:
    placed = with_device(job, str(bench.device))
    scratch = Path(tempfile.mkdtemp(prefix="split-", dir=bench.folder))
    tables = {name: open_table(placed, name, {}) for name in placed.parties}

    def run(clock: EpochClock) -> None:
        folder = RunFolder.create(Path(tempfile.mkdtemp(dir=scratch)) / "run", resume=False)
        # All sides of a part have the same encoded columns.
        train_together(placed, folder, tables, Keys(scratch, bytes(32)), clock, data=bench.folder / "data")

    return Epoch(run)


def _centralised(bench: Bench, batch: int) -> tuple[Timed, str]:
    """Plain PyTorch with everything on the device, and one launch of a graph a step where it is a GPU; what it is."""
    device, read = bench.device, pq.read_table(bench.table)
    codes = torch.from_numpy(np.stack([read[f"c{i}"].to_numpy() for i in range(CATEGORIES)], axis=1)).to(device)
    numbers = torch.from_numpy(np.stack([read[f"x{i}"].to_numpy() for i in range(NUMBERS)], axis=1)).to(device)
    labels = torch.from_numpy(read["y"].to_numpy().astype(np.float32)).to(device)
    model: Any = Centralised(tuned=True).to(device)
    form = "an uncompiled centralised loop on the CPU"
    if device != CPU:
        model, form = _compiled(model, codes[:batch], numbers[:batch])
    loss_of = nn.BCEWithLogitsLoss()

    def loss(rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = loss_of(model(codes.index_select(0, rows), numbers.index_select(0, rows)), labels[rows])
        return found

    return _loop(model, loss, len(labels), batch, device), form


def _compiled(model: nn.Module, *sample: torch.Tensor) -> tuple[Any, str]:
    """The compiled model, and what it is; the model itself where this machine lacks what PyTorch compiles with."""
    compiled: Any = torch.compile(model, mode="reduce-overhead")
    try:
        compiled(*sample).sum().backward()
    except Exception as failure:  # of the compiler, of Triton, or of the C compiler that it calls
        first = str(failure).strip().partition("\n")[0][:120]
        return model, f"an UNCOMPILED centralised loop ({type(failure).__name__}: {first})"
    model.zero_grad()
    return compiled, "a compiled centralised loop"


def _plain_images(
    bench: Bench, job: Job, batch: int, pixels: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]
) -> Timed:
    """The same layers over both halves in one module, with all images on the device."""
    device, half = bench.device, pixels.shape[2] // 2
    maps = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float().div_(255.0)
    halves = [maps[..., :half].flatten(1).contiguous(), maps[..., half:].flatten(1).contiguous()]
    inputs = Inputs((), halves[0].shape[1], (3, pixels.shape[1], half))
    none, targets = torch.zeros(len(maps), 0, dtype=torch.int32, device=device), torch.from_numpy(labels).to(device)
    precision = job.train.precision
    bottoms = [build_bottom(job.bottom_of(name), inputs, precision=precision) for name in job.parties]
    widths = {name: bottom.width for name, bottom in zip(job.parties, bottoms, strict=True)}
    top = build_top(job.top, widths, IMAGE_CLASSES, may_leave=(), precision=precision)
    model = nn.ModuleList([*bottoms, top]).to(device)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        parts = zip(widths, bottoms, halves, strict=True)
        embedded = {name: bottom(none[rows], part.index_select(0, rows)) for name, bottom, part in parts}
        return nn.functional.cross_entropy(top(embedded), targets[rows])

    return _loop(model, loss, len(maps), batch, device)


def _loop(
    model: nn.Module, loss_of: Callable[[torch.Tensor], torch.Tensor], rows: int, batch: int, device: torch.device
) -> Timed:
    """An epoch of a plain loop, in seconds for all rows."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, fused=True)
    counted = max(rows // batch * batch, 1)  # all batches are whole, so that one compiled form does

    def epoch() -> None:
        for chosen in torch.split(torch.randperm(rows, device=device)[:counted], batch):
            loss = loss_of(chosen)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    timed = _clocked(epoch, device)
    return lambda: timed() * rows / counted


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


def arguments() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_training", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table; at most 8,000 images")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time after which no further repeat begins")
    parser.add_argument(
        "--device", type=torch.device, help="the current GPU by default; cpu for the ratio of dcor there"
    )
    return parser


def main() -> None:
    """Measure the parts that are named, or all, and print a JSON line for each as it ends."""
    given = arguments().parse_args()
    for name in given.parts or PARTS:
        result = gpu_part(name, given.rows, given.repeats, given.seconds, given.device)
        sys.stdout.write(json.dumps(asdict(result)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
