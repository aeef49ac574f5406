"""Studies of images, without reading images that no test looks at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from studies import image_halves
from studies.feature_privacy import settings


@pytest.fixture
def without_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of images have the labels of the data sets, and a number for each image: to inflate them takes seconds."""
    read = image_halves.read_images

    def labelled(path: Path, columns: Sequence[str], part: str, rows: int | None) -> pa.Table:
        labels = read(path, [image_halves.LABEL], part, rows)[image_halves.LABEL]
        return pa.table({name: labels if name == image_halves.LABEL else np.arange(len(labels)) for name in columns})

    for module in (image_halves, settings):
        monkeypatch.setattr(module, "read_images", labelled)
