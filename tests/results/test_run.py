"""Labels of trainings, and the streams of random numbers."""

from __future__ import annotations

import pytest

from cutlayer.data.streams import RandomStream
from cutlayer.results.run import RunId, RunKind
from cutlayer.results.utility import ModelUtility, UtilityResult

LABELS = {
    RunId(RunKind.THIS_RUN): "this run",
    RunId(RunKind.UNDEFENDED): "undefended",
    RunId(RunKind.UNCOMPRESSED): "uncompressed",
    RunId(RunKind.PROTECTION, (), "label_dp"): "label_dp",
    RunId(RunKind.PROTECTION, ("telco",), "dp_embedding"): "dp_embedding of telco",
    RunId(RunKind.ALTERNATIVE, (), "private columns"): "private columns",
    RunId(RunKind.MALICIOUS, ("telco",)): "malicious telco",
    RunId(RunKind.MALICIOUS, ("telco", "shop")): "malicious passive parties",
    RunId(RunKind.CENTRALISED): "all columns in one place",
    RunId(RunKind.ALONE, ("bank",)): "bank alone",
    RunId(RunKind.BOOSTING): "gradient boosting, all columns",
    RunId(RunKind.RETRAINED, ("telco",)): "retrained without telco",
    RunId(RunKind.FINETUNED, ("telco", "shop")): "fine-tuned without telco, shop",
    RunId(RunKind.CHANCE): "chance",
}


def test_every_kind_of_run_has_a_label_and_a_note() -> None:
    assert {run.kind for run in LABELS} == set(RunKind)
    assert {run: run.label for run in LABELS} == LABELS
    assert all(run.note for run in LABELS)
    assert RunId(RunKind.PROTECTION, (), "label_dp").note == "only label_dp on"


@pytest.mark.parametrize("run", LABELS, ids=LABELS.get)
def test_a_record_names_its_run_and_is_read_back(run: RunId) -> None:
    record = ModelUtility.of(run, {"auc": 0.9}, (0.8, float("nan")))
    assert (record.run, record.name, record.note, record.high) == (run, run.label, run.note, None)
    raw = record.model_dump(mode="json")
    assert (raw["name"], raw["note"]) == (run.label, run.note)
    assert ModelUtility.model_validate(raw) == record


def test_a_party_called_alone_is_no_reference() -> None:
    """The kind is stated, never read out of a label."""
    rows = (ModelUtility.of(RunId(RunKind.PROTECTION, ("home alone",), "nopeek"), {}),)
    assert UtilityResult(metric="auc", rows=rows).row(RunKind.ALONE) is None


def test_streams_keep_their_numbers() -> None:
    """A job repeats its draws: no number changes its purpose."""
    assert {stream.name: stream.value for stream in RandomStream} == {
        "SPLIT": 1,
        "BATCHES": 2,
        "COMPLETION_LABELS": 4,
        "AUXILIARY_ROWS": 5,
        "SHADOW_ROWS": 6,
        "RELEASED_ROWS": 7,
        "OWN_COLUMNS": 8,
        "PERMUTED_LABELS": 9,
        "KNOWN_LABELS": 10,
        "DIAGNOSTICS": 11,
        "TARGET_ROWS": 12,
    }
