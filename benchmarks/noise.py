"""Normals from AES against `torch.randn`'s, releases on a lattice against releases in float32, and what bounds both.

`torch.randn` draws in one thread whatever their number, and so do we: a piece is too small for PyTorch to share out.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.pairs import Comparison, compare
from cutlayer.kernels.noise import aes as noise
from cutlayer.kernels.noise.lattice import lattice_gaussian
from cutlayer.training.process import keep_freed_memory

NORMALS = 1 << 20
"""Shape of a draw: a message of 8192 x 128."""

DRAWS = 16
_KEY = bytes(range(32))
_WORDS = 1 << 15
_WIDTH = 128
_SIGMA = 2.0


@dataclass(frozen=True)
class NoiseSpeeds:
    """Ours against torch's, and ours against its own limits.

    Attributes:
        ratio: normals per second of ours over torch's in one thread, the median over the repeats; goal 0.8.
        lowest: lowest such ratio of the repeats.
        highest: highest such ratio of the repeats.
        threads_1: the comparison with one thread.
        threads_2: the comparison with two threads.
        lattice: rows released with noise on the lattice, against float32 noise added to float32 rows; one thread.
        keystream_bytes: bytes per second that AES makes, into one buffer over and over.
        keystream_normals: normals per second, if nothing but the keystream took time (6 bytes each).
        transform_normals: normals per second, if the words cost nothing.
        lattice_limit: normals per second of the lattice, if only its keystream (8 bytes each), logarithm, square root,
            cosine and sine took time.
    """

    name: str
    ratio: float
    lowest: float
    highest: float
    threads_1: Comparison
    threads_2: Comparison
    lattice: Comparison
    keystream_bytes: int
    keystream_normals: int
    transform_normals: int
    lattice_limit: int


def noise_speeds(repeats: int) -> NoiseSpeeds:
    """Compare at one and two threads, then time the two halves of ours."""
    one, two = (_against_torch(repeats, threads) for threads in (1, 2))
    lattice = compare(
        "lattice",
        (f"rows and noise on a lattice, {DRAWS} releases of {NORMALS // _WIDTH} x {_WIDTH}", lattice_side),
        ("float32 noise added to float32 rows", float_side),
        (DRAWS, NORMALS),
        DRAWS * NORMALS,
        repeats,
        threads=1,
    )
    torch.set_num_threads(1)
    nbytes = 6 * NORMALS
    keystream = nbytes / _median(_keystream_pieces, repeats)
    functions = _median(_lattice_functions(), repeats)
    return NoiseSpeeds(
        name="noise",
        ratio=one.ratio,
        lowest=one.lowest,
        highest=one.highest,
        threads_1=one,
        threads_2=two,
        lattice=lattice,
        keystream_bytes=round(keystream),
        keystream_normals=round(keystream / 6),
        transform_normals=round(NORMALS / _median(_transform_pieces(), repeats)),
        lattice_limit=round(NORMALS / (8 * NORMALS / keystream + functions)),
    )


def _against_torch(repeats: int, threads: int) -> Comparison:
    ours = (f"AES-256 and Box-Muller, 64-bit radii, {DRAWS} draws of {NORMALS} float32", ours_side)
    return compare("noise", ours, ("torch.randn", torch_side), (DRAWS, NORMALS), DRAWS * NORMALS, repeats, threads)


def ours_side(draws: int, normals: int) -> Callable[[], float]:
    """Draws under a nonce each."""
    return _timed(draws, lambda number: noise.standard_normal(_KEY, number.to_bytes(8, "little"), (normals,)))


def torch_side(draws: int, normals: int) -> Callable[[], float]:
    """The default generator."""
    return _timed(draws, lambda _: torch.randn(normals))


def lattice_side(draws: int, normals: int) -> Callable[[], float]:
    """Releases under a key each, of rows clipped to norm 1, with noise of deviation 2."""
    rows = _rows(normals)
    return _timed(draws, lambda number: lattice_gaussian(rows, _SIGMA, 1.0, number.to_bytes(16, "little")))


def float_side(draws: int, normals: int) -> Callable[[], float]:
    """The same without a lattice, which is not private: its values exclude rows."""
    rows = _rows(normals)

    def release(number: int) -> torch.Tensor:
        drawn = noise.standard_normal(_KEY, number.to_bytes(16, "little"), tuple(rows.shape))
        return torch.add(rows, drawn, alpha=_SIGMA)

    return _timed(draws, release)


def _rows(normals: int) -> torch.Tensor:
    keep_freed_memory()
    return torch.nn.functional.normalize(torch.randn(math.ceil(normals / _WIDTH), _WIDTH))


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


def _lattice_functions() -> Callable[[], None]:
    numbers = torch.rand(_WORDS, dtype=torch.float64)
    out = torch.empty_like(numbers)
    numbers_array, out_array = numbers.numpy(), out.numpy()

    def once() -> None:
        for _ in range(NORMALS // 2 // _WORDS):
            np.log(numbers_array, out=out_array)
            np.sqrt(numbers_array, out=out_array)
            torch.cos(numbers, out=out)
            torch.sin(numbers, out=out)

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
