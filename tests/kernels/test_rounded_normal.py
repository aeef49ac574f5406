"""Noise rounded to a lattice against scipy's probabilities, and against Box-Muller with many digits."""

from __future__ import annotations

import hashlib
import math

import mpmath as mp
import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from cutlayer.errors import ConfigError
from cutlayer.kernels.noise import rounded_normal as module
from cutlayer.kernels.noise.aes import encrypt_blocks, keystream, standard_normal
from cutlayer.kernels.noise.rounded_normal import MAX_STANDARD_NORMAL, rounded_normal, rounded_pieces

KEY = bytes(range(32))
STEP = 2.0**-7
Integers = npt.NDArray[np.int64]


def integers(shape: tuple[int, ...], scale: float, nonce: bytes = b"n") -> Integers:
    values = rounded_normal(KEY, nonce, shape, scale * STEP, STEP) / STEP
    assert torch.equal(values, values.round())
    return values.numpy().astype(np.int64)


def discretised(low: int, high: int, scale: float) -> npt.NDArray[np.float64]:
    """Exact probabilities of round(N(0, scale^2)) for low to high."""
    edges = np.arange(low, high + 2) - 0.5
    return np.asarray(np.diff(stats.norm.cdf(edges, scale=scale)))


def fits(values: Integers, scale: float) -> bool:
    """Whether shape, variance, centre and tails are those of a rounded normal, at a false-alarm rate of 1e-4 each."""
    n, size = len(values), np.abs(values)
    # Distances of the two distribution functions just above each integer.
    steps, counts = np.unique(values, return_counts=True)
    distance = np.abs(np.cumsum(counts) / n - stats.norm.cdf(steps + 0.5, scale=scale)).max()
    below = np.abs(np.cumsum(counts) / n - counts / n - stats.norm.cdf(steps - 0.5, scale=scale)).max()
    if stats.kstwobign.sf(math.sqrt(n) * max(distance, below)) < 1e-4:  # exact probabilities take half a second
        return False
    variance = scale**2 + 1 / 12 if scale > 1 else float(discretised(-9, 9, scale) @ np.arange(-9, 10) ** 2)
    spread = values.astype(np.float64) ** 2
    if abs(spread.mean() - variance) * math.sqrt(n) / spread.std() > 4:
        return False
    top = max(1, int(scale / 4))
    probabilities = np.append(discretised(-top, top, scale), 0.0)
    probabilities[-1] = 1 - probabilities.sum()
    centre = np.append(np.bincount(values[size <= top] + top, minlength=2 * top + 1), (size > top).sum())
    if n * probabilities.min() > 5 and stats.chisquare(centre, n * probabilities).pvalue < 1e-4:
        return False
    for limit in (3.0, 4.0, 4.5):
        edge = math.ceil(limit * scale)
        low, high = stats.binom.interval(1 - 1e-4, n, 2 * stats.norm.sf(edge - 0.5, scale=scale))
        if not low <= (size >= edge).sum() <= high:
            return False
    return True


@pytest.mark.parametrize("scale", [0.7, 3.3, 40.0, 2.0**18 * 1.37, 2.0**19])
def test_integers_are_those_of_a_rounded_normal_and_wrong_scales_are_seen(scale: float) -> None:
    values = integers((150, 2001), scale).ravel()
    assert fits(values, scale)
    for wrong in (2 / 3, 3 / 2, 1.01):
        assert not fits(values, wrong * scale)
    assert not fits(integers((150, 2001), 2 / 3 * scale).ravel(), scale)


def test_the_two_numbers_of_a_pair_are_independent() -> None:
    pairs = integers((2, 30_000), 2.0**18.5).astype(np.float64)  # one piece: cosines, then sines
    limit = 4 / math.sqrt(30_000)
    for first, second in ((pairs[0], pairs[1]), (pairs[0] ** 2, pairs[1] ** 2), (pairs[0], pairs[1] ** 2)):
        assert abs(np.corrcoef(first, second)[0, 1]) < limit
    low = integers((2, 30_000), 2.0**18.5) % 8
    table = np.histogram2d(low[0], low[1], bins=8)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-4


@pytest.mark.parametrize("modulus", [2, 8, 64])
def test_low_bits_are_uniform_and_those_of_float32_noise_are_not(modulus: int) -> None:
    def uniform(values: Integers) -> bool:
        return bool(stats.chisquare(np.bincount(values % modulus, minlength=modulus)).pvalue > 1e-4)

    scale = 2.0**18.5
    values = integers((400_000,), scale)
    assert uniform(values)
    assert uniform(values[np.abs(values) > 2 * scale])
    single = standard_normal(KEY, b"single", (400_000,)) * scale * 64
    assert not uniform(single.double().round().numpy().astype(np.int64))


def words_of(nonce: bytes, pairs: int) -> tuple[list[int], list[int]]:
    """Radius and angle words of one piece, from AES alone."""
    message = b"".join(len(part).to_bytes(8, "little") + part for part in (b"cutlayer keystream", nonce))
    both = hashlib.blake2b(message, key=KEY, digest_size=44).digest()
    blocks = b"".join(both[32:] + (2 + i).to_bytes(4, "big") for i in range(pairs))
    words = np.frombuffer(encrypt_blocks(both[:32], np.frombuffer(blocks, np.uint8).reshape(-1, 16)).tobytes(), "<i8")
    return words[:pairs].tolist(), words[pairs:].tolist()


