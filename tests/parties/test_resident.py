"""Rows on a party's device: gathered there, equal to those of the CPU, and as many as fit."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from cutlayer.data.encoded import ColumnSpec, Encoded
from cutlayer.data.images import ImageSpec
from cutlayer.data.store import Store
from cutlayer.parties.compute import resident
from cutlayer.parties.compute.device import CPU
from cutlayer.parties.compute.resident import ResidentRows, fits_on_device
from tests.parties.counted import Counted
from tests.pretended import ELSEWHERE, Elsewhere, pretending

ROWS = 12
BATCHES = torch.randperm(ROWS, generator=torch.Generator().manual_seed(0)).split(5)


def store(*, images: bool = False, numbered: bool = False) -> Store:
    draw = np.random.default_rng(0)
    codes, numbers = draw.integers(0, 3, (ROWS, 2), dtype=np.int32), draw.standard_normal((ROWS, 3), dtype=np.float32)
    pixels = draw.integers(0, 256, (ROWS, 1, 2, 2), dtype=np.uint8) if images else None
    spec = ImageSpec(channels=1, height=2, width=2, dtype="uint8", mean=(0.5,), deviation=(0.2,)) if images else None
    columns = ColumnSpec((3, 3), 3, ("a", "b"), ("x", "y", "z"), spec)
    whole = Store(Encoded(codes, numbers, pixels), columns)
    return whole.numbered(torch.arange(ROWS).sub(2).clamp_min(-1)) if numbered else whole


@pytest.fixture
def there() -> Iterator[ResidentRows]:
    with pretending():
        yield ResidentRows(ELSEWHERE)


def here(tensor: Tensor) -> Tensor:
    assert isinstance(tensor, Elsewhere)
    return tensor.here


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("images", [False, True])
def test_a_batch_is_that_of_the_cpu(there: ResidentRows, images: bool, numbered: bool) -> None:
    whole = store(images=images, numbered=numbered)
    for rows in BATCHES:
        for found, expected in zip(there.gather(whole, rows), whole.gather(rows), strict=True):
            assert torch.equal(here(found), expected)


def test_only_the_first_batch_of_an_epoch_copies(there: ResidentRows) -> None:
    whole, labels = store(), torch.arange(ROWS)
    copies = []
    for rows in (*BATCHES, *BATCHES[0].split(2), BATCHES[0].clone()):
        with Counted() as counted:
            there.gather(whole, rows)
            there.take("labels", labels, rows)
        copies.append(counted.copies)
        assert not counted.reads.total()
        assert counted.operations["index_select"] == 3
    assert copies == [4, 0, 0, 0, 0, 0, 1]  # codes, numbers, labels and row numbers; then new row numbers


def test_a_tensor_that_was_changed_or_replaced_is_copied_again(there: ResidentRows) -> None:
    labels, rows = torch.arange(ROWS), BATCHES[0]
    there.take("labels", labels, rows)
    labels[rows] += 1
    assert torch.equal(here(there.take("labels", labels, rows)), rows + 1)
    assert torch.equal(here(there.take("labels", labels * 2, rows)), 2 * (rows + 1))


def test_what_does_not_fit_is_gathered_on_the_cpu() -> None:
    labels, rows = torch.arange(ROWS), BATCHES[0]
    with pretending(), mock.patch.object(resident, "free_bytes", return_value=2 * labels.nbytes + 2):
        there = ResidentRows(ELSEWHERE)
        for name, copies in (("first", [2, 0]), ("second", [1, 1])):
            for expected in copies:
                with Counted() as counted:
                    assert torch.equal(here(there.take(name, labels, rows)), rows)
                assert counted.copies == expected


def test_the_size_decides() -> None:
    assert fits_on_device(50, 100)
    assert not fits_on_device(51, 100)
    assert not fits_on_device(30, 100, taken=30)
    assert resident.free_bytes(CPU) == 0


def test_on_the_cpu_nothing_is_copied() -> None:
    whole, rows = store(), BATCHES[0]
    with Counted() as counted:
        codes, _ = ResidentRows(CPU).gather(whole, rows)
    assert torch.equal(codes, whole.codes[rows])
    assert dict(counted.operations) == {"index_select": 2}
