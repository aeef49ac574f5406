"""`python -m tools.faults --kills` and `--runs` in seconds: that the tool works; results are in docs/results."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.faults import kills
from tools.faults.__main__ import main


@pytest.mark.parametrize("rows", ["common", "all"])
def test_each_organisation_is_killed_once_and_nothing_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rows: str
) -> None:
    """A change after the run is noticed: the tool does compare."""
    compare, noticed = kills._differences, list[str]()

    def and_after_a_change(base: Path, out: str) -> Iterator[str]:
        yield from compare(base, out)
        ledger = base / kills.ACTIVE / out / "ledger.json"
        ledger.write_bytes(ledger.read_bytes() + b" ")
        history = base / kills.ACTIVE / out / "history.jsonl"
        history.write_text("".join(history.read_text().splitlines(keepends=True)[:-1]))
        noticed.extend(compare(base, out))

    monkeypatch.setattr(kills, "EPOCHS", 4)
    monkeypatch.setattr(kills, "_differences", and_after_a_change)
    monkeypatch.setattr(sys, "argv", ["tools.faults", "--kills", "1", "--seed", "1", "--rows", rows])
    assert main() == 0
    ended = json.loads(capsys.readouterr().out)
    assert ended["wrong"] == []
    assert ended["kills"] == {"bank": 1, "telco": 1}
    assert {problem.partition(": ")[2] for problem in noticed} == {"ledger of bank", "history"}


def test_runs_on_all_rows_through_a_harmed_link_end_in_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kills, "EPOCHS", 3)
    monkeypatch.setattr(sys, "argv", ["tools.faults", "--runs", "1", "--seed", "1", "--rows", "all"])
    assert main() == 0
    ended = json.loads(capsys.readouterr().out)
    assert ended["wrong"] == []
    assert sum(ended["faults"].values()) >= 4
