"""AES as a source of noise: known answers, the derivation, and normals whose scale and tail are right."""

import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cutlayer.errors import ConfigError
from cutlayer.kernels.noise import aes as noise

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


def test_keystream_is_aes_of_the_counter_blocks_of_gcm():
    message = b"".join(len(part).to_bytes(8, "little") + part for part in (b"cutlayer keystream", b"nonce"))
    both = hashlib.blake2b(message, key=KEY, digest_size=44).digest()
    # The block of counter 1 makes the tag; the stream begins with 2.
    counters = b"".join(both[32:] + (2 + i).to_bytes(4, "big") for i in range(5))
    blocks = np.frombuffer(counters, np.uint8).reshape(-1, 16)
    assert bytes(noise.keystream(KEY, b"nonce", 73)) == noise.encrypt_blocks(both[:32], blocks).tobytes()[:73]


def test_pieces_of_words_are_the_keystream():
    pieces = [piece.clone() for piece in noise.word_pieces(KEY, b"nonce", 7, 3, 2)]
    assert [len(piece) for piece in pieces] == [6, 6, 6, 3]
    assert torch.cat(pieces).numpy().tobytes() == bytes(noise.keystream(KEY, b"nonce", 84))


@pytest.mark.parametrize("count", [1, 5, 2048, 5000])
def test_a_buffer_of_words_is_filled_with_the_keystream(count):
    words, refill = noise.word_buffer(KEY, b"nonce", count)
    filled = b""
    for _ in range(3):
        refill()
        filled += words.numpy().tobytes()
    assert filled == bytes(noise.keystream(KEY, b"nonce", 24 * count))


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(16, 300))
def test_streams_repeat_and_never_meet(first, second, nbytes):
    assert noise.keystream(KEY, first, nbytes) == noise.keystream(KEY, first, nbytes)
    assert (noise.keystream(KEY, first, nbytes) == noise.keystream(KEY, second, nbytes)) == (first == second)


def test_parts_of_a_derivation_do_not_run_together():
    assert noise.derive(KEY, b"ab", b"c") != noise.derive(KEY, b"a", b"bc")
    assert noise.derive(KEY, b"a") != noise.derive(KEY, b"a", b"")
    assert noise.derive(bytes(100), b"a") != noise.derive(bytes(101), b"a")
    assert len(noise.derive(KEY, b"a", size=48)) == 48


def test_a_subkey_is_blake2b_keyed_with_the_secret_or_with_the_digest_of_a_longer_one():
    """As hashlib has it, whose keys are of 64 bytes at most: runs would draw other noise under another derivation."""
    part = (3).to_bytes(8, "little") + b"abc"
    for secret in (bytes(range(64)), bytes(range(65))):
        key = secret if len(secret) <= 64 else hashlib.blake2b(secret).digest()
        assert noise.derive(secret, b"abc") == hashlib.blake2b(part, key=key, digest_size=32).digest()


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
    ends = noise._to_uniform(torch.tensor([0, -(2**63), 2**63 - 1, -1, 3 << 40]).double())
    assert ends.tolist() == [2.0**-64, 1.0, 1.0, 3 * 2.0**-64, (6 * 2**40 + 1) * 2.0**-64]


def ghash_tag(key, content):
    """GMAC under the nonce of zeros, by the definition: bit by bit in the field, over the padded blocks."""

    def multiplied(x, y):
        z = 0
        for bit in range(127, -1, -1):
            z ^= y * (x >> bit & 1)
            y = y >> 1 ^ (0xE1 << 120) * (y & 1)
        return z

    def aes(block):
        return noise.encrypt_blocks(key, np.frombuffer(block, np.uint8).reshape(1, 16)).tobytes()

    h, tag = int.from_bytes(aes(bytes(16)), "big"), 0
    padded = content + bytes(-len(content) % 16) + (8 * len(content)).to_bytes(8, "big") + bytes(8)
    for start in range(0, len(padded), 16):
        tag = multiplied(tag ^ int.from_bytes(padded[start : start + 16], "big"), h)
    return (tag ^ int.from_bytes(aes(bytes(12) + b"\0\0\0\1"), "big")).to_bytes(16, "big")


@pytest.mark.parametrize("count", [0, 1, 4, 7, 300])
def test_a_fingerprint_is_the_gmac_of_the_bytes(count, monkeypatch):
    content = torch.randn(count, generator=torch.Generator().manual_seed(0))
    expected = ghash_tag(KEY, content.numpy().tobytes())
    assert noise.fingerprint(KEY, content) == expected
    monkeypatch.setattr(noise, "_MAX_UPDATE", 64)
    assert noise.fingerprint(KEY, content) == expected


