"""What the findings of a run are derived from, besides its results."""

from __future__ import annotations

import pytest

from cutlayer.audit.findings import findings_of
from cutlayer.jobs import audit
from tests.cli.jobs import Place, audit_briefly
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


def test_what_check_warns_of_columns_is_in_the_report(tmp_path, capsys, monkeypatch):
    """A copy of the label at the partner, a word among numbers, and a column without a value."""
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(tmp_path)
    audit_briefly(monkeypatch)
    place = Place(tmp_path, capsys)
    labels = dict(line.split(",")[::2] for line in (tmp_path / "bank.csv").read_text().splitlines())
    place.rows("bank", lambda number, row: [*row, ""])
    place.rows(
        "telco", lambda number, row: [*row, "ab"[labels[row[0]] == "1"], f"{number % 28}.5" if number else "Zanzibar"]
    )
    for party, more in ("bank", ",empty"), ("telco", ",y2,visits"):
        path = tmp_path / f"{party}.csv"
        path.write_text(path.read_text().replace("\n", f"{more}\n", 1))
    place.change({"train.epochs": 1, "compare": []})
    checked = place.call("check", place.file, "--json").document()["warnings"]
    assert "telco.y2: it is the label under another name; exclude it" in checked
    called = place.call("run", place.file, "--quiet")
    assert called.code == 0
    document = place.call("report", place.run_folder, "--json").document()
    found = {
        finding["code"]: (finding["owner"], finding["detail"])
        for finding in document["findings"]
        if finding["code"] in ("CL119", "CL120", "CL121")
    }
    assert found["CL119"] == ("telco", "telco.y2: it is the label under another name")
    assert found["CL120"][0] == "telco"
    assert found["CL120"][1].startswith("telco.visits: 28 different numbers, but another word makes it text, and so 29")
    assert found["CL121"] == ("bank", "bank.empty: it holds no value")
    page = (place.run_folder / "report.html").read_text()
    for code, (_, detail) in found.items():
        assert code in called.out
        assert detail in called.out
        assert detail in page
    assert "Zanzibar" not in page, "no value of the tables"
    again = place.call("audit", place.run_folder, "--json").document()
    assert {finding["code"] for finding in again["findings"]} >= {"CL119", "CL120", "CL121"}
