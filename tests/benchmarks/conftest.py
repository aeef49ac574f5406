"""Benchmarks fork their processes here: a new interpreter takes four seconds to import what they measure."""

from __future__ import annotations

import pytest

from benchmarks import processes
from tests.parties.processes import forkserver


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "context", forkserver)
