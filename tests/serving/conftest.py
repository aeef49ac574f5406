"""Runs that several tests serve; trained once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.runs import counted_copy, unserved
from tests.serving.world import train


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without protections."""
    return train(tmp_path_factory.mktemp("plain"))


@pytest.fixture
def run(plain: Path, tmp_path: Path) -> Path:
    """A run without protections that has not been served."""
    return unserved(plain, tmp_path / "run")


@pytest.fixture(scope="session")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a head for every set of absent parties."""
    return train(tmp_path_factory.mktemp("headed"), top={"kind": "multi_head", "hidden": [4]})


NOISE = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 2.0}}


@pytest.fixture(scope="session")
def noisy_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("noisy"), parties={"telco": {"privacy": NOISE, "serving": 1}})


@pytest.fixture
def noisy(noisy_once: Path, tmp_path: Path) -> Path:
    """A run whose telco adds counted noise, with one planned release of each row for predictions."""
    return counted_copy(noisy_once, "telco", tmp_path / "noisy")
