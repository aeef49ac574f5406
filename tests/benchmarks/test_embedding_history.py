"""The benchmark of the embeddings of all epochs reads those of the first, which a penalty has hardly changed."""

from collections.abc import Callable
from types import ModuleType

import pytest

from benchmarks import embedding_history, other_defences


@pytest.mark.usefixtures("small_decoder")
def test_the_first_epoch_reveals_more_than_the_last(
    monkeypatch: pytest.MonkeyPatch, few_rows: Callable[[ModuleType, int], None]
) -> None:
    few_rows(embedding_history, 1000)
    monkeypatch.setattr(other_defences, "EPOCHS", 5)
    monkeypatch.setattr(embedding_history, "NAMES", ("nopeek 1",))
    monkeypatch.setattr("cutlayer.training.malicious_runs.MAX_AUXILIARY_ROWS", 150)
    parties = {part.party: part for part in embedding_history.embedding_history(1).parties}
    assert set(parties) == {"census_office", "employer"}
    employer = parties["employer"]
    assert employer.first > employer.last + 0.1
    assert all(0.5 <= part.moved_direction < 0.9 and part.last_direction > 0.5 for part in parties.values())
