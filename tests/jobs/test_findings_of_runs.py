"""What the findings of a run are derived from, besides its results."""

from __future__ import annotations

import pytest

from cutlayer.audit.findings import findings_of
from cutlayer.jobs import audit
from tests.cli.jobs import Place
from tests.parties.test_no_gradient import dead

__all__ = ["dead"]


@pytest.mark.usefixtures("dead")
def test_a_report_names_epochs_without_a_gradient_and_knows_who_is_sent_nothing(tmp_path, capsys, monkeypatch):
    contexts = []

    def seen(context):
        contexts.append(context)
        return findings_of(context)

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit, "findings_of", seen)
    place = Place(tmp_path, capsys)
    place.change({"train.epochs": 2, "train.release": "once"})
    called = place.call("run", place.file, "--quiet")
    assert called.code == 0
    assert "all gradients of epoch 1 are exactly zero" in called.err
    assert (contexts[-1].label_free, contexts[-1].idle_epochs) == ({"telco"}, (1, 2))
    report = place.call("report", place.run_folder, "--json").document()
    [finding] = [finding for finding in report["findings"] if finding["code"] == "CL115"]
    assert "epoch 1, 2" in finding["detail"]
