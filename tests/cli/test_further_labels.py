"""One release of a partner serves each label of the label owner: those of now, and those that it thinks of later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from tests.cli.jobs import Place, as_yaml
from tests.parties.runs import raw_job

LABELS = ("churned", "upgraded", "amount")


def prepare(place: Place) -> None:
    draw = np.random.default_rng(0)
    hidden, ids = draw.normal(size=300), np.arange(300)
    own: dict[str, Any] = {"id": ids, "age": draw.normal(size=300)}
    own["churned"] = (hidden + draw.normal(size=300) * 0.5 > 0).astype(int)
    own["upgraded"] = (hidden + draw.normal(size=300) * 0.5 < -0.5).astype(int)
    own["amount"] = hidden * 3 + draw.normal(size=300)
    csv.write_csv(pa.table(own), place.folder / "bank.csv")
    csv.write_csv(pa.table({"id": ids, "calls": hidden, "usage": draw.normal(size=300)}), place.folder / "telco.csv")
    bottom = {"bank": {"kind": "auto"}, "telco": {"kind": "linear", "width": 4}}
    model = {"bottom": bottom, "top": {"kind": "auto", "candidates": ["linear"]}}
    parties = {"bank": {"role": "active"}, "telco": {"role": "passive"}}
    job = {"task": "binary", "model": model, "train": {**raw_job()["train"], "release": "once"}, "parties": parties}
    place.write(job)
    (place.folder / "amount.yaml").write_text(as_yaml({**job, "task": "regression"}))
    for label in LABELS:
        features = {"exclude": [other for other in LABELS if other != label]}
        private = {"table": "bank.csv", "id": "id", "label": label, "features": features, "audit": {"attacks": []}}
        (place.folder / f"{label}-bank.yaml").write_text(as_yaml(private))
    (place.folder / "telco.yaml").write_text("{table: telco.csv, id: id, fit: {kind: sketch}, audit: {attacks: []}}")


def test_a_kept_release_trains_further_labels_at_no_cost_to_the_partner(place: Place) -> None:
    prepare(place)
    named = ("--as", "telco", "--local", "telco.yaml", "--out", "telco.release", "--plaintext")
    assert place.call("release", "job.yaml", *named).code == 0
    release = Path("telco.release").read_bytes()

    def trained(label: str, job: str = "job.yaml") -> Any:
        named = ("--as", "bank", "--local", f"{label}-bank.yaml", "--out", f"runs/{label}", "--plaintext", "--json")
        return place.call("party", job, *named, "--release", "telco.release").document()

    for label in ("churned", "upgraded"):
        assert trained(label)["utility"]["gain"]["low"] > 0, label
    assert Path("telco.release").read_bytes() == release
    runs = place.call("ledger", ".cutlayer", "--json").document()["runs"]
    assert [(run["party"], run["runs_on_these_rows"]) for run in runs] == [("telco", 1)]
    # Another kind of label is another job, which the partner has not agreed to.
    assert "telco holds another job than bank" in trained("amount", "amount.yaml")["error"]
