"""The benchmark of attacks on features names what each attack recovers, and data sets that are not there."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import feature_attacks


@pytest.mark.usefixtures("small_decoder")
def test_what_an_attack_recovers_is_summed_up(
    monkeypatch: pytest.MonkeyPatch, few_rows: Callable[[ModuleType, int], None]
) -> None:
    few_rows(feature_attacks, 4000)
    monkeypatch.setattr(feature_attacks, "EPOCHS", {"Adult": 1, "Criteo": 1})
    monkeypatch.setattr(feature_attacks, "ATTACKS", ("inversion",))
    monkeypatch.setattr(feature_attacks, "DATA", Path("nowhere"))
    monkeypatch.setattr(feature_attacks, "AUDIT", {"layers": False, "rows": 1024})
    monkeypatch.setattr("cutlayer.training.malicious_runs.MAX_AUXILIARY_ROWS", 200)
    result = feature_attacks.feature_attacks(1)
    assert result.skipped == ("Criteo",)
    assert [(read.party, read.attack) for read in result.attacks] == [
        ("census_office", "inversion"),
        ("employer", "inversion"),
    ]
    for read in result.attacks:
        assert 0.5 < read.r2 < read.best_column[1] <= 1
        assert read.other_columns is not None
        assert read.other_columns < 0.3
