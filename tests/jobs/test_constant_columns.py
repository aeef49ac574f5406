"""A partner whose columns a sketch cannot be fitted to: the check finds it, and a run before its first training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.forecast import forecast
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.keys import Keys
from tests.parties.runs import ACTIVE, KEY, MLP, PASSIVES, UNAUDITED, raw_job, tables

PARTNER = PASSIVES[0]
GIVEN = tables()
ROWS = GIVEN[PARTNER].num_rows
DAYS = np.datetime64("2020-01-01") + np.arange(ROWS)
CONSTANT: Mapping[str, Mapping[str, Any]] = {
    "dates": {"born": DAYS.astype(str), "moved": DAYS[::-1].astype(str)},
    "missing": {"empty": pa.nulls(ROWS, pa.string()), "none": pa.nulls(ROWS, pa.float64())},
    "texts": {"name": [f"person {row}" for row in range(ROWS)]},
    "constant": {"number": [5.0] * ROWS, "text": ["x"] * ROWS},
}
MESSAGE = (
    rf"parties\.{PARTNER}\.fit: expected a column that varies over the training rows, for fit sketch, "
    "got constant ones alone"
)


def job_of(folder: Path, columns: Mapping[str, Any]) -> Job:
    """A job without labels for its partner, which releases these columns once, on files in the folder."""
    made = raw_job(release="once", bottom={ACTIVE: MLP, PARTNER: {"kind": "linear", "width": 4}}, audit=UNAUDITED)
    made["parties"][ACTIVE]["privacy"] = {"label_free": None}
    made["parties"][PARTNER]["fit"] = {"kind": "sketch"}
    for name, table in {ACTIVE: GIVEN[ACTIVE], PARTNER: pa.table({"id": GIVEN[PARTNER]["id"], **columns})}.items():
        parquet.write_table(table, folder / f"{name}.parquet")
        made["parties"][name]["table"] = str(folder / f"{name}.parquet")
    return validated(Job, {**made, "compare": ["undefended"]}, "")


@pytest.mark.parametrize("kind", CONSTANT)
def test_the_check_finds_it(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=MESSAGE):
        forecast(job_of(tmp_path, CONSTANT[kind]))


def test_the_check_takes_columns_of_which_one_varies(tmp_path: Path) -> None:
    forecast(job_of(tmp_path, {**CONSTANT["dates"], **CONSTANT["constant"], "flag": [row % 2 for row in range(ROWS)]}))


class Steps(Progress):
    """Counts the steps of all trainings."""

    count = 0

    def stepped(self, *_: Any) -> None:
        self.count += 1


def test_a_run_finds_it_before_its_baseline_is_trained(tmp_path: Path) -> None:
    steps = Steps()
    with pytest.raises(ConfigError, match=MESSAGE):
        execute(job_of(tmp_path, CONSTANT["texts"]), tmp_path / "run", Options(Keys(tmp_path, KEY)), steps)
    assert not steps.count


def test_the_steps_of_a_baseline_are_counted(tmp_path: Path) -> None:
    steps, job = Steps(), job_of(tmp_path, {"flag": [row % 2 for row in range(ROWS)]})
    execute(job, tmp_path / "run", Options(Keys(tmp_path, KEY)), steps)
    assert steps.count
