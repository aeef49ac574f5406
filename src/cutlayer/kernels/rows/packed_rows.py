"""Rows of float32 numbers in fewer bytes: two bytes or one for each number, and a scale for each row where needed.

    float16   scale (float32, a power of two), then each number over it as float16: 11 significant bits
    bfloat16  each number as bfloat16: 8 significant bits
    int8      scale (float32, the largest number of the row over 127), then each number over it, rounded up or down at
              random so that its expectation is the number: -127 to 127

Scales belong to rows, since cut gradients are as small as the batch is large: below 6e-5 float16 alone would lose bits.

Reference for stochastic rounding: Alistarh et al. 2017, QSGD (arXiv 1610.02132), section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from cutlayer.lazy import Tensor, torch

Form = Literal["float16", "bfloat16", "int8"]
_SCALE_BYTES = 4
_LAYOUTS: Mapping[str, tuple[int, int]] = {"float16": (_SCALE_BYTES, 2), "bfloat16": (0, 2), "int8": (_SCALE_BYTES, 1)}
"""Bytes of a row besides its numbers, and bytes of a number."""
_MAX_STEP = 127


def row_bytes(form: Form | None, width: int) -> int:
    """Number of bytes of a row of `width` numbers; as float32 without a form.

    >>> [row_bytes(form, 128) for form in (None, "float16", "bfloat16", "int8")]
    [512, 260, 256, 132]
    """
    if form is None:
        return 4 * width
    per_row, per_number = _LAYOUTS[form]
    return per_row + per_number * width


def width_of(form: Form, nbytes: int) -> int | None:
    """Number of numbers of a row of so many bytes; `None` if there is no such row."""
    per_row, per_number = _LAYOUTS[form]
    width, rest = divmod(nbytes - per_row, per_number)
    return None if width < 1 or rest else width


def pack_rows(rows: Tensor, form: Form, uniform: Callable[[int], Tensor]) -> Tensor:
    """Pack rows.

    Args:
        rows: Finite numbers, float32 (n, width), with a width of 1 or more.
        form: Form of the numbers.
        uniform: Draws that many numbers in [0, 1), float32; called for `int8` alone.

    Returns:
        uint8 (n, `row_bytes`), little-endian on the machines that torch runs on.
    """
    if not len(rows):
        return torch.zeros(0, row_bytes(form, rows.shape[1]), dtype=torch.uint8)
    if form == "bfloat16":
        return _bytes(rows.to(torch.bfloat16))
    largest = rows.abs().amax(dim=1, keepdim=True)
    if form == "float16":
        scale = torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent.clamp(-126, 127))
        return torch.cat([_bytes(scale), _bytes((rows / scale).to(torch.float16))], dim=1)
    scale = largest / _MAX_STEP
    steps = torch.where(scale > 0, rows / scale, 0.0)
    numbers = (steps + uniform(rows.numel()).view_as(rows)).floor().clamp(-_MAX_STEP, _MAX_STEP).to(torch.int8)
    return torch.cat([_bytes(scale), _bytes(numbers)], dim=1)


def unpack_rows(packed: Tensor, form: Form) -> Tensor:
    """Numbers of packed rows, float32 (n, width).

    Args:
        packed: uint8 (n, b), with b of `row_bytes`. Bytes of a stranger may give numbers that are not finite.
        form: Form of the numbers.
    """
    if not len(packed):
        return torch.zeros(0, width_of(form, packed.shape[1]) or 0)
    head, _ = _LAYOUTS[form]
    dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8}[form]
    numbers, scale = (
        part.clone(memory_format=torch.contiguous_format) for part in (packed[:, head:], packed[:, :head])
    )
    return numbers.view(dtype).float() * scale.view(torch.float32) if head else numbers.view(dtype).float()


def _bytes(numbers: Tensor) -> Tensor:
    return numbers.contiguous().view(torch.uint8)
