"""The page of a default job: what `cutlayer init` writes for two tables of Adult, run."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from pyarrow import csv, parquet

import cutlayer.demo
from cutlayer.cli.app import _run
from cutlayer.config import Job, validated
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.report.build import build_report
from cutlayer.report.headline import headline
from cutlayer.report.sections import verdict
from cutlayer.results.report import Report
from cutlayer.storage.tensor_file import stored_tensors
from cutlayer.training.keys import Keys
from tests.cli.jobs import audit_briefly
from tests.models.estimator_rows import fit_briefly
from tests.parties.runs import KEY, raw_job, tables
from tests.report.reading import Page, Seen

pytestmark = pytest.mark.slow
MAX_WORDS = 1200
ROWS = 400
BANK = ["capital_gain", "capital_loss", "hours_per_week", "income"]
TELCO = ["age", "workclass", "education", "marital_status", "occupation", "relationship", "race", "sex"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("default")
    adult = parquet.read_table(Path(cutlayer.demo.__file__).parent / "adult.parquet").slice(0, ROWS)
    csv.write_csv(adult.select(["person", *BANK]), folder / "bank.csv")
    csv.write_csv(adult.select(["person", *TELCO]), folder / "telco.csv")
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(StringIO()):
        audit_briefly(patched)
        fit_briefly(patched)
        assert _run(["init", str(folder), "--labels", "bank.csv", "--label", "income", "--yes"]) == 0
        assert _run(["run", str(folder / "job.yaml"), "--quiet"]) == 0
    return folder / "runs" / "job"


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    return (run / "report.html").read_text(encoding="utf-8")


def test_a_reader_sees_few_words_and_reaches_all(page: str, run: Path) -> None:
    seen, words = Seen(page).words, Page(page).text
    assert len(seen) <= MAX_WORDS
    text = " ".join(seen)
    report = build_report(run)
    for shown in (headline(report), verdict(report)):
        assert " ".join(shown.split()) in text
    assert len(words.split()) > 2 * len(seen)
    for folded in ("Software", "calibration error", "permuted among", "The attack on every layer's output"):
        assert folded in words
        assert folded not in text


def test_the_difference_from_the_undefended_run_is_of_the_same_rows(run: Path) -> None:
    report = Report.model_validate_json(json.dumps(json.loads((run / "report.json").read_text())))
    this, undefended, alone, *_ = report.utility.rows
    for row in (undefended, alone):
        assert row.ahead is not None
        assert row.ahead.value == pytest.approx(this.metrics["auc"] - row.metrics["auc"])
        assert row.ahead.low < row.ahead.value < row.ahead.high
    assert undefended.low is not None
    assert undefended.ahead.high - undefended.ahead.low < undefended.high - undefended.low, "it is paired"
    logits = stored_tensors(run / "compare" / "undefended" / "logits.safetensors", "predictions", "logits")["logits"]
    assert len(logits) == report.data.test


def test_a_resumed_job_has_the_same_difference(tmp_path: Path) -> None:
    """The compared run has ended then; of its model only the predictions are left."""
    raw = raw_job(privacy={"label_dp": {"eps": 1.0}}) | {"compare": ["undefended", "alone"]}
    job, options = validated(Job, raw, ""), Options(Keys(tmp_path, KEY), tables=tables())
    differences = []
    for resume in (False, True):
        folder = execute(job, tmp_path / "run", replace(options, resume=resume), Progress()).path
        differences.append([row.ahead for row in build_report(folder).utility.rows])
        (folder / "summary.json").unlink()
    assert differences[0] == differences[1]
    assert all(ahead is not None and ahead.value is not None for ahead in differences[0][1:3])
