"""The benchmark of the defences of the embedding runs, and its variants differ in what they name."""

import math

import torch

from benchmarks import embedding_defences as benchmark
from benchmarks import kept_memory


def test_every_variant_is_timed_on_every_bottom_model(monkeypatch):
    monkeypatch.setattr(benchmark, "BATCH", 8)
    monkeypatch.setattr(benchmark, "ROWS", 40)
    threads = torch.get_num_threads()
    found = benchmark.embedding_defences(8, 1)
    torch.set_num_threads(threads)
    assert len(found.overheads) == 2 * len(benchmark.PUBLISHED) == 8
    assert all(milliseconds > 0 for milliseconds in found.undefended_ms.values())
    assert all(
        math.isfinite(overhead.share) and overhead.lowest <= overhead.share <= overhead.highest
        for overhead in found.overheads
    )
    goals = {"noise": 0.0865, "rescale": 0.4, "adjust": 0.117, "adjust, 1 round": 0.117}
    assert {item.defence: item.goal for item in found.overheads} == goals


def test_both_ways_with_freed_memory_are_timed(monkeypatch):
    calls = []
    monkeypatch.setattr(kept_memory, "keep_freed_memory", lambda: calls.append(1))
    assert kept_memory.given_back_side(1)() > 0
    assert not calls
    assert kept_memory.kept_side(1)() > 0
    assert calls
