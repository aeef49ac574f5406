"""The temporary folder of an estimator."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any


class Scratch:
    """A temporary folder that is removed when nothing refers to it any more; copies of an estimator share it.

    Attributes:
        path: Path of the folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="cutlayer-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> Scratch:
        return self

    def __reduce__(self) -> tuple[type[_Borrowed], tuple[Path]]:
        return _Borrowed, (self.path,)


class _Borrowed(Scratch):
    """The folder of an estimator that was pickled: there as long as that one is, and not removed by this one."""

    def __init__(self, path: Path) -> None:
        self.path = path
