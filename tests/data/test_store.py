from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cutlayer.data.encoded import ColumnSpec, Encoded
from cutlayer.data.store import Store, write_store
from cutlayer.errors import DataError

SPEC = ColumnSpec((5, 9), 3, ("a", "b"), ("x", "y", "z"))


def encoded(rows: int, spec: ColumnSpec = SPEC, seed: int = 0) -> Encoded:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, spec.cardinalities or 1, (rows, len(spec.cardinalities)), dtype=np.int32)
    return Encoded(codes, rng.normal(size=(rows, spec.numeric)).astype(np.float32))


def chunked(whole: Encoded, size: int = 7) -> Iterator[Encoded]:
    for start in range(0, len(whole), size):
        yield Encoded(whole.codes[start : start + size], whole.numbers[start : start + size])


@pytest.mark.parametrize("spec", [SPEC, ColumnSpec((4,), 0, ("a",)), ColumnSpec((), 2, (), ("x", "y"))])
def test_what_is_written_is_gathered(tmp_path: Path, spec: ColumnSpec) -> None:
    whole = encoded(50, spec)
    write_store(tmp_path / "s", chunked(whole), spec, 50, "print")
    rows = torch.tensor([49, 0, 7, 7])
    for store in (Store.open(tmp_path / "s"), Store(whole, spec)):
        codes, numbers = store.gather(rows)
        np.testing.assert_array_equal(codes.numpy(), whole.codes[rows.numpy()])
        np.testing.assert_array_equal(numbers.numpy(), whole.numbers[rows.numpy()])
        assert (codes.dtype, numbers.dtype) == (torch.int32, torch.float32)
        assert store.rows == 50
        assert store.columns == spec
        assert store.bytes == 50 * 4 * (len(spec.cardinalities) + spec.numeric)
    assert Store.open(tmp_path / "s").fingerprint == "print"
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["codes.npy", "numbers.npy", "store.json"]


def test_the_file_cannot_be_changed_through_a_store(tmp_path: Path) -> None:
    write_store(tmp_path, [encoded(5)], SPEC, 5)
    before = (tmp_path / "codes.npy").read_bytes()
    store = Store.open(tmp_path)
    store.codes.add_(1)
    assert (tmp_path / "codes.npy").read_bytes() == before


def test_interrupted_writing_leaves_the_store_before(tmp_path: Path) -> None:
    write_store(tmp_path, [encoded(5)], SPEC, 5)

    def failing() -> Iterator[Encoded]:
        yield encoded(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path, failing(), SPEC, 5)
    assert Store.open(tmp_path).rows == 5
    assert not list(tmp_path.glob("*.partial"))


def test_chunks_must_fit(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected 6 rows, got 5"):
        write_store(tmp_path, [encoded(5)], SPEC, 6)
    wrong = encoded(5)
    wrong.codes[3, 1] = 9
    with pytest.raises(DataError, match=r"codes of column 'b' in 0\.\.8"):
        write_store(tmp_path, [wrong], SPEC, 5)


def damage(folder: Path, how: str) -> None:
    codes, index = folder / "codes.npy", folder / "store.json"
    if how == "truncated":
        codes.write_bytes(codes.read_bytes()[:-8])
    elif how == "empty":
        codes.write_bytes(b"")
    elif how == "gone":
        codes.unlink()
    elif how == "other rows":
        np.save(codes, encoded(4).codes)
    elif how == "other type":
        np.save(codes, encoded(5).codes.astype(np.int64))
    elif how == "pickle":
        codes.write_bytes(pickle.dumps([1, 2]))
    elif how == "objects":
        np.save(codes, np.array([[None] * 2] * 5), allow_pickle=True)
    elif how == "codes":
        content = encoded(5).codes
        content[4, 0] = 1_000_000
        np.save(codes, content)
    elif how == "foreign":
        index.write_text('{"format": "another"}')
    elif how == "index":
        index.write_bytes(index.read_bytes()[:-9])


@pytest.mark.parametrize(
    "how",
    [
        "truncated",
        "empty",
        "gone",
        "other rows",
        "other type",
        "pickle",
        "objects",
        "codes",
        "foreign",
        "index",
    ],
)
def test_damaged_and_foreign_stores(tmp_path: Path, how: str) -> None:
    write_store(tmp_path, [encoded(5)], SPEC, 5)
    damage(tmp_path, how)
    with pytest.raises(DataError, match=f"store {tmp_path}: expected"):
        Store.open(tmp_path)
