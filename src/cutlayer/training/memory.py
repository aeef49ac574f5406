"""What becomes of memory that a training step frees.

The C library gives large blocks back to the system at once, and fetches and clears them again in the next step: some
tenth of the time of a small convolutional network's step. A training run keeps them.
"""

from __future__ import annotations

import ctypes
import os

# Of `mallopt` in glibc's malloc.h: what the top of the heap may hold free, and how large a block of the heap may be.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 256 * 2**20
_LARGEST = 32 * 2**20  # what the C library admits


def keep_freed_memory() -> bool:
    """Let this process, from now on, keep memory that it freed: up to 256 MB of each heap, in blocks of up to 32 MB.

    A user's own settings of the C library's memory (`MALLOC_TRIM_THRESHOLD_`, `GLIBC_TUNABLES` and their like) stand.

    Returns:
        Whether the C library agreed: glibc does, others do not. An allocator put in its place is not asked.
    """
    if any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no such function; no C library to ask
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _KEPT))
