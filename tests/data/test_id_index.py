"""Look-ups of ids: against a dictionary, with digests of one first half, and whole numbers at their limits."""

from __future__ import annotations

import numpy as np
import pytest

from cutlayer.data.id_index import ABSENT, IdIndex, NumberIndex

DRAW = np.random.default_rng(11)
LOWEST, HIGHEST = -(2**63), 2**63 - 1


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


@pytest.mark.parametrize(
    "numbers",
    [
        np.arange(5, 2000),
        np.arange(LOWEST, LOWEST + 300),
        np.arange(HIGHEST - 299, HIGHEST),
        np.append(DRAW.integers(-(2**60), 2**60, 500), [LOWEST, HIGHEST]),
        np.array([7]),
    ],
    ids=["dense", "lowest", "highest", "sparse", "one"],
)
def test_whole_numbers_are_found_among_dense_and_sparse_ones(numbers: np.ndarray) -> None:
    numbers = DRAW.permutation(numbers.astype(np.int64))
    digests = _drawn(len(numbers))
    index = NumberIndex(numbers, digests)
    order = DRAW.permutation(len(numbers))[:300]
    found = index.find(numbers[order].tolist())
    assert found is not None
    assert found[1].tolist() == order.tolist()
    assert (found[0] == digests[order]).all()
    for unknown in {LOWEST, LOWEST + 1, -1, 0, HIGHEST - 1, HIGHEST, int(numbers.max()) + 1} - {*numbers.tolist()}:
        if unknown <= HIGHEST:
            assert index.find([int(numbers[0]), unknown]) is None


def test_other_ids_than_different_whole_numbers_are_left_to_their_digests() -> None:
    index = NumberIndex(np.arange(10), _drawn(10))
    for ids in ([1, 1], ["1"], [1, "2"], [True], [2.0]):
        assert index.find(ids) is None
