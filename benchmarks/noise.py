"""Normals from AES in counter mode against `torch.randn`'s, and what bounds ours: the keystream and its transform.

`torch.randn` draws in one thread whatever their number, and so do we: a piece is too small for PyTorch to share out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks.pairs import Comparison, compare
from cutlayer.kernels import noise

NORMALS = 1 << 20
"""Of one draw: a message of 8192 x 128."""

DRAWS = 16
_KEY = bytes(range(32))
_WORDS = 1 << 15


@dataclass(frozen=True)
class NoiseSpeeds:
    """Ours against torch's, and ours against its own limits.

    Attributes:
        ratio: normals per second of ours over torch's in one thread, the median over the repeats; goal 0.8.
        lowest, highest: of the same over the repeats.
        threads_1, threads_2: the whole comparisons.
        keystream_bytes: that AES makes per second, into one buffer over and over.
        keystream_normals: per second, if nothing else took time (6 bytes each).
        transform_normals: per second, if the words cost nothing.
    """

    name: str
    ratio: float
    lowest: float
    highest: float
    threads_1: Comparison
    threads_2: Comparison
    keystream_bytes: int
    keystream_normals: int
    transform_normals: int


def noise_speeds(repeats: int) -> NoiseSpeeds:
    """Compare at one and two threads, then time the two halves of ours."""
    one, two = (_against_torch(repeats, threads) for threads in (1, 2))
    torch.set_num_threads(1)
    nbytes = 6 * NORMALS
    keystream = nbytes / _median(_keystream_pieces, repeats)
    return NoiseSpeeds(
        name="noise",
        ratio=one.ratio,
        lowest=one.lowest,
        highest=one.highest,
        threads_1=one,
        threads_2=two,
        keystream_bytes=round(keystream),
        keystream_normals=round(keystream / 6),
        transform_normals=round(NORMALS / _median(_transform_pieces(), repeats)),
    )


def _against_torch(repeats: int, threads: int) -> Comparison:
    ours = (f"AES-256-CTR and Box-Muller, 64-bit radii, {DRAWS} draws of {NORMALS} float32", ours_side)
    return compare("noise", ours, ("torch.randn", torch_side), (DRAWS, NORMALS), DRAWS * NORMALS, repeats, threads)


def ours_side(draws: int, normals: int) -> Callable[[], float]:
    """Draws under a nonce each."""
    return _timed(draws, lambda number: noise.standard_normal(_KEY, number.to_bytes(8, "little"), (normals,)))


def torch_side(draws: int, normals: int) -> Callable[[], float]:
    """The default generator."""
    return _timed(draws, lambda _: torch.randn(normals))


def _timed(draws: int, draw: Callable[[int], torch.Tensor]) -> Callable[[], float]:
    def once() -> float:
        began = time.perf_counter()
        for number in range(draws):
            draw(number)
        return time.perf_counter() - began

    return once


def _keystream_pieces() -> None:
    for _ in noise.word_pieces(_KEY, b"", NORMALS // 2, 3, _WORDS):
        pass


def _transform_pieces() -> Callable[[], None]:
    words = torch.randint(-(2**31), 2**31 - 1, (3 * _WORDS,), dtype=torch.int32)
    out, uniform = torch.empty(2 * _WORDS), torch.empty(_WORDS, dtype=torch.float64)
    radius, angle = torch.empty(_WORDS), torch.empty(_WORDS)

    def once() -> None:
        for _ in range(NORMALS // 2 // _WORDS):
            noise._box_muller(words, out, uniform, radius, angle)

    return once


def _median(run: Callable[[], None], repeats: int) -> float:
    """Seconds, after one run to warm up."""
    run()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)
