"""The benchmark of GPUs: the same code runs on the CPU, and without a GPU it states that nothing was measured."""

from __future__ import annotations

import math
import subprocess
from itertools import chain
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_training
from benchmarks.gpu_training import DEFENCES, PARTS, UNTIMED, dcor, gpu_part, images, protections, rates
from cutlayer.protections import REGISTRY

CPU = torch.device("cpu")
SCRIPT = Path(gpu_training.__file__).with_name("gpu.sh")
SMALL = {
    "rates": rates(64),
    "protections": protections(("marvell", "dp_embedding"), batch=64),
    "dcor": dcor(100, 8),
    "images": images({"kind": "lenet5", "width": 4}, side=24, batch=32),
}
RATIOS = {"rates": 3, "protections": 2, "dcor": 1, "images": 3}


def test_every_protection_is_timed_or_has_a_reason() -> None:
    assert {name for _, name, _ in DEFENCES} | UNTIMED.keys() == REGISTRY.keys()


def test_every_protection_is_in_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []
    monkeypatch.setattr(
        gpu_training, "_split", lambda _bench, _batch, privacy, **_: chosen.extend(chain(*privacy.values()))
    )
    monkeypatch.setattr(gpu_training.Bench, "in_turn", lambda _self, sides: [[1.0] for _ in sides])
    for name in (name for name in PARTS if name.startswith("protections")):
        gpu_part(name, 1, 1, device=CPU)
    assert sorted(chosen) == sorted(name for _, name, _ in DEFENCES)


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


def test_no_repeat_begins_after_the_time(tmp_path: Path) -> None:
    bench = gpu_training.Bench(CPU, tmp_path, 10, 5, 0.0)
    calls: list[int] = []

    def side() -> float:
        calls.append(1)
        return 1.0

    assert bench.in_turn([side]) == [[1.0]]
    assert len(calls) == 2


def test_the_script_measures_every_part_within_three_minutes_each() -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    text = SCRIPT.read_text()
    assert all(f"{name} " in text for name in PARTS)
    assert "timeout 180" in text
