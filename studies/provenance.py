"""On which code and processor a training ran."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import torch

_GIT = ("git", "describe", "--always", "--dirty", "--exclude", "*")


@cache
def provenance() -> dict[str, str]:
    """`commit` and `host` of a `TrialResult`; both name no person and no machine."""
    described = subprocess.run(_GIT, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)  # noqa: S603
    capability = torch.backends.cpu.get_cpu_capability()
    host = f"{platform.machine()} {capability}, {os.cpu_count()} cores, torch {torch.__version__}"
    return {"commit": described.stdout.strip(), "host": host}
