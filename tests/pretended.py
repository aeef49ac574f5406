"""A pretended device: its tensors compute on the CPU, and mixing them with others is an error, as on a GPU.

PyTorch's fake tensors cannot do this without a GPU: their backward pass asks for a driver. Here a tensor states the
device `meta` and holds its numbers in an ordinary tensor. So a whole training runs, its numbers can be compared with
those of the CPU bit by bit, and whatever is made on the wrong device, or read by NumPy, stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.optim import optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from cutlayer.kernels.dependence import distance_correlation, pairwise
from cutlayer.parties.compute import resident

ELSEWHERE = torch.device("meta")
CPU = torch.device("cpu")
_COPIES = ("_to_copy", "copy_")
_make = torch.tensor


def _tensor(data: Any, *, device: torch.device | str | None = None, **options: Any) -> Tensor:
    """`torch.tensor`, which on the device `meta` would drop the numbers before any mode sees them."""
    made = _make(data, **options)
    return made if device is None else made.to(device)


class Elsewhere(Tensor):
    """A tensor on the pretended device; `here` holds its numbers."""

    here: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, here: Tensor) -> Elsewhere:
        made: Elsewhere = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            here.shape,
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=ELSEWHERE,
        )
        made.here = here
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Elsewhere({self.here})"

    def new_tensor(self, data: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:  # type: ignore[override]
        return _tensor(data, dtype=dtype or self.dtype, device=options.pop("device", None) or ELSEWHERE, **options)

    def tolist(self) -> Any:
        return self.detach().cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError("a tensor on the pretended device is no array of NumPy's")
        return self.detach().cpu().numpy()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Pretending(TorchDispatchMode):
    """Sees the functions that make tensors, too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = func.overloadpacket.__name__
    given = tensors_of(args, kwargs)
    away = [leaf for leaf in given if isinstance(leaf, Elsewhere)]
    if away and name not in _COPIES:
        # A scalar may be on the CPU; an index may not, although a GPU would copy it, and wait.
        mixed = [leaf for leaf in given if not isinstance(leaf, Elsewhere) and (leaf.dim() or name.startswith("index"))]
        if mixed:
            raise RuntimeError(f"{func}: tensors of shapes {[tuple(leaf.shape) for leaf in mixed]} are on the CPU")
    wanted = None if kwargs.get("device") is None else torch.device(kwargs["device"])
    there = bool(away) if wanted is None else wanted == ELSEWHERE
    if name == "copy_":
        there = isinstance(args[0], Elsewhere)
    own_kwargs = kwargs if wanted is None else {**kwargs, "device": CPU}
    own_args, own_kwargs = mapped(lambda leaf: leaf.here if isinstance(leaf, Elsewhere) else leaf, [args, own_kwargs])
    known = {id(leaf.here): leaf for leaf in away}  # what is changed in place is what was given

    def labelled(leaf: Tensor) -> Tensor:
        if not there:
            return leaf
        return known[id(leaf)] if id(leaf) in known else Elsewhere(leaf)

    return mapped(labelled, func(*own_args, **own_kwargs))


def tensors_of(*values: Any) -> list[Tensor]:
    """All tensors among arguments or results: those of PyTorch's operators are in lists, and in nothing deeper.

    `torch.utils._pytree` finds them in any structure, and takes twice the time of the operators.
    """
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += tensors_of(*value)
        elif isinstance(value, dict):
            found += tensors_of(*value.values())
    return found


def mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same structure as `tensors_of` reads, with each tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)(mapped(change, part) for part in value)
    if isinstance(value, dict):
        return {name: mapped(change, part) for name, part in value.items()}
    return value


@contextmanager
def pretending() -> Iterator[torch.device]:
    """Pretend that there is a device besides the CPU; fused optimisers and tiles are as on the CPU."""
    fused = optimizer._get_fused_kernels_supported_devices  # type: ignore[attr-defined]
    with (
        mock.patch.object(optimizer, "_get_fused_kernels_supported_devices", return_value=[*fused(), ELSEWHERE.type]),
        # Elsewhere its factors stay on the device, and then it rounds in another order than on the CPU.
        mock.patch.object(distance_correlation, "reads_freely", return_value=True),
        mock.patch.object(distance_correlation, "tile_size", return_value=pairwise.tile_size(CPU)),
        mock.patch.object(torch, "tensor", _tensor),
        mock.patch.object(resident, "free_bytes", return_value=1 << 40),
        _Pretending(),
    ):
        yield ELSEWHERE
