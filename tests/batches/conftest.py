"""A run whose releases batches refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.conftest import NOISE
from tests.serving.world import train


@pytest.fixture(scope="session")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose telco adds counted noise, with one planned release of each row for predictions."""
    return train(tmp_path_factory.mktemp("noisy"), parties={"telco": {"privacy": NOISE, "serving": 1}})
