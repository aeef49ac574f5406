"""Split of the common rows into training, validation and test rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutlayer.config import SplitConfig
from cutlayer.data.ids import Digests, keyed_hashes
from cutlayer.data.shuffling import permutation
from cutlayer.data.streams import RandomStream
from cutlayer.errors import DataError
from cutlayer.lazy import Tensor, torch
from cutlayer.storage.row_arrays import chosen_rows, chunks_of, computed_rows, row_array

RowNumbers = npt.NDArray[np.int64]
PARTS = ("train", "validation", "test")
"""Names of the parts; their index is the code of a row's part."""


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers in the common order, int64 and ascending; every row is in exactly one of the three.

    Attributes:
        train: Rows that models, encoders and scales are fitted on.
        validation: Rows that decide early stopping and the best checkpoint; may be empty.
        test: Rows that the report's metrics are computed on; may be empty.
    """

    train: RowNumbers
    validation: RowNumbers
    test: RowNumbers

    @classmethod
    def from_codes(cls, codes: Tensor) -> Split:
        """The split by the part of every row.

        Args:
            codes: Indices in `PARTS`, uint8 (n,).
        """
        plain = codes.numpy()

        def rows_of(code: int) -> RowNumbers:
            return chosen_rows(len(plain), np.int64, lambda part: part.start + np.flatnonzero(plain[part] == code))

        return cls(*(rows_of(code) for code in range(len(PARTS))))

    @property
    def codes(self) -> Tensor:
        """Part of every row as its index in `PARTS`, uint8 (n,)."""
        codes = row_array(len(self.train) + len(self.validation) + len(self.test), np.uint8)
        for code, rows in enumerate((self.train, self.validation, self.test)):
            for start, end in chunks_of(len(rows)):
                codes[rows[start:end]] = code
        return torch.from_numpy(codes)

    def part(self, name: str) -> Tensor:
        """Row numbers of `train`, `validation` or `test` as a tensor, int64."""
        return torch.from_numpy({"train": self.train, "validation": self.validation, "test": self.test}[name])


def split_rows(n: int, split: SplitConfig, seed: int) -> Split:
    """Divide the n common rows; a pure function of its arguments, so every party computes the same.

    Each share is rounded down, but a share above 0 gets at least one row.

    Raises:
        DataError: No row is left to train on.

    >>> parts = split_rows(10, SplitConfig(test=0.2, validation=0.1), seed=0)
    >>> len(parts.train), len(parts.validation), len(parts.test)
    (7, 1, 2)
    """
    test, validation = _sizes(n, split)
    order = permutation(n, seed, RandomStream.SPLIT)
    held_out = test + validation
    parts = order[held_out:], order[test:held_out], order[:test]
    for part in parts:
        part.sort()  # in place, since a large order is mapped from a file
    return Split(*parts)


def split_by_id(digests: Digests, split: SplitConfig, seed: int) -> Split:
    """Draw the part of each row from its id and the seed: a row is in the same part whichever other rows there are.

    So parties that share some rows only agree on the part of each that they share, and no party can conclude from the
    parts of its rows which further rows another party has.

    Args:
        digests: Digests of the ids, uint8 (n, 16).
        split: Shares of the parts, which hold on average.
        seed: Seed of the draws.
    """
    key = seed.to_bytes(8, "little", signed=True)
    words = keyed_hashes(digests, key, 8).view("<u8")[:, 0]

    def drawn(part: slice) -> npt.NDArray[np.uint8]:
        uniform = words[part] / 2.0**64
        codes: npt.NDArray[np.uint8] = (uniform < split.test + split.validation).astype(np.uint8)
        return codes + (uniform < split.test)

    return Split.from_codes(torch.from_numpy(computed_rows(len(digests), np.uint8, drawn)))


def check_no_empty_part(parts: Split, split: SplitConfig) -> None:
    """Refuse a split whose parts were drawn row by row, and of which one has no row.

    Raises:
        DataError: There is no training row, or no row of a held-out part with a share.
    """
    shares = {"train": 1.0, "validation": split.validation, "test": split.test}
    empty = [name for name, share in shares.items() if share and not len(parts.part(name))]
    if empty:
        got = f"none in {' and '.join(empty)}"
        raise DataError.expected(
            "a row in each part of the split", got, "change train.seed or the shares of train.split"
        )


def split_stratified(classes: RowNumbers, split: SplitConfig, order: RowNumbers) -> Split:
    """Divide the rows so that every part has the same share of each class, up to one row.

    The parts have the sizes of `split_rows`. Given the numbers of the classes, every such division is equally likely
    under a random order; so the order must be known to nobody from whom the classes are hidden.

    Args:
        classes: Class of each row, from 0 without gaps, (n,).
        split: Shares of the parts.
        order: Order in which the rows of each class are taken, a permutation of 0..n-1.

    Raises:
        DataError: No row is left to train on.

    >>> classes = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    >>> parts = split_stratified(classes, SplitConfig(test=0.4, validation=0), np.arange(10))
    >>> parts.test.tolist()
    [0, 1, 5, 6]
    """
    test, validation = _sizes(len(classes), split)
    counts = np.bincount(classes)
    held_out = _apportioned(counts, test + validation)
    tested = _apportioned(held_out, test)
    codes, taken = row_array(len(order), np.uint8), np.zeros(len(counts), np.int64)
    for start, end in chunks_of(len(order)):
        rows = order[start:end]
        rows = rows[np.argsort(classes[rows], kind="stable")]  # class by class, within each as before
        row_classes = classes[rows]
        sizes = np.bincount(classes[rows], minlength=len(counts))
        rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + taken[row_classes]
        codes[rows] = (rank < held_out[row_classes]).astype(np.uint8) + (rank < tested[row_classes])
        taken += sizes
    return Split.from_codes(torch.from_numpy(codes))


def split_by_values(values: npt.NDArray[np.float64], split: SplitConfig) -> Split:
    """Test on the rows with the largest values and validate on those before them; equal values stay together.

    The cuts are those between two values that are nearest to the stated shares.

    Args:
        values: Finite values, (n,).
        split: Shares of the parts.

    Raises:
        DataError: Too few different values, or so many rows of one value that less than half of the training rows that
            the shares ask for would be left.

    >>> parts = split_by_values(np.array([2020.0, 2023, 2021, 2022, 2020]), SplitConfig(test=0.2, validation=0.2))
    >>> parts.train.tolist(), parts.validation.tolist(), parts.test.tolist()
    ([0, 2, 4], [3], [1])
    """
    test, validation = _sizes(len(values), split)
    ascending = computed_rows(len(values), np.float64, lambda part: values[part])
    ascending.sort()
    # Numbers of rows before a change of the value.
    cuts = chosen_rows(
        len(values) - 1,
        np.int64,
        lambda part: part.start + 1 + np.flatnonzero(np.diff(ascending[part.start : part.stop + 1])),
    )
    first_test = _nearest_cut(cuts, len(values) - test) if test else len(values)
    cuts = cuts[: np.searchsorted(cuts, first_test)]
    first_held_out = _nearest_cut(cuts, first_test - validation) if validation else first_test

    def piece(part: slice) -> npt.NDArray[np.uint8]:
        part_codes: npt.NDArray[np.uint8] = (values[part] >= ascending[first_held_out]).astype(np.uint8)
        if test:
            part_codes += values[part] >= ascending[first_test]
        return part_codes

    codes = torch.from_numpy(computed_rows(len(values), np.uint8, piece))
    parts = Split.from_codes(codes)
    check_part_sizes(parts, split)
    return parts


def check_part_sizes(parts: Split, split: SplitConfig) -> None:
    """Compare the sizes of a split that was not drawn from the seed with the shares that the job states.

    Raises:
        DataError: A stratified part of another size; a held-out part without rows, or with some where the share is 0;
            or, in a split by a column, less than half of the training rows that the shares ask for.
    """
    got = (len(parts.test), len(parts.validation))
    n = len(parts.train) + sum(got)
    wanted = _sizes(n, split)
    train = n - sum(wanted)
    exact = split.stratify and got != wanted
    if exact or [bool(size) for size in got] != [bool(size) for size in wanted] or 2 * len(parts.train) < train:
        sizes = f"about {train:,} training, {wanted[1]:,} validation and {wanted[0]:,} test rows"
        stated = f"{len(parts.train):,}, {got[1]:,} and {got[0]:,}"
        raise DataError.expected(sizes, stated, "do most rows have the same value in the column of train.split.by?")


def _sizes(n: int, split: SplitConfig) -> tuple[int, int]:
    """Numbers of test and validation rows of n rows."""
    test, validation = (max(int(n * share), int(share > 0)) for share in (split.test, split.validation))
    if n - test - validation < 1:
        got = f"{n} common rows for {test} test and {validation} validation rows"
        raise DataError.expected("a row to train on", got, "lower train.split")
    return test, validation


def _apportioned(counts: RowNumbers, total: int) -> RowNumbers:
    """A total divided in proportion to counts, by the largest remainders; no part exceeds its count."""
    shares, remainders = np.divmod(counts * total, max(int(counts.sum()), 1))
    shares[np.argsort(-remainders, kind="stable")[: total - int(shares.sum())]] += 1
    return shares


def _nearest_cut(cuts: RowNumbers, wanted: int) -> int:
    """The cut that is nearest to a number of rows.

    Raises:
        DataError: There is none.
    """
    if not len(cuts):
        remedy = "name a column with more values in train.split.by, or set validation: 0"
        raise DataError.expected("a different value for each part of the split", "fewer values", remedy)
    after = min(int(np.searchsorted(cuts, wanted)), len(cuts) - 1)
    before = max(after - 1, 0)
    return int(min(cuts[before], cuts[after], key=lambda cut: abs(cut - wanted)))
