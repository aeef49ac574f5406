"""The benchmark of GPUs: the same code runs on the CPU, and without a GPU it states that nothing was measured."""

from __future__ import annotations

import json
import math
import os
import subprocess
from itertools import chain
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_training
from benchmarks.gpu_training import PARTS, UNTIMED, dcor, gpu_part, images, protections, rates
from cutlayer.protections import REGISTRY

CPU = torch.device("cpu")
SCRIPT = Path(gpu_training.__file__).with_name("gpu.sh")
PARTS_IN_ORDER = ["rates_8192", "rates_65536", "dcor", "images", "protections_noise", "protections_gradients",
                  "protections_embeddings"]  # fmt: skip
SMALL = {
    "rates": rates(64),
    "protections": protections(("marvell", "dp_embedding"), batch=64),
    "dcor": dcor(100, 8),
    "images": images({"kind": "lenet5", "width": 4}, side=24, batch=32),
}
RATIOS = {"rates": 2, "protections": 2, "dcor": 1, "images": 3}


def test_every_protection_is_in_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []
    monkeypatch.setattr(gpu_training, "_split", lambda _bench, _batch, privacy: chosen.extend(chain(*privacy.values())))
    monkeypatch.setattr(gpu_training.Bench, "in_turn", lambda _self, sides: [[1.0] for _ in sides])
    for name in (name for name in PARTS if name.startswith("protections")):
        gpu_part(name, 1, 1, device=CPU)
    assert sorted(chosen) == sorted(REGISTRY.keys() - UNTIMED.keys())


def test_without_a_gpu_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = gpu_part("dcor", 1000, 1)
    assert found.skipped.startswith("no GPU: ")
    assert (found.ratios, found.card) == ((), "")


@pytest.mark.parametrize("name", SMALL)
def test_the_code_runs_on_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_training, "PARTS", SMALL)
    found = gpu_part(name, 200, 1, device=CPU)
    assert (found.card, found.skipped, found.torch) == ("cpu", "", torch.__version__)
    assert len(found.ratios) == RATIOS[name]
    for ratio in found.ratios:
        assert math.isfinite(ratio.median)
        assert ratio.lowest <= ratio.median <= ratio.highest
        assert min(ratio.seconds, ratio.other_seconds) >= 0


def test_a_loop_that_cannot_be_compiled_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sample = torch.nn.Linear(3, 1), torch.ones(2, 3)

    def failing(_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("Failed to find C compiler.\nSet CC")

    monkeypatch.setattr(torch, "compile", lambda model, mode: failing)
    found, form = gpu_training._compiled(model, sample)
    assert (found, form) == (model, "an UNCOMPILED centralised loop (RuntimeError: Failed to find C compiler.)")
    monkeypatch.setattr(torch, "compile", lambda model, mode: model)
    assert gpu_training._compiled(model, sample) == (model, "a compiled centralised loop")
    assert model.weight.grad is None


def test_the_last_epoch_is_timed_with_what_writes_its_checkpoint(tmp_path: Path) -> None:
    bench = gpu_training.Bench(CPU, tmp_path, 400, 1, 0.0)
    side = gpu_training._split(bench, 64, {})
    seconds = [side(), side()]
    assert len(side.writing) == 2
    assert all(0 < writing < whole for writing, whole in zip(side.writing, seconds, strict=True))


def test_no_repeat_begins_after_the_time(tmp_path: Path) -> None:
    bench = gpu_training.Bench(CPU, tmp_path, 10, 5, 0.0)
    calls: list[int] = []

    def side() -> float:
        calls.append(1)
        return 1.0

    assert bench.in_turn([side]) == [[1.0]]
    assert len(calls) == 2


def test_the_script_measures_every_part_within_ten_minutes(tmp_path: Path) -> None:
    """Its commands are run with a program in place of Python that states them, and fails for one part."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$3" != dcor ] && echo "$@"\n')
    python.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    lines = subprocess.run(["bash", SCRIPT], check=True, capture_output=True, text=True, env=path).stdout.splitlines()
    assert json.loads(lines[2]) == {"name": "dcor", "skipped": "exit 1"}
    given = [line.split() for line in lines if line.startswith("-m")]
    assert [words[2] for words in given] == [name for name in PARTS_IN_ORDER if name != "dcor"]
    for words in given:  # of options that there are
        assert gpu_training.arguments().parse_args(words[2:]).parts == [words[2]]
    limits = [int(line.split()[1]) for line in SCRIPT.read_text().splitlines() if line.startswith("measure ")]
    assert len(limits) == len(PARTS)
    assert max(limits) <= 180
    assert sum(limits) < 600
