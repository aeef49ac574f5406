"""Disturbed years by files and by TLS, and the undisturbed year of both, in a process that has computed nothing.

It forks, which a process with threads of other tests must not. Grades are fitted by the linear candidate alone: what is
fitted is no subject of theirs.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks import year
from tests.cli.jobs import share_engine
from tests.prepared import prepare

GRADE = "fit: {kind: grade}"
IMPORTED = (
    "cutlayer.cli.exchange",
    "cutlayer.cli.exchange_steps",
    "cutlayer.cli.ledger",
    "cutlayer.models.bottom_fits.private_grade",
    "cutlayer.models.row_independence",
    "cutlayer.serving.provenance",
)
"""What the commands of a month import besides those of other tests: a process of its own would find it out."""


def write_outcomes(file: Path) -> None:
    """Run a month of each kind, with one kill of each command, and write what was left as JSON."""
    brief = year.PRIVATE[year.TELCO].replace(GRADE, "fit: {kind: grade, candidates: [linear], folds: 2}")
    assert brief != year.PRIVATE[year.TELCO]
    year.PRIVATE[year.TELCO] = brief
    year.WAIT = 3  # for a partner that was killed, and comes in the next turn
    share_engine(pytest.MonkeyPatch())
    for name in IMPORTED:
        import_module(name)
    prepare()
    file.write_text(json.dumps([*outcomes(200, months=1, seed=1)]))


def outcomes(rows: int, months: int, seed: int) -> Iterator[dict[str, Any]]:
    """What the year by files, and that by TLS, each disturbed, left, beside the undisturbed one by TLS.

    Draws are the same however files travel, and so are scores and ledgers: one undisturbed year is enough for both, and
    by TLS both parties end with their first command.
    """
    with tempfile.TemporaryDirectory() as place:
        (made := Path(place) / "made").mkdir()
        year.organise(made, rows, months)

        def left(name: str, kills: int, *, tls: bool) -> year.Year:
            base = Path(shutil.copytree(made, Path(place) / name))
            return year.run_year(base, months=months, kills=kills, seed=seed, tls=tls)

        undisturbed = left("undisturbed", 0, tls=True)
        for name in ("files", "tls"):
            yield year.outcome(undisturbed, left(name, 1, tls=name == "tls"))
