"""Look-ups of ids that are whole numbers, at their limits."""

from __future__ import annotations

import numpy as np
import pytest

from cutlayer_serve.number_index import NumberIndex

DRAW = np.random.default_rng(11)
LOWEST, HIGHEST = -(2**63), 2**63 - 1


def _drawn(count: int) -> np.ndarray:
    return DRAW.integers(0, 256, (count, 16), dtype=np.uint8)


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
