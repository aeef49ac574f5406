"""What a log receives: settings without secrets, figures, and a report in which no value is of a single row."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cutlayer.config import Job, validated
from cutlayer.parties.session.observer import EpochRecord
from cutlayer.report.html import render_html
from cutlayer.results.quality import OperatingPoint
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind
from cutlayer_loggers.contents import epoch_values, final_values, settings_of, without_rows
from tests.cli.jobs import JOB, changed
from tests.report.samples import binary
from tests.report.test_features import with_pictures


def job(**changes: Any) -> Job:
    return validated(Job, changed(JOB, {key.replace("__", "."): value for key, value in changes.items()}), "")


def test_settings_name_no_file_column_or_key() -> None:
    private = {
        "parties__bank__secret": "the.key",
        "parties__bank__weight": "income",
        "parties__bank__log": {"tensorboard": "curves"},
        "parties__telco__table": {"path": "rows.sql", "url": "postgresql://db.internal/customers"},
        "parties__bank__address": "10.0.0.1:7000",
        "train__split": {"by": "opened_on"},
    }
    settings = settings_of(job(parties__bank__privacy={"label_dp": {"eps": 2.0}}, **private))
    assert settings["parties.bank.privacy.label_dp.eps"] == "2.0"
    assert settings["train.seed"] == "1"
    assert settings["model.bottom.hidden"] == "[8, 4]"
    said = " ".join([*settings, *settings.values()])
    for hidden in ("the.key", "income", "curves", "rows.sql", "db.internal", "10.0.0.1", "bank.csv", "opened_on"):
        assert hidden not in said
    assert max(map(len, settings.values())) <= 500


def test_an_epoch_has_loss_metrics_and_the_worst_leak() -> None:
    record = EpochRecord(1, 0.5, "validation", {"auc": 0.75, "log_loss": math.nan}, 1.0, 9.0, leak={"a": 0.6, "b": 0.8})
    assert epoch_values(record) == {"loss": 0.5, "validation/auc": 0.75, "worst_leak": 0.8}
    assert epoch_values(EpochRecord(1, math.nan, "test", {}, 1.0, 9.0)) == {}


def test_final_values_are_those_of_the_report() -> None:
    report = Report.model_validate(binary())
    values = final_values(report)
    row = report.utility.row(RunKind.THIS_RUN)
    assert row is not None
    assert values["final/auc"] == row.metrics["auc"]
    assert values["final/worst_leak"] == max(leak.leak for leak in report.leaks if leak.run == "this run")
    stated = {
        f"guarantee/epsilon/{each.party}/{each.protects}" for each in report.ledger.totals if each.epsilon is not None
    }
    assert {name for name in values if name.startswith("guarantee/")} == stated


def test_the_logged_report_has_no_image_and_no_exact_score() -> None:
    scores = (0.87654321, 0.41357911)
    points = [
        OperatingPoint(threshold=score, rate=0.1, precision=0.5, recall=0.2, false_positive_rate=0.1, lift=2)
        for score in scores
    ]
    raw = with_pictures().model_dump(mode="json")
    raw["quality"] |= {"curve": points, "thresholds": points, "own_curve": points}
    raw["quality"]["bins"] = [
        {"predicted": 0.123, "observed": 1, "rows": 1},
        {"predicted": 0.5, "observed": 0, "rows": 9},
    ]
    report = Report.model_validate(raw)
    assert [group.rows for group in without_rows(report).quality.bins] == [9]
    whole, page = render_html(report), render_html(without_rows(report))
    assert "data:image" in whole
    assert "data:image" not in page
    assert '"truth":' not in page
    assert all(str(score) in whole and str(score) not in page for score in scores)


@pytest.mark.parametrize(
    ("log", "phrase"),
    [
        ({}, "mlflow or tensorboard in it, got neither"),
        ({"mlflow": "https://me:secret@mlflow.example"}, "without user and password, got a user or a password in it"),
        ({"mlflow": "postgresql://db.internal/mlflow?password=secret"}, "got a user or a password in it"),
        *(
            ({"mlflow": uri}, "or a folder, got another form")
            for uri in (
                "file:%2e%2e/runs",
                "%2e%2e/runs",
                "file:x/../..;runs",
                "file:x/../..#/runs/x",
                "postgresql:///m?host=db.example",
                "postgresql://db.example/m",
                "http+unix://x/y",
                "sqlite+pysqlite:///x",
            )
        ),
        ({"mlflow": " "}, "without user and password, got nothing"),
        ({"wandb": "x"}, "unknown key"),
    ],
)
def test_a_log_that_cannot_be_written(log: Any, phrase: str) -> None:
    with pytest.raises(Exception, match=phrase) as refused:
        job(parties__bank__log=log)
    assert "secret" not in str(refused.value)
