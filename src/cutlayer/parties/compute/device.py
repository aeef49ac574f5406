"""The device of a party: which one its private part asks for, and how tensors get there."""

from __future__ import annotations

import torch

from cutlayer.errors import ConfigError

CPU = torch.device("cpu")


MIN_OPERATIONS = 1e9
"""Floating-point operations of a step from which `auto` takes a GPU. A core of a CPU takes some 10 ms for so many; on a
GPU no step was measured to be shorter (9 ms on an H200, all launches of a step of the reference job)."""


def device_of(setting: str, where: str) -> torch.device:
    """The device that a setting names; see `chosen_device`."""
    return _choose(setting, where, None)[0]


def chosen_device(setting: str, where: str, operations: float | None = None) -> tuple[torch.device, str]:
    """The device that a setting names, and how the report names it: for `auto` with the reason.

    Args:
        setting: `auto`, `cpu`, `cuda` or `cuda:N`.
        where: Dotted path of the setting, for messages.
        operations: Forecast of the floating-point operations of a step; `None` where it is not known.

    Raises:
        ConfigError: This machine, or this build of PyTorch, has no such device.
    """
    device, reason = _choose(setting, where, operations)
    return device, f"{device_text(device)}: {reason}" if reason else device_text(device)


def _choose(setting: str, where: str, operations: float | None) -> tuple[torch.device, str]:
    """The device, and why `auto` chose it."""
    count = torch.cuda.device_count() if setting != "cpu" and torch.cuda.is_available() else 0
    if not count:
        if setting in ("cpu", "auto"):
            return CPU, "no accelerator" if setting == "auto" else ""
        got, remedy = f"{setting} where PyTorch {torch.__version__} finds no GPU", "write cpu, or auto"
        raise ConfigError.expected(f"{where}: a device of this machine", got, remedy)
    number = int(setting.partition(":")[2] or torch.cuda.current_device())
    if number >= count:
        known = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise ConfigError.expected(f"{where}: {known}", setting, "GPUs are counted from 0")
    if setting != "auto" or operations is None:
        return torch.device("cuda", number), ""
    reason = f"a step has {operations:.1e} operations"
    if operations < MIN_OPERATIONS:
        return CPU, f"{reason}, and a GPU gains from {MIN_OPERATIONS:.0e} on"
    return torch.device("cuda", number), reason


def device_text(device: torch.device) -> str:
    """A device as the report names it.

    >>> device_text(torch.device("cpu"))
    'cpu'
    """
    if device.type != "cuda":
        return str(device)
    return f"{device} ({torch.cuda.get_device_name(device)})"
