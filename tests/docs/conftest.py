from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from cutlayer.cli import main
from cutlayer.config import train
from tests.models.estimator_rows import fit_briefly

ROWS = 500


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with the tables that the examples name: bank.csv, bank.parquet, telco.parquet and telco.csv.gz."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((ROWS, 4))
    label = (x[:, 0] + x[:, 2] + draw.standard_normal(ROWS) > 1.2).astype(np.int64)
    ids = [f"C{number:05d}" for number in range(ROWS)]
    bank = pa.table({"customer": ids, "default": label, "balance": x[:, 0], "limit": x[:, 1]})
    csv.write_csv(bank, tmp_path / "bank.csv")
    parquet.write_table(bank, tmp_path / "bank.parquet")
    order = draw.permutation(ROWS)[: ROWS - 100]
    plans = ["basic", "plus", "none"]
    columns = {"customer": [ids[row] for row in order], "calls": x[order, 2], "plan": [plans[row % 3] for row in order]}
    telco = pa.table(columns)
    parquet.write_table(telco, tmp_path / "telco.parquet")
    csv.write_csv(telco, tmp_path / "telco.csv")
    with gzip.open(tmp_path / "telco.csv.gz", "wb") as file:
        file.write((tmp_path / "telco.csv").read_bytes())
    return tmp_path


@pytest.fixture(autouse=True)
def _brief_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages' jobs fit a top model with fewer trees and steps, which takes most of the time of many.

    Where they train by steps, and state no epochs, as a compared run does, they take 3 in place of 40.
    """
    fit_briefly(monkeypatch)
    monkeypatch.setattr(train, "AUTO_EPOCHS", 3)


@pytest.fixture
def cutlayer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """Runs a verb with `--json`; returns its exit code and the document it printed, if any."""

    def run(*arguments: str | Path) -> tuple[int, Any]:
        monkeypatch.setattr(sys, "argv", ["cutlayer", *map(str, arguments), "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr().out
        return int(ended.value.code or 0), json.loads(printed) if printed else None

    return run
