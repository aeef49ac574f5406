"""Steps whose messages cross in parts: the same training up to rounding, and whole batches for protections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cutlayer.channel import Kind, Message
from cutlayer.config import validated
from cutlayer.config.job import Job
from cutlayer.config.train import TrainConfig
from cutlayer.errors import ConfigError, NotApplied
from cutlayer.models import Inputs
from cutlayer.parties.compute.step_order import StepOrder
from cutlayer.parties.passive_step import PassiveStep
from cutlayer.training.folder import RunFolder
from tests.parties.runs import ACTIVE, PASSIVES, raw_job, record, run, tables, unaudited_job

GIVEN = tables(passives=2)
TELCO = PASSIVES[0]
STEPS = 2 * 4
EVERYTHING = {"max_norm": {}, "dcor": {"alpha": 0.1}, "party_dropout": {"rate": 0.3}}


def job_of(parts: int, at_passives: dict[str, Any] | None = None, **options: Any) -> Job:
    raw = raw_job(passives=2, micro_batches=parts, **options)
    for name in PASSIVES[:2]:
        raw["parties"][name]["privacy"] = at_passives or {}
    return validated(Job, raw, "")


def losses(job: Job, folder: Path) -> list[float]:
    run(job, GIVEN, folder)
    return [line["loss"] for line in RunFolder(folder).history()]


def of(messages: list[Message], kind: Kind) -> list[Message]:
    return [message for message in messages if message.kind == kind]


def test_the_losses_are_those_of_the_whole_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a last batch that has fewer rows too, and with recorded layers."""
    audited: dict[str, Any] = {"audit": {"rows": 64}}
    whole = losses(job_of(1, **audited), tmp_path / "whole")
    messages = record(monkeypatch)
    parted = losses(job_of(5, **audited), tmp_path / "parted")
    assert parted == pytest.approx(whole, rel=1e-4)
    assert len(of(messages, Kind.GRADIENT)) == len(of(messages, Kind.EMBEDDING)) == 2 * 5 * STEPS
    sizes = {len(message.tensors["embedding"]) for message in of(messages, Kind.EMBEDDING)}
    assert max(sizes) == 10
    assert {message.kind for message in messages[-40:]} >= {Kind.EVALUATION, Kind.CLOSE}


def test_the_active_party_answers_a_part_before_the_next_arrives_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passive parties send all parts at once; the gradients of each part leave by themselves."""
    messages = record(monkeypatch)
    losses(job_of(3), tmp_path)
    first = [message for message in messages if (message.epoch, message.step) == (0, 0)]
    assert [message.kind for message in first if message.sender == TELCO][:3] == [Kind.EMBEDDING] * 3
    rows = [message.rows for message in of(first, Kind.EMBEDDING) if message.sender == TELCO]
    assert [message.rows for message in of(first, Kind.GRADIENT) if message.receiver == TELCO] == rows


def test_protections_act_on_the_whole_batch(tmp_path: Path) -> None:
    """All parties protect whole batches, and only the messages are in parts: the same losses to the last bit."""
    own = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 1.0}}
    runs = {n: run(job_of(n, own, privacy=EVERYTHING), GIVEN, tmp_path / str(n)) for n in (1, 3)}
    whole, parted = (run.active for run in runs.values())
    assert parted.step_losses == whole.step_losses
    for before, after in zip(whole.evidence, parted.evidence, strict=True):
        assert after.metrics == before.metrics  # releases and their cost among them
        if "embedding" in after.kinds:
            assert after.kinds["embedding"] == 3 * before.kinds["embedding"] == 3 * STEPS
        if after.unit == "gradients":
            assert after.covered == after.sent == 3 * before.sent


class SkipsOnePart(PassiveStep):
    """Sends the second part of a batch as the bottom model gave it."""

    def _send_group(self, order: StepOrder, parts: Any, *columns: Any) -> Any:
        send = self.port.send

        def tampering(kind: Kind, **content: Any) -> Message:
            if kind == Kind.EMBEDDING and content["rows"] != first:
                content["tensors"] = {"embedding": content["tensors"]["embedding"] + 1}
            return send(kind, **content)

        first = parts[0][1]
        self.port.send = tampering  # type: ignore[method-assign]
        try:
            return super()._send_group(order, parts, *columns)
        finally:
            self.port.send = send  # type: ignore[method-assign]


def test_a_part_that_bypasses_its_noise_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.parties.phases.passive_side.PassiveStep", SkipsOnePart)
    messages = record(monkeypatch)
    with pytest.raises(NotApplied, match=f"the embedding for {ACTIVE} is not what .* \\(dp_embedding\\)"):
        losses(job_of(3, {"dp_embedding": {"clip": 1.0, "noise_multiplier": 1.0}}), tmp_path)
    assert sum(message.sender == TELCO for message in of(messages, Kind.EMBEDDING)) == 1


class Normalised(nn.Module):
    """A user's module that mixes the rows of a batch."""

    def __init__(self, inputs: Inputs, width: int = 4) -> None:
        super().__init__()
        self.width = width
        self.layers = nn.Sequential(nn.Linear(inputs.numbers, width), nn.BatchNorm1d(width))

    def forward(self, codes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(numbers)
        return result


def test_a_model_that_mixes_rows_is_refused(tmp_path: Path) -> None:
    mixing = {"kind": "python", "path": f"{__name__}:Normalised"}
    with pytest.raises(ConfigError, match=r"train\.micro_batches: 2"):
        losses(job_of(2, bottom=mixing), tmp_path)


def test_the_setting_is_part_of_the_contract_where_it_is_used() -> None:
    assert (
        unaudited_job().digest() == unaudited_job(micro_batches=1).digest() != unaudited_job(micro_batches=2).digest()
    )
    with pytest.raises(ConfigError, match="micro_batches up to the 4 rows of a batch, got 5"):
        validated(TrainConfig, {"batch_size": 4, "micro_batches": 5}, "train")
