"""Trainings over compressed links: utility, guarantees, records and what the report says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.channel import Kind
from cutlayer.channel.transcript import read_epochs
from cutlayer.config import Job, validated
from cutlayer.training.comparisons import compared_jobs
from cutlayer.training.folder import RunFolder
from tests.parties.interruptions import history
from tests.parties.recorded import Recording
from tests.parties.runs import ACTIVE, PASSIVES, make_job, raw_job, run, tables

GIVEN = tables()
TELCO = PASSIVES[0]
OWN = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 1.0}}


def job_with(form: str | None, privacy: dict[str, Any] | None = None, **options: Any) -> Job:
    raw = raw_job(audit={"rows": 64, "attacks": []}, **options) | {"channel": {"compress": form}}
    raw["parties"][TELCO]["privacy"] = privacy or {}
    return validated(Job, raw, "")


@pytest.mark.parametrize(("form", "within"), [("float16", 1e-3), ("bfloat16", 1e-2), ("int8", 0.05)])
def test_the_losses_are_near_those_without(form: str, within: float, recorded: Recording) -> None:
    plain, packed = (recorded(job_with(each), GIVEN).trained.active.step_losses for each in (None, form))
    assert packed == pytest.approx(plain, rel=within)
    assert packed != plain


def test_guarantee_ledger_and_evidence_are_those_without(recorded: Recording) -> None:
    plain, packed = (recorded(job_with(form, OWN), GIVEN).trained.active for form in (None, "int8"))
    for item, same in zip(packed.evidence, plain.evidence, strict=True):
        counted = {name: value for name, value in same.metrics.items() if name.startswith(("releases", "sigma"))}
        assert counted
        assert counted.items() <= item.metrics.items()
    assert [(item.covered, item.sent) for item in packed.evidence] == [(i.covered, i.sent) for i in plain.evidence]


def test_the_transcripts_hold_what_the_receiver_read(recorded: Recording) -> None:
    done = recorded(job_with("int8"), GIVEN)
    messages, trained = done.messages, done.trained
    sides = [dict(read_epochs(RunFolder(done.folder).transcript(name)))[0][0] for name in (ACTIVE, TELCO)]
    for group in ("embeddings", "gradients"):
        here, there = (getattr(side, group)[TELCO] for side in sides)
        assert torch.equal(here, there)
        levels = here / (here.abs().amax(dim=1, keepdim=True) / 127).clamp_min(1e-30)
        assert torch.allclose(levels, levels.round(), atol=1e-3)
    crossed = {kind: sum(m.nbytes for m in messages if m.kind == kind) for kind in Kind}
    assert trained.kinds[ACTIVE]["gradient"] == (crossed[Kind.GRADIENT], 0)
    assert trained.kinds[TELCO]["embedding"] == (crossed[Kind.EMBEDDING], 0)
    lines = RunFolder(done.folder).history()
    assert sum(line["bytes"]["embedding"] for line in lines) == crossed[Kind.EMBEDDING]
    assert trained.traffic[TELCO] == (trained.traffic[ACTIVE][1], trained.traffic[ACTIVE][0])


def test_under_one_key_a_run_repeats_its_rounding(tmp_path: Path, recorded: Recording) -> None:
    job = job_with("int8", OWN)
    first, second = recorded(job, GIVEN), run(job, GIVEN, tmp_path)
    assert first.trained.active.step_losses == second.active.step_losses
    assert history(first.folder) == history(tmp_path)


def test_the_form_is_part_of_the_contract_and_can_be_compared_with_none() -> None:
    assert make_job().digest() == job_with(None).digest() != job_with("int8").digest()
    job = validated(Job, {**raw_job(), "channel": {"compress": "int8"}, "compare": ["uncompressed"]}, "")
    ((named, other),) = compared_jobs(job)
    assert named.label == "uncompressed"
    assert other.channel.compress is None
    assert other.model_copy(update={"channel": job.channel}).digest() == job.digest()
