"""AES as a source of noise: known answers, the derivation, and normals whose scale and tail are right."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cutlayer.errors import ConfigError
from cutlayer.kernels import noise

KEY = bytes(range(32))


def test_block_function_gives_the_fips_197_answer():
    plain = np.frombuffer(bytes.fromhex("00112233445566778899aabbccddeeff"), np.uint8).reshape(1, 16)
    assert noise.encrypt_blocks(KEY, plain).tobytes().hex() == "8ea2b7ca516745bfeafc49904b496089"


def test_blocks_are_encrypted_one_by_one():
    blocks = np.random.default_rng(0).integers(0, 256, (100, 16), dtype=np.uint8)
    together = noise.encrypt_blocks(KEY, blocks)
    alone = np.concatenate([noise.encrypt_blocks(KEY, blocks[i : i + 1]) for i in range(100)])
    np.testing.assert_array_equal(together, alone)
    assert noise.encrypt_blocks(KEY, blocks[:0]).shape == (0, 16)


def test_keystream_is_aes_of_a_running_counter():
    message = b"".join(len(part).to_bytes(8, "little") + part for part in (b"cutlayer keystream", b"nonce"))
    both = hashlib.blake2b(message, key=KEY, digest_size=48).digest()
    start = int.from_bytes(both[32:], "big")
    counters = b"".join(((start + i) % 2**128).to_bytes(16, "big") for i in range(5))
    blocks = np.frombuffer(counters, np.uint8).reshape(-1, 16)
    assert bytes(noise.keystream(KEY, b"nonce", 73)) == noise.encrypt_blocks(both[:32], blocks).tobytes()[:73]


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(16, 300))
def test_streams_repeat_and_never_meet(first, second, nbytes):
    assert noise.keystream(KEY, first, nbytes) == noise.keystream(KEY, first, nbytes)
    assert (noise.keystream(KEY, first, nbytes) == noise.keystream(KEY, second, nbytes)) == (first == second)


def test_parts_of_a_derivation_do_not_run_together():
    assert noise.derive(KEY, b"ab", b"c") != noise.derive(KEY, b"a", b"bc")
    assert noise.derive(KEY, b"a") != noise.derive(KEY, b"a", b"")
    assert noise.derive(bytes(100), b"a") != noise.derive(bytes(101), b"a")
    assert len(noise.derive(KEY, b"a", size=48)) == 48


def test_a_short_secret_is_refused():
    with pytest.raises(ConfigError, match="16 bytes or more, got 8 bytes"):
        noise.derive(bytes(8), b"x")


def test_uniforms_fill_the_unit_interval():
    u = noise.uniform64(KEY, b"u", 200_000)
    assert u.dtype == torch.float64
    assert float(u.min()) > 0
    assert float(u.max()) <= 1
    assert stats.kstest(u.numpy(), "uniform").pvalue > 1e-3
    assert noise.uniform64(KEY, b"u", 0).shape == (0,)


def test_uniforms_reach_from_their_smallest_value_to_one():
    ends = noise._uniform(torch.tensor([0, -(2**63), 2**63 - 1, -1]))
    assert ends.tolist() == [2.0**-63, 2.0**-63, 1.0, 1.0]


def fits_standard_normal(values):
    """Whether mean, variance and shape are those of N(0, 1), at the false-alarm rate 1e-3 of each."""
    n = len(values)
    return (
        abs(values.mean()) * n**0.5 < 3.3
        and abs(values.var() - 1) * (n / 2) ** 0.5 < 3.3
        and stats.kstest(values, "norm").pvalue > 1e-3
    )


def test_normals_have_the_right_scale_and_wrong_scales_are_seen():
    values = noise.standard_normal(KEY, b"n", (300, 1001)).double().numpy().ravel()
    assert fits_standard_normal(values)
    assert not fits_standard_normal(values * 2 / 3)
    assert not fits_standard_normal(values * 3 / 2)


def test_normals_have_the_right_tail():
    values = noise.standard_normal(KEY, b"tail", (1_500_000,)).numpy()
    for limit in (3.0, 4.0, 4.5):
        low, high = stats.binom.interval(1 - 1e-4, len(values), 2 * stats.norm.sf(limit))
        assert low <= (np.abs(values) > limit).sum() <= high


def test_the_two_normals_of_a_pair_are_independent():
    values = noise.standard_normal(KEY, b"pairs", (2, 30_000)).double()
    assert abs(float(torch.corrcoef(values)[0, 1])) < 4 / 30_000**0.5
    assert abs(float(torch.corrcoef(values**2)[0, 1])) < 4 / 30_000**0.5


def test_the_longest_radius_is_finite():
    out = torch.empty(4)
    noise._box_muller(torch.tensor([0, 2**63 - 1, 0, 0]), out)
    assert float(out[0]) == pytest.approx(noise.TAIL_SIGMA)
    assert pytest.approx(9.346, abs=1e-3) == noise.TAIL_SIGMA
    assert float(out[1]) == 0.0
    assert bool(out.isfinite().all())


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (7, 0), (2, 3, 4), (65536,), (65537,), (131073,)])
def test_any_shape_repeats(shape):
    values = noise.standard_normal(KEY, b"s", shape)
    assert values.dtype == torch.float32
    assert values.shape == shape
    assert torch.equal(values, noise.standard_normal(KEY, b"s", shape))
    assert bool((values != 0).all())


def test_another_key_or_nonce_gives_other_noise():
    base = noise.standard_normal(KEY, b"a", (1000,))
    for other in (noise.standard_normal(KEY, b"b", (1000,)), noise.standard_normal(bytes(32), b"a", (1000,))):
        assert abs(float(torch.corrcoef(torch.stack([base, other]))[0, 1])) < 0.15
