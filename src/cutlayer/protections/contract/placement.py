"""Where the tensors of a hook are: on the party's device, or on the CPU for a protection that computes there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from cutlayer.kernels.rows.to_device import to_device
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import Protection
from cutlayer.protections.contract.views import ActiveView, PassiveView

V = TypeVar("V")
View = TypeVar("View", ActiveView, PassiveView)
CPU = "cpu"


def moved(value: V, device: torch.device | str) -> V:
    """A value with its tensors on a device, differentiably; the value itself if it has none elsewhere.

    Args:
        value: A tensor, or nested mappings; anything else stays as it is.
        device: The device.
    """
    there: Any = value
    if isinstance(value, Tensor):
        there = value.to(device) if value.requires_grad else to_device(value, torch.device(device))
    elif isinstance(value, Mapping):
        inner = {key: moved(item, device) for key, item in value.items()}
        there = value if all(inner[key] is value[key] for key in inner) else inner
    return there  # type: ignore[no-any-return]


class Placement:
    """Moves what a protection reads and returns between the party's device and the CPU; nothing else does.

    Args:
        device: Device that the party trains on.
    """

    def __init__(self, device: torch.device | str = CPU) -> None:
        self._device = device

    def given(self, protection: Protection[Any], value: V) -> V:
        """Move what a protection is given to the device that it computes on."""
        there: Any = value
        if protection.on_cpu and str(self._device) != CPU:
            there = on_cpu(there) if isinstance(value, ActiveView | PassiveView) else moved(value, CPU)
        return there  # type: ignore[no-any-return]

    def call(self, protection: Protection[Any], hook: Callable[..., V], *given: Any) -> V:
        """Call a hook of a protection with arguments on the party's device, and return its result there."""
        return self.back(hook(*(self.given(protection, value) for value in given)))

    def back(self, value: V) -> V:
        """Move what a protection returned to the party's device."""
        return moved(value, self._device)


class _Moved(Mapping[str, Tensor]):
    """Tensors by name, each of which is moved to the CPU when it is read, since few protections read any."""

    def __init__(self, there: Mapping[str, Tensor]) -> None:
        self._there = there

    def __getitem__(self, name: str) -> Tensor:
        return moved(self._there[name], CPU)

    def __iter__(self) -> Iterator[str]:
        return iter(self._there)

    def __len__(self) -> int:
        return len(self._there)


def on_cpu(view: View) -> View:
    """A view whose tensors are on the CPU, those that its functions return included."""
    given: Any = view
    if isinstance(given, ActiveView):
        changed: dict[str, Any] = {name: _Moved(getattr(given, name)) for name in ("embeddings", "task_gradients")}
        changed |= {name: moved(getattr(given, name), CPU) for name in ("labels", "own_labels")}
    else:
        changed = {name: moved(getattr(given, name), CPU) for name in ("embedding", "gradient")}
        changed |= {name: _with_result_on_cpu(getattr(given, name)) for name in ("embed", "inputs")}
    seen: View = replace(given, **changed)
    return seen


def _with_result_on_cpu(read: Callable[[Tensor], Tensor] | None) -> Callable[[Tensor], Tensor] | None:
    """The same function with its result on the CPU."""
    return None if read is None else lambda rows: read(rows).cpu()