def by_hand(radii: list[mp.mpf], angles: list[int], scale: float) -> list[mp.mpf]:
    """Box-Muller with 60 digits: cosines, then sines, before they are rounded."""
    with mp.workdps(60):
        lengths = [scale * mp.sqrt(-2 * mp.log(u)) for u in radii]
        turns = [mp.pi * w / mp.mpf(2) ** 63 for w in angles]
        cosines = [r * mp.cos(t) for r, t in zip(lengths, turns, strict=True)]
        return cosines + [r * mp.sin(t) for r, t in zip(lengths, turns, strict=True)]


def uniform_of(word: int, fine: int | None) -> mp.mpf:
    whole = word if word >= 0 else -1 - word
    with mp.workdps(60):
        rest = mp.mpf(0.5) if fine is None else (abs(mp.mpf(fine)) + mp.mpf(0.5)) / mp.mpf(2) ** 63
        return (whole + rest) / mp.mpf(2) ** 63


def test_the_integers_are_box_mullers_with_many_digits() -> None:
    """Each is the nearest integer, but for a millionth: all four steps in float64, from words that AES gives."""
    scale, pairs = 2.0**19, 1500
    radii, angles = words_of(b"golden", pairs)
    exact = by_hand([uniform_of(word, None) for word in radii], angles, scale)
    values = integers((2 * pairs,), scale, b"golden")
    off = max(abs(value - number) for value, number in zip(values.tolist(), exact, strict=True))
    assert off < 0.5 + 1e-6


def test_the_stated_precision_holds() -> None:
    """Before rounding, no number is off by more than its radius times 2^-49.3: what the stated bound rests on.

    Rounding of the uniform moves the squared radius, so that short radii are less precise.
    """
    n = 1500
    words = torch.tensor(words_of(b"precision", n))
    radius, angle, cosines, sines = torch.empty(4, n, dtype=torch.float64)
    module._uniforms(words[0], radius, KEY, b"")
    radius.log_().mul_(-2.0).sqrt_()
    angle.copy_(words[1]).mul_(module._TO_ANGLE)
    for function, out in ((torch.cos, cosines), (torch.sin, sines)):
        module._project(radius, function(angle), torch.zeros((), dtype=torch.float64), out)
    exact = by_hand([uniform_of(word, None) for word in words[0].tolist()], words[1].tolist(), 1.0)
    for index, (value, number) in enumerate(zip(cosines.tolist() + sines.tolist(), exact, strict=True)):
        length = float(radius[index % n])
        assert abs(value - number) < length * 2.0**-49.3 + 2.0**-51 / length


def test_small_uniforms_are_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words below the limit get 64 further bits, of their own part of the stream; the largest radius is finite."""
    monkeypatch.setattr(module, "_COARSE", 2.0**62)
    scale, pairs = 2.0**19, 1000
    radii, angles = words_of(b"golden", pairs)
    fine = np.frombuffer(bytes(keystream(KEY, b"golden, refined 0", 8 * pairs)), "<i8").tolist()
    uniforms = [uniform_of(w, f if abs(w) < 2**62 else None) for w, f in zip(radii, fine, strict=True)]
    exact = by_hand(uniforms, angles, scale)
    values = integers((2 * pairs,), scale, b"golden")
    assert max(abs(value - number) for value, number in zip(values.tolist(), exact, strict=True)) < 0.5 + 1e-6
    out = torch.empty(4, dtype=torch.float64)
    monkeypatch.setattr(module, "uniform64", lambda *_: torch.full((4,), 2.0**-64, dtype=torch.float64))
    module._uniforms(torch.tensor([0, -1, 5, 2**63 - 1]), out, KEY, b"")
    assert out.tolist() == [2.0**-127, 2.0**-127, 5 * 2.0**-63, 1.0]
    assert math.sqrt(-2 * math.log(2.0**-127)) == pytest.approx(MAX_STANDARD_NORMAL, rel=1e-12)
    assert pytest.approx(13.27, abs=0.01) == MAX_STANDARD_NORMAL


def test_no_zero_is_negative() -> None:
    values = rounded_normal(KEY, b"zeros", (100_000,), 0.3 * STEP, STEP)
    zeros = values[values == 0]
    assert len(zeros) > 50_000
    assert not bool(torch.signbit(zeros).any())


@pytest.mark.parametrize("count", [0, 1, 2, 65_536, 65_537, 140_001])
def test_any_count_repeats_and_pieces_join(count: int) -> None:
    whole = rounded_normal(KEY, b"s", (count,), 1.0, 2.0**-18)
    assert whole.dtype == torch.float32
    pieces = [piece.clone() for piece in rounded_pieces(KEY, b"s", count, 1.0, 2.0**-18)]
    assert torch.equal(torch.cat([torch.zeros(0), *pieces]), whole)
    assert len(pieces) == math.ceil(math.ceil(count / 2) / 2**15)
    assert torch.equal(rounded_normal(KEY, b"s", (count, 1), 1.0, 2.0**-18)[:, 0], whole)


def test_the_number_of_threads_does_not_matter() -> None:
    before = torch.get_num_threads()
    try:
        drawn = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            drawn.append(rounded_normal(KEY, b"threads", (150_001,), 1.0, 2.0**-18))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*drawn)


@pytest.mark.parametrize(
    ("sigma", "step"), [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, 3.0), (1.0, 2.0**-20), (math.nan, 1.0)]
)
def test_what_float64_cannot_round_is_refused(sigma: float, step: float) -> None:
    with pytest.raises(ConfigError, match="at most 2\\^19 steps wide"):
        rounded_normal(KEY, b"", (2,), sigma, step)
