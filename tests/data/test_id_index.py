"""Look-ups of ids: against a dictionary, and with digests of one first half."""

from __future__ import annotations

import numpy as np
import pytest

from cutlayer.data.id_index import ABSENT, IdIndex

DRAW = np.random.default_rng(11)


def _drawn(count: int) -> np.ndarray:
    return DRAW.integers(0, 256, (count, 16), dtype=np.uint8)


@pytest.mark.parametrize("held", [0, 1, 2, 5, 3000])
def test_an_index_finds_what_a_dictionary_finds(held: int) -> None:
    digests = _drawn(held)
    rows = {digest.tobytes(): row for row, digest in enumerate(digests)}
    asked = np.concatenate([digests[DRAW.permutation(held)], _drawn(500), digests[: held // 2]])
    index = IdIndex(digests)
    assert len(index) == held
    assert index.find(asked).tolist() == [rows.get(digest.tobytes(), ABSENT) for digest in asked]
    assert index.find(asked[:0]).tolist() == []


@pytest.mark.parametrize("first", [0, 77, 255])
def test_digests_with_one_first_half_are_told_apart(first: int) -> None:
    digests = _drawn(200)
    digests[40:60, :8] = first
    digests[60, :] = 255
    asked = np.concatenate([digests, _drawn(20)])
    asked[200:210, :8] = first
    found = IdIndex(digests).find(asked)
    assert found[:200].tolist() == list(range(200))
    assert (found[200:] == ABSENT).all()
