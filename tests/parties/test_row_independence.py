"""A party whose guarantee needs rows that do not move each other sends nothing about features without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from cutlayer.channel import Kind, Port
from cutlayer.config import Job, validated
from cutlayer.consent import allowed
from cutlayer.errors import ConfigError
from cutlayer.jobs.forecast import forecast
from cutlayer.models import Inputs
from tests.parties.runs import PASSIVES, raw_job, run, tables

TELCO = PASSIVES[0]
PRIVACY = {
    "dp_embedding": {"clip": 1.0, "noise_multiplier": 1.0},
    "dp_bottom": {"clip": 1.0, "noise_multiplier": 1.0},
}


class Centred(nn.Module):
    """A user's module that subtracts the mean of the batch."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.width = 3
        self.layer = nn.Linear(inputs.numbers, 3)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        result: Tensor = self.layer(numbers)
        return result - result.mean(0)


def job(given: dict[str, Any] | None = None, **privacy: Any) -> Job:
    raw = raw_job(bottom={"kind": "python", "path": "tests.parties.test_row_independence:Centred"})
    raw["parties"][TELCO]["privacy"] = privacy
    for name, path in (given or {}).items():
        raw["parties"][name]["table"] = str(path)
    return validated(Job, raw, "")


@pytest.mark.parametrize("name", PRIVACY)
def test_it_is_refused_before_any_embedding_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    sent: list[Kind] = []
    plain = Port.send

    def send(self: Port, kind: Kind, *args: Any, **options: Any) -> None:
        sent.append(kind)
        plain(self, kind, *args, **options)

    monkeypatch.setattr(Port, "send", send)
    with pytest.raises(ConfigError, match=f"embeds every row on its own, for {name} of {TELCO}"):
        run(job(**{name: PRIVACY[name]}), tables(), tmp_path)
    assert sent
    assert not {Kind.EMBEDDING, Kind.EVALUATION, Kind.RELEASE} & set(sent)


@pytest.mark.parametrize("name", PRIVACY)
def test_check_refuses_it(tmp_path: Path, name: str) -> None:
    paths = {party: tmp_path / f"{party}.parquet" for party in tables()}
    for party, table in tables().items():
        pq.write_table(table, paths[party])
    state = torch.get_rng_state()
    with allowed("tests.parties.test_row_independence"):
        forecast(job(paths))
        with pytest.raises(ConfigError, match=f"embeds every row on its own, for {name} of {TELCO}"):
            forecast(job(paths, **{name: PRIVACY[name]}))
    assert torch.equal(state, torch.get_rng_state())


def test_without_a_guarantee_per_row_rows_may_be_mixed(tmp_path: Path) -> None:
    assert run(job(nopeek={"alpha": 0.1}), tables(), tmp_path).active.epochs == 2
