from __future__ import annotations

from pathlib import Path

import pytest

from tests.nvflare.kits import provision


@pytest.fixture(scope="session")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Startup kits of two sites and a server."""
    base = tmp_path_factory.mktemp("kits")
    provision(base)
    return base