def test_a_fingerprint_sees_every_bit_and_the_key():
    content = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
    seen = {noise.fingerprint(KEY, content), noise.fingerprint(bytes(32), content)}
    for entry in (0, 599, 1199):
        for bit in (0, 31):
            other = content.clone()
            other.view(-1).view(torch.int32)[entry] ^= torch.tensor(1 << bit).to(torch.int32)
            seen.add(noise.fingerprint(KEY, other))
    assert len(seen) == 8
    assert noise.fingerprint(KEY, content.T) == noise.fingerprint(KEY, content.T.contiguous())
    assert len(noise.fingerprint(KEY, content.to(torch.bfloat16))) == 16


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
    values = noise.standard_normal(KEY, b"pairs", (2, 30_000)).double()  # one piece: cosines, then sines
    assert abs(float(torch.corrcoef(values)[0, 1])) < 4 / 30_000**0.5
    assert abs(float(torch.corrcoef(values**2)[0, 1])) < 4 / 30_000**0.5


def box_muller(radii, angles):
    """The words' normals, and the same from float64 all through."""
    m = len(radii)
    words = torch.cat([torch.tensor(radii).view(torch.int32), torch.tensor(angles, dtype=torch.int32)])
    out = torch.empty(2 * m)
    noise._box_muller(words, out, torch.empty(m, dtype=torch.float64), torch.empty(m), torch.empty(m))
    uniform = (np.abs(np.array(radii, dtype=np.float64)) + 0.5) * 2.0**-63
    radius, angle = np.sqrt(-2 * np.log(uniform)), (np.array(angles) + 0.5) * math.pi * 2.0**-31
    return out.double().numpy(), np.concatenate([radius * np.cos(angle), radius * np.sin(angle)]), radius


def test_the_longest_radius_is_finite():
    own, _, _ = box_muller([0, 2**63 - 1], [0, 0])
    assert own[0] == pytest.approx(noise.TAIL_SIGMA)
    assert pytest.approx(9.419, abs=1e-3) == noise.TAIL_SIGMA
    assert own[1] == 0.0
    assert np.isfinite(own).all()


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)), min_size=1, max_size=40))
def test_normals_are_box_muller_to_the_stated_precision(pairs):
    own, exact, radius = box_muller(*map(list, zip(*pairs, strict=True)))
    assert (np.abs(own - exact) <= 4e-7 * np.tile(radius, 2) + 1e-12).all()


def test_laplace_numbers_have_the_right_scale_and_wrong_scales_are_seen():
    values = noise.standard_laplace(KEY, b"l", (300, 1001)).double().numpy().ravel()
    assert stats.kstest(values, "laplace").pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2, 2**0.5):
        assert stats.kstest(wrong * values[:20_000], "laplace").pvalue < 1e-12
    for limit in (4.0, 8.0, 10.0):
        low, high = stats.binom.interval(1 - 1e-4, len(values), math.exp(-limit))
        assert low <= (np.abs(values) > limit).sum() <= high


def test_the_largest_laplace_number_is_finite():
    words, out = torch.tensor([0, -1, 2**63 - 1, -(2**62), 2**62]), torch.empty(5)
    noise._inverse_laplace(words.view(torch.int32), out, *(torch.empty(5, dtype=torch.float64) for _ in range(2)))
    assert out.abs().tolist() == pytest.approx(
        [noise.TAIL_LAPLACE, noise.TAIL_LAPLACE - math.log(3), 0.0, math.log(2), math.log(2)]
    )
    assert pytest.approx(44.36, abs=1e-2) == noise.TAIL_LAPLACE
    assert out.sign().tolist()[1:] == [-1, 0, -1, 1]


@pytest.mark.parametrize("draw", [noise.standard_normal, noise.standard_laplace])
def test_the_number_of_threads_does_not_matter(draw):
    before = torch.get_num_threads()
    try:
        drawn = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            drawn.append(draw(KEY, b"threads", (150_001,)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*drawn)


@pytest.mark.parametrize("draw", [noise.standard_normal, noise.standard_laplace])
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (7, 0), (2, 3, 4), (65536,), (65537,), (131073,)])
def test_any_shape_repeats(shape, draw):
    values = draw(KEY, b"s", shape)
    assert values.dtype == torch.float32
    assert values.shape == shape
    assert torch.equal(values, draw(KEY, b"s", shape))
    assert bool((values != 0).all())


def test_another_key_or_nonce_gives_other_noise():
    base = noise.standard_normal(KEY, b"a", (1000,))
    for other in (noise.standard_normal(KEY, b"b", (1000,)), noise.standard_normal(bytes(32), b"a", (1000,))):
        assert abs(float(torch.corrcoef(torch.stack([base, other]))[0, 1])) < 0.15
