"""An environment for each rival, made once under a folder from the pinned requirements beside the scripts."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

INSIDE = Path(__file__).parent / "inside"
ALONE = ("xgboost", "divisions")
"""Installed without their dependencies: XGBoost needs no CUDA package, and of the other ones only data are read."""


def python_of(rival: str, folder: Path) -> Path:
    """The interpreter of a rival's environment, which is made if it is not there.

    Args:
        rival: Stem of the file of requirements.
        folder: Folder of all environments.
    """
    where = folder / rival
    python, done = where / "bin" / "python", where / "installed"
    requirements = INSIDE / f"{rival}.txt"
    if not done.is_file() or done.read_text() != requirements.read_text():
        venv.EnvBuilder(with_pip=True, clear=True).create(where)
        bare = ["--no-deps"] if rival in ALONE else []
        command = [python, "-m", "pip", "install", "--quiet", *bare, "-r", requirements]
        subprocess.run([*map(str, command)], check=True, stdout=sys.stderr)
        done.write_text(requirements.read_text())
    return python
