"""A fit leaves the process as it was: random state, warnings, and as many threads as it was given."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from cutlayer.workers import limit_library_threads


@contextmanager
def restoring_process_state() -> Iterator[None]:
    """Restore the global random states, show no warning of a library, and bound its threads by those of PyTorch."""
    state = np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with limit_library_threads(torch.get_num_threads()), torch.enable_grad():
                yield
    finally:
        np.random.set_state(state)
