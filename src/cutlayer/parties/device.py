"""The device of a party: which one its private part asks for, and how tensors get there."""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.errors import ConfigError

CPU = torch.device("cpu")


def device_of(setting: str, where: str) -> torch.device:
    """The device that a setting names.

    Args:
        setting: `auto`, `cpu`, `cuda` or `cuda:N`.
        where: Dotted path of the setting, for messages.

    Raises:
        ConfigError: This machine, or this build of PyTorch, has no such device.
    """
    if setting == "cpu":
        return CPU
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if setting == "auto" and not count:
        return CPU
    if not count:
        got, remedy = f"{setting} where PyTorch {torch.__version__} finds no GPU", "write cpu, or auto"
        raise ConfigError.expected(f"{where}: a device of this machine", got, remedy)
    number = int(setting.partition(":")[2] or torch.cuda.current_device())
    if number >= count:
        known = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise ConfigError.expected(f"{where}: {known}", setting, "GPUs are counted from 0")
    return torch.device("cuda", number)


def described(device: torch.device) -> str:
    """A device as the report names it.

    >>> described(torch.device("cpu"))
    'cpu'
    """
    if device.type != "cuda":
        return str(device)
    return f"{device} ({torch.cuda.get_device_name(device)})"


def placed(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; the tensor itself if it is there.

    From the CPU to a GPU it is copied through page-locked memory, without waiting for the copy: what reads it on the
    GPU waits, and this process goes on.
    """
    if tensor.device == device:
        return tensor
    if device.type == "cuda" and tensor.device == CPU:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
