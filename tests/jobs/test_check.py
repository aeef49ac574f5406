"""The order of the checks of a job: rules of protections are heard, and each party's are built once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from cutlayer.config import FrozenModel, Job, validated
from cutlayer.errors import ConfigError
from cutlayer.jobs.cautions import leak_notes
from cutlayer.jobs.check import check_job
from cutlayer.lazy import Tensor
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.base import LabelProtection
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.views import ActiveView
from tests.parties.runs import make_job, raw_job

PRIVACY: dict[str, Any] = {"dithered": {}}


class DitheredConfig(FrozenModel):
    """No settings."""


class Dithered(LabelProtection[DitheredConfig]):
    """A protection with a rule, in no catalogue."""

    name = "dithered"
    config = DitheredConfig
    rank = 30
    no_guarantee = "it is part of a test"

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """The same gradient."""
        return g

    def faults(self, job: Job, party: str) -> Iterator[str]:
        """No blocks."""
        if job.train.shuffle == "blocks":
            yield f"expected train.shuffle: rows with {self.name} of {party}, got blocks; leave one of them out"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "dithered", Dithered)


def test_a_protection_brings_its_own_rule() -> None:
    check_job(make_job(privacy=PRIVACY))
    with pytest.raises(ConfigError) as refused:
        check_job(make_job(privacy=PRIVACY, shuffle="blocks"))
    assert str(refused.value) == (
        "expected train.shuffle: rows with dithered of bank, got blocks; leave one of them out"
    )


def guarded(name: str) -> Job:
    raw = raw_job(privacy=PRIVACY)
    raw["parties"][name]["guard"] = {"on_alarm": "stop"}
    raw["parties"]["bank"]["weight"] = "amount"
    return validated(Job, raw, "")


def test_rules_ask_what_a_protection_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"parties\.telco\.guard\.protected: true beside dithered, got none"):
        check_job(guarded("telco"))
    assert any("bank.weight" in note for note in leak_notes(guarded("telco")))
    monkeypatch.setattr(Dithered, "keeps_directions", True)
    monkeypatch.setattr(Dithered, "hides_lengths", True)
    check_job(guarded("telco"))
    assert not any("bank.weight" in note for note in leak_notes(guarded("telco")))


def test_a_check_builds_each_chain_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built, make = Counter[str](), Chain.__init__

    def counted(self: Chain, party: str, *rest: Any) -> None:
        built[party] += 1
        make(self, party, *rest)

    job = guarded("bank")
    monkeypatch.setattr(Chain, "__init__", counted)
    check_job(job)
    assert set(built.values()) == {1}
    assert built.keys() == job.parties.keys()
