"""Private copies of the repository, in which mutants are written and tests run."""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import sys
from pathlib import Path


def make_trees(root: Path, state: Path, copied: tuple[str, ...], count: int) -> list[Path]:
    """Copy the repository once for each slot.

    The compiled modules carry a hash of their source: by time and size, as is usual, Python could take the compiled
    original for a mutant of the same length.

    Args:
        root: of the repository.
        state: folder in which the copies are made.
        copied: what is copied, relative to the root; what does not exist is skipped.
        count: how many copies.
    """
    trees = [state / f"tree{number}" for number in range(count)]
    for tree in trees:
        shutil.rmtree(tree, ignore_errors=True)
        for name in copied:
            source, target = root / name, tree / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(tree / "src", quiet=2, invalidation_mode=mode)
    return trees


def enter(tree: Path, root: Path) -> None:
    """Make this process, and those that it starts, import the package from a copy of the tree."""
    os.chdir(tree)
    others = [entry for entry in sys.path if entry and not Path(entry).is_relative_to(root / "src")]
    sys.path[:] = [str(tree / "src"), *(entry for entry in others if Path(entry) != root)]
    os.environ["PYTHONPATH"] = str(tree / "src")
    scratch = tree / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    os.environ["TMPDIR"] = str(scratch)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(scratch / "hypothesis")
