"""How many threads the tensor library may use.

Its worker threads wait busily: with more of them than cores, in one process or in several, training falls to a few
percent of its speed.
"""

from __future__ import annotations

import os
from typing import Literal

import torch

LARGE_BATCH = 2048
"""Below this many rows a step is too short to be worth dividing among threads."""


def set_threads(wanted: Literal["auto"] | int, batch_size: int, processes: int = 1) -> int:
    """Set the number of threads of this process.

    Args:
        wanted: `auto` takes one thread for small batches, and for large ones divides the cores this process may run on
            among `processes`.
        batch_size: rows per step.
        processes: parties that share this machine, each in its own process.

    Returns:
        What was set.
    """
    cores = _usable_cores() if batch_size >= LARGE_BATCH else 1
    threads = max(1, cores // processes) if wanted == "auto" else wanted
    torch.set_num_threads(threads)
    return threads


def _usable_cores() -> int:
    """Cores this process may run on; systems other than Linux only tell how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
