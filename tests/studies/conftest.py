"""The arrays of the data sets are read once for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from numpy.lib.npyio import NpzFile


@pytest.fixture(scope="module", autouse=True)
def _images_inflated_once() -> Iterator[None]:
    """A study reads the images once for each half and each of its groups, and to inflate them takes a second."""
    kept: dict[tuple[str | None, str], npt.NDArray[np.generic]] = {}
    read = NpzFile.__getitem__

    def once(archive: NpzFile, name: str) -> npt.NDArray[np.generic]:
        place = archive.zip.filename, name
        if place not in kept:
            kept[place] = read(archive, name)
            kept[place].flags.writeable = False
        return kept[place]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(NpzFile, "__getitem__", once)
        yield
