"""The benchmark of verbs runs, and refuses a verb that ends otherwise than it should."""

from __future__ import annotations

import pytest

from benchmarks import start
from benchmarks.start import VERBS, start_times


def test_verbs_are_compared_with_the_import_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "VERBS", {verb: VERBS[verb] for verb in ("check of a job with a mistyped key",)})
    found = start_times(1)
    assert [verb.verb for verb in found.verbs] == [*start.VERBS]
    for verb in found.verbs:
        assert 0 < verb.lowest <= verb.ratio <= verb.highest
        assert 0 < verb.cpu_ratio < 1  # it does not load PyTorch


def test_a_verb_that_fails_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "write_job", lambda folder: (folder / "job.yaml").write_text("parties: {}\n"))
    monkeypatch.setattr(start, "IMPORT", ("-c", "pass"))
    monkeypatch.setattr(start, "VERBS", {"check of a small job": VERBS["check of a small job"]})
    with pytest.raises(RuntimeError, match=r"check job\.yaml ended with 2"):
        start_times(1)
