"""Whole runs with protections of features: the account they leave, noise that repeats after a resume, fresh else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.channel import Kind
from cutlayer.config import Job, validated
from cutlayer.consent import allowed
from cutlayer.kernels.rows import row_norms
from cutlayer.protections.nopeek import NoPeek
from cutlayer.training.run_ledger import ledger_after, ledger_of
from cutlayer.training.together import TrainedRun
from studies.embedding_noise import ADAPTIVE
from tests.parties.interruptions import Dying, assert_equal, interrupted
from tests.parties.runs import PASSIVES, raw_job, record, run, tables

TELCO = PASSIVES[0]
GIVEN = tables()
NOISE = {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}
FULL = {"clip": 1.0, "noise_multiplier": 0.5, "estimate": {"rows": 50, "every": 3}, "adjust": {"classes": 2}}


@pytest.fixture(autouse=True)
def studies_may_be_imported() -> Iterator[None]:
    with allowed("cutlayer_published"):
        yield


def job(privacy: Mapping[str, Any], **options: Any) -> Job:
    raw = raw_job(**{"audit": {"every": "never"}, **options})
    raw["parties"][TELCO]["privacy"] = privacy
    return validated(Job, raw, "")


def trained(privacy: Mapping[str, Any], folder: Path, **options: Any) -> TrainedRun:
    return run(job(privacy, **options), GIVEN, folder)


def test_twenty_epochs_spend_the_whole_budget_and_no_more(tmp_path: Path) -> None:
    whole = job({"dp_embedding": NOISE}, epochs=20, batch_size=96)
    done = run(whole, GIVEN, tmp_path)
    ledger = ledger_after(whole, done.active)
    (entry,), (total,) = ledger.entries, ledger.totals
    assert total.epsilon == pytest.approx(8.0, rel=1e-9)
    assert (total.delta, total.releases, total.condition) == (
        1e-5,
        20,
        "conditional on the bottom model and the encoding",
    )
    assert (total.party, total.protects, total.towards) == (TELCO, "features", ("bank",))
    assert total.auc_bound == pytest.approx(0.881, abs=5e-4)
    assert "conditional on the bottom model" in entry.statement
    assert "conditional on the bottom model" in total.statement
    metrics = done.active.evidence[0].metrics
    assert metrics["releases"] == metrics["releases_allowed"] == 20
    assert metrics["sigma"] == pytest.approx(2 * 2.6843, rel=1e-4)
    assert ledger_of(whole).totals == ledger.totals


def test_the_papers_form_has_no_total(tmp_path: Path) -> None:
    whole = job({ADAPTIVE: FULL})
    (total,) = ledger_after(whole, run(whole, GIVEN, tmp_path).active).totals
    assert total.epsilon is None
    assert "estimated from other rows" in total.why


@pytest.mark.parametrize("privacy", [{"dp_embedding": NOISE}, {ADAPTIVE: FULL, "nopeek": {"alpha": 0.3}}])
def test_a_resume_repeats_noise_estimates_and_terms(tmp_path: Path, privacy: Mapping[str, Any]) -> None:
    whole = job(privacy, audit={"rows": 64, "attacks": []})
    done = run(whole, GIVEN, tmp_path / "a")
    interrupted(whole, GIVEN, tmp_path / "b", Dying(6))
    again = run(whole, GIVEN, tmp_path / "b", resume=True)
    assert_equal(tmp_path / "b", again, tmp_path / "a", done, whole)


def test_no_two_messages_have_the_same_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bottom model stands still and the noise is all there is to see: each message of each epoch has its own."""
    messages = record(monkeypatch)
    monkeypatch.setattr(row_norms, "clip_rows", lambda rows, norm: 0.0 * rows)
    trained({"dp_embedding": NOISE}, tmp_path, optimizer={"kind": "sgd", "lr": 1e-12})
    sent = [m.tensors["embedding"] for m in messages if m.kind in (Kind.EMBEDDING, Kind.EVALUATION)]
    assert len(sent) == 2 * 4 + 2 + 1
    values = torch.cat([tensor.flatten() for tensor in sent])
    assert len(values.unique()) > 0.99 * len(values)


ADJUST = {"clip": 1.0, "noise_multiplier": 0.5, "adjust": {"classes": 2, "threshold": 0.5}}


@pytest.mark.parametrize(
    ("plain", "privacy"),
    [
        ({}, {"nopeek": {"alpha": 5.0}}),
        ({ADAPTIVE: {**ADJUST, "adjust": None}}, {ADAPTIVE: ADJUST}),
    ],
)
def test_local_terms_reach_the_bottom_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: Mapping[str, Any], privacy: Mapping[str, Any]
) -> None:
    """The first message is that of the run without the term, and the next one is not."""
    messages = record(monkeypatch)
    trained(privacy, tmp_path / "a")
    trained(plain, tmp_path / "b")
    sent = [message.tensors["embedding"] for message in messages if message.kind == Kind.EMBEDDING]
    half = len(sent) // 2
    assert torch.equal(sent[0], sent[half])
    assert not torch.equal(sent[1], sent[half + 1])


def test_the_protections_of_features_work_on_every_task(tmp_path: Path) -> None:
    for task in ("multiclass", "regression"):
        whole = job({"dp_embedding": NOISE, "nopeek": {"alpha": 0.1}}, task=task)
        done = run(whole, tables(task), tmp_path / task)
        assert {item.protection for item in done.active.evidence} == {"dp_embedding", "nopeek"}
        assert all(item.covered == item.sent for item in done.active.evidence)


def test_inputs_of_a_batch_are_numbers_and_categories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = NoPeek.local_loss

    def keep(self: Any, view: Any) -> Any:
        seen.append(view.inputs(view.rows))
        return real(self, view)

    monkeypatch.setattr(NoPeek, "local_loss", keep)
    trained({"nopeek": {"alpha": 0.1}}, tmp_path)
    numbers, hot = seen[0][:, :3], seen[0][:, 3:]
    assert seen[0].shape == (48, 3 + 6)  # four values, a code for missing and one for unknown
    assert bool((hot.sum(1) == 1).all())
    assert set(hot.unique().tolist()) == {0.0, 1.0}
    assert float(numbers.std()) == pytest.approx(1.0, abs=0.3)
