"""Freed memory is kept for the next step: counted by the pages that the system has to fetch and clear anew."""

import os
import platform
import subprocess
import sys

import pytest

STEPS = """
import resource, sys, torch
from cutlayer.training.memory import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else False
torch.set_num_threads(1)
def step():
    return sum(float(block[0]) for block in [torch.ones(2**20) for _ in range(5)])
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(kept, (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)
"""


def _run(how, **environment):
    """Whether it said that memory is kept, and pages fetched for a step of 20 MB."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", STEPS, how]
    done = subprocess.run(command, env=plain | environment, capture_output=True, text=True, check=True)
    kept, pages = done.stdout.split()
    return kept == "True", float(pages)


def test_a_step_fetches_its_memory_once():
    kept, pages = _run("keep")
    if platform.libc_ver()[0] != "glibc":
        assert not kept
        pytest.skip("the C library here has no such setting")
    assert kept
    # What the C library does by itself hangs on how its heap lies; told to, it gives back every block of this size.
    assert pages < _run("leave", MALLOC_MMAP_THRESHOLD_="131072")[1] / 5


def test_a_users_own_settings_stand():
    assert not _run("keep", MALLOC_TRIM_THRESHOLD_="100000")[0]
    assert not _run("keep", GLIBC_TUNABLES="glibc.malloc.trim_threshold=100000")[0]
