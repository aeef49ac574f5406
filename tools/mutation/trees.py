"""Private copies of the repository, in which mutants are written and tests run."""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def private_trees(root: Path, state: Path, copied: tuple[str, ...], count: int) -> Iterator[list[Path]]:
    """Copies of the repository, one for each slot, which are removed at the end.

    The compiled modules carry a hash of their source: by time and size, as is usual, Python could take the compiled
    original for a mutant of the same length.

    Args:
        root: of the repository.
        state: folder in which the copies are made.
        copied: what is copied, relative to the root; what does not exist is skipped.
        count: how many copies.
    """
    with tempfile.TemporaryDirectory(prefix="trees", dir=state, ignore_cleanup_errors=True) as folder:
        trees = [Path(folder, f"tree{number}") for number in range(count)]
        for tree in trees:
            _copy(root, tree, copied)
        yield trees


def _copy(root: Path, tree: Path, copied: tuple[str, ...]) -> None:
    for name in copied:
        source, target = root / name, tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy2(source, target)
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    for folder in ("src", "plugins"):
        compileall.compile_dir(tree / folder, quiet=2, invalidation_mode=mode)


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
