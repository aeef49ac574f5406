"""The class that a binary job calls positive: scores are of it, and nothing else changes."""

from __future__ import annotations

import html
import json
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from cutlayer.training.folder import RunFolder
from tests.cli.jobs import JOB, Place, changed

PROTECTED = {
    "parties.bank.privacy": {"label_dp": {"eps": 3.0}},
    "parties.telco.report": {"subgroups": ["plan"]},
    "train.split": {"validation": 0.1, "test": 0.5},
}


def trained(place: Place, name: str, **more: object) -> Path:
    place.write(changed(JOB, {**PROTECTED, **{f"parties.bank.{key}": value for key, value in more.items()}}))
    key = place.folder / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    told = place.call("run", place.file, "--out", f"runs/{name}", "--key", "key", "--json")
    assert told.code == 0, told.err
    return place.folder / "runs" / name


def scores_of(place: Place, run: Path, positive: str) -> np.ndarray:
    """The probabilities that `predict` writes, which are of this class by the file beside them."""
    new = ("--data", "bank=bank.csv", "--data", "telco=telco.csv")
    assert place.call("predict", run, "--out", "s.parquet", "--overwrite", "--key", "key", *new).code == 0
    assert json.loads((place.folder / "s.parquet.json").read_text())["positive"] == positive
    return parquet.read_table(place.folder / "s.parquet")["probability"].to_numpy()


def test_scores_are_of_the_named_class_and_nothing_else_changes(place: Place) -> None:
    """The second training takes the draws of the first: no label looks changed to the memory of drawn labels."""
    plain, named = trained(place, "plain"), trained(place, "named", positive=0)
    before, after = RunFolder.open(plain), RunFolder.open(named)
    assert [line["loss"] for line in before.history()] == [line["loss"] for line in after.history()]
    counted = {"positives", "true_positive_rate"}
    leaks = zip(before.audit.runs["this run"].leaks, after.audit.runs["this run"].leaks, strict=True)
    for plainly, by_name in leaks:
        assert plainly.model_dump(exclude=counted) == by_name.model_dump(exclude=counted)
        assert by_name.positives == plainly.rows - plainly.positives, by_name.label
    of_one, of_zero = scores_of(place, plain, "1"), scores_of(place, named, "0")
    np.testing.assert_allclose(of_zero, 1 - of_one, rtol=0, atol=1e-12)
    held_out = [parquet.read_table(run / "predictions.parquet")["probability"].to_numpy() for run in (plain, named)]
    np.testing.assert_allclose(held_out[1], 1 - held_out[0], rtol=0, atol=1e-12)
    one, other = before.summary, after.summary
    assert (one.task.positive, other.task.positive) == (1, 0)
    assert other.task.positive_share == pytest.approx(1 - one.task.positive_share)
    assert other.utility.rows[0].metrics["auc"] == pytest.approx(one.utility.rows[0].metrics["auc"])
    assert other.quality.metrics["brier"] == pytest.approx(one.quality.metrics["brier"])
    assert place.call("export", named, "--as", "bank", "--out", "part").code == 0
    card = (place.folder / "part" / "README.md").read_text()
    assert "probability of 1. The positive class is 0, of probability 1 / (1 + exp(z))" in card
    page = html.unescape((named / "report.html").read_text())
    assert "Confusion matrix, '0' predicted" in page
    cards = []
    for run in (plain, named):
        assert place.call("report", run, "--for", "dpia", "--allow-path", place.folder).code == 0
        cards.append(json.loads((run / "privacy_card.json").read_text())["subgroups"])
    for here, there in zip(*cards, strict=True):
        assert here["metrics"] == pytest.approx(there["metrics"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parties.bank.positive": "2"}, "parties.bank.positive as one of the labels 0, 1, got '2'"),
        ({"parties.telco.positive": "1"}, "no parties.telco.positive"),
        (
            {"parties.bank.positive": "1", "task": "multiclass", "parties.bank.audit": {}},
            "parties.bank.positive in a task: binary alone",
        ),
    ],
)
def test_a_class_that_cannot_be_positive_is_refused_before_training(
    place: Place, changes: dict[str, object], words: str
) -> None:
    place.write(changed(JOB, changes))
    for verb in ("check", "run"):
        told = place.call(verb, place.file)
        assert told.code == 2
        assert words in told.error
