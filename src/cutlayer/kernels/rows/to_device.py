"""Tensors on their way to a device."""

from __future__ import annotations

from cutlayer.lazy import Tensor, torch


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; the tensor itself if it is there.

    From the CPU to a GPU it is copied through page-locked memory, without waiting for the copy: what reads it on the
    GPU waits, and this process goes on.
    """
    if tensor.device == device:
        return tensor
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
