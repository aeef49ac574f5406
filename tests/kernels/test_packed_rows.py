"""Rows in fewer bytes: sizes, exactness, and the expectation of random rounding."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch
from torch import Tensor

from cutlayer.kernels.rows.packed_rows import Form, pack_rows, row_bytes, unpack_rows, width_of

FORMS: tuple[Form, ...] = ("float16", "bfloat16", "int8")
STEP = {"float16": 2**-11, "bfloat16": 2**-8, "int8": 1 / 127}


def halves(count: int) -> Tensor:
    return torch.full((count,), 0.5)


def rows(scale: float = 1.0) -> Tensor:
    return scale * torch.randn(64, 9, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e-7, 1e30])
def test_every_number_is_within_a_step_of_its_row_whatever_its_size(form: Form, scale: float) -> None:
    x = rows(scale)
    packed = pack_rows(x, form, halves)
    assert packed.shape == (64, row_bytes(form, 9))
    assert packed.dtype == torch.uint8
    back = unpack_rows(packed, form)
    assert back.dtype == torch.float32
    off = (back - x).abs() / x.abs().amax(dim=1, keepdim=True)
    assert float(off.max()) <= STEP[form]
    if form == "bfloat16":
        assert torch.equal(back, x.to(torch.bfloat16).float())


@pytest.mark.parametrize("form", FORMS)
def test_numbers_that_fit_are_exact(form: Form) -> None:
    x = torch.tensor([[0.0, 0.0, 0.0], [127.0, -127.0, 1.0], [0.0, 127.0, -64.0]])
    assert torch.equal(unpack_rows(pack_rows(x, form, halves), form), x)
    none = torch.zeros(0, 3)
    assert unpack_rows(pack_rows(none, form, halves), form).shape == (0, 3)


def test_the_bytes_of_a_row_are_those_of_numpy() -> None:
    """Read by another implementation: little-endian, scale first."""
    x = torch.tensor([[3.0, -0.5, 0.25]])
    raw = pack_rows(x, "float16", halves).numpy().tobytes()
    assert struct.unpack("<f", raw[:4]) == (4.0,)
    assert (np.frombuffer(raw[4:], "<f2") * 4.0).tolist() == [3.0, -0.5, 0.25]
    raw = pack_rows(x, "int8", halves).numpy().tobytes()
    assert struct.unpack("<f", raw[:4])[0] == pytest.approx(3 / 127)
    assert np.frombuffer(raw[4:], "i1").tolist() == [127, -21, 11]


def test_random_rounding_has_the_number_as_its_expectation() -> None:
    x, draw = rows(), torch.Generator().manual_seed(2)
    many = torch.stack(
        [unpack_rows(pack_rows(x, "int8", lambda n: torch.rand(n, generator=draw)), "int8") for _ in range(1000)]
    )
    step = x.abs().amax(dim=1, keepdim=True) / 127
    assert float(((many.mean(dim=0) - x) / step).abs().max()) < 5 * 0.5 / 1000**0.5
    nearest = unpack_rows(pack_rows(x, "int8", halves), "int8")
    assert float(((nearest - x) / step).abs().max()) > 0.4  # where rounding to the nearest would be off


def test_widths_of_no_row_are_none() -> None:
    assert [width_of("float16", n) for n in (3, 4, 5, 6)] == [None, None, None, 1]
    assert [width_of("int8", n) for n in (3, 4, 5)] == [None, None, 1]
    assert [width_of("bfloat16", n) for n in (0, 1, 2)] == [None, None, 1]
