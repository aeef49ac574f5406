"""Every flipped bit of a file is refused, or changes nothing that a reader gets."""

from __future__ import annotations

import errno
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cutlayer.data.encoded import ColumnSpec, Encoded
from cutlayer.data.store import Store, write_store
from cutlayer.errors import DataError
from cutlayer.storage import checksum
from cutlayer.storage.tensor_file import read_tensors, write_tensors

TENSORS = {
    "weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "count": torch.tensor(7),
    "mask": torch.tensor([True, False]),
    "none": torch.zeros(0, 4),
}
HEADER = {"party": "bank", "state": json.dumps({"sent": {"labels": 3}})}


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def equal(found: dict[str, torch.Tensor]) -> bool:
    return found.keys() == TENSORS.keys() and all(
        found[name].dtype == tensor.dtype and torch.equal(found[name], tensor) for name, tensor in TENSORS.items()
    )


def test_tensors_come_back(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {**TENSORS, "turned": TENSORS["weight"].t()}, HEADER)
    tensors, header = read_tensors(tmp_path / "x")
    assert torch.equal(tensors.pop("turned"), TENSORS["weight"].t())
    assert equal(tensors)
    assert header == HEADER
    assert equal({name: t for name, t in load_file(tmp_path / "x").items() if name != "turned"}), "plain safetensors"


def test_tensors_are_written_in_the_format_of_the_library(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    tensors = {
        "wide": torch.rand(3, 5, generator=draw, dtype=torch.float64),
        "codes": torch.arange(7),
        "words": torch.from_numpy(np.arange(3, dtype=np.uint64)),
        "flags": torch.tensor([True, False, True]),
        "bytes": torch.arange(5, dtype=torch.uint8),
        "half": torch.rand(3, generator=draw).to(torch.bfloat16),
        "none": torch.zeros(0, 4),
        "part": torch.arange(12).view(3, 4)[:, 1:3],
    }
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "library", {"kind": "a"})
    write_tensors(tmp_path / "streamed", tensors, {"kind": "a"})
    assert (tmp_path / "streamed").stat().st_mode & 0o777 == 0o600
    assert read_tensors(tmp_path / "streamed")[1] == {"kind": "a"}
    own, expected = (load_file(tmp_path / name) for name in ("streamed", "library"))
    assert own.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert own[name].dtype == expected[name].dtype == tensor.dtype
        assert torch.equal(own[name], tensor)


def test_every_flipped_bit_of_a_tensor_file_is_refused_or_without_effect(tmp_path: Path) -> None:
    write_tensors(tmp_path / "whole", TENSORS, HEADER)
    content, refused = (tmp_path / "whole").read_bytes(), 0
    path = tmp_path / "flipped"
    for bit in range(len(content) * 8):
        path.write_bytes(flipped(content, bit))
        try:
            tensors, header = read_tensors(path)
        except ValueError:
            refused += 1
        else:
            assert equal(tensors), bit
            assert header == HEADER, bit
    assert refused > 0.99 * len(content) * 8


def test_a_file_without_a_checksum_is_refused(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "x", HEADER)
    with pytest.raises(ValueError, match="does not match its checksum"):
        read_tensors(tmp_path / "x")


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("cutlayer.storage.tensor_file.stream_tensors", full)
    with pytest.raises(OSError, match="No space left") as refused:
        write_tensors(tmp_path / "x", TENSORS, {})
    assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(tmp_path / "x"))
    assert [*tmp_path.iterdir()] == []


SEALED = {"epoch": 3, "loss": 0.1 + 0.2, "metrics": {"auc": math.nan}, "leak": {}, "name": "é\n", "best": True}


def test_a_sealed_object_comes_back() -> None:
    line = checksum.seal(SEALED)
    assert "\n" not in line
    back = checksum.unseal(line)
    assert repr(back) == repr(SEALED)


def test_every_flipped_bit_of_a_sealed_object_is_refused_or_without_effect() -> None:
    content = checksum.seal(SEALED).encode()
    for bit in range(len(content) * 8):
        try:
            found = checksum.unseal(flipped(content, bit))
        except ValueError:
            continue
        assert repr(found) == repr(SEALED), bit


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "{}", '{"checksum": 3}', "[" * 100_000, b"\xff\xfe"])
def test_other_texts_are_no_sealed_object(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        checksum.unseal(text)
    assert not isinstance(refused.value, RecursionError)


def test_every_flipped_bit_of_a_store_is_refused_or_without_effect(tmp_path: Path) -> None:
    """Within the numbers no other check can notice: every bit pattern is a number."""
    spec = ColumnSpec((3,), 2, ("kind",), ("x", "y"))
    encoded = Encoded(np.array([[0], [2]], np.int32), np.array([[1.5, -2.0], [0.0, 3.25]], np.float32))
    write_store(tmp_path, [encoded], spec, 2, "rows", {"encoder.json": '{"mean": 3.5}'})
    for path in sorted(tmp_path.iterdir()):
        content = path.read_bytes()
        for bit in range(0, len(content) * 8, 7):  # 7 meets every bit of a byte
            path.write_bytes(flipped(content, bit))
            try:
                store = Store.open(tmp_path)
            except DataError:
                continue
            assert (store.columns, store.fingerprint) == (spec, "rows"), (path, bit)
            assert np.array_equal(store.codes.numpy(), encoded.codes)
            assert np.array_equal(store.numbers.numpy(), encoded.numbers)
            assert (tmp_path / "encoder.json").read_text() == '{"mean": 3.5}'
        path.write_bytes(content)
    assert Store.open(tmp_path).rows == 2
