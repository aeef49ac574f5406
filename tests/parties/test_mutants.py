"""What must not go unnoticed: wrong messages, peers that are elsewhere, and protections that were passed by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from torch import Tensor

from cutlayer.accounting import Event, NoFormalGuarantee, ReleasePlan
from cutlayer.channel import Kind, Message, rows_digest
from cutlayer.config import FrozenModel, Job, validated
from cutlayer.errors import AlignmentError, CutlayerError, DataError, NotApplied, PeerLost, ProtocolError
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.active_step import ActiveStep
from cutlayer.parties.compute.step_order import StepOrder
from cutlayer.parties.passive import PassiveParty
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.parties.passive_step import PassiveStep
from cutlayer.parties.phases import active_epochs, agree, passive_side, set_up
from cutlayer.parties.session.outcome import ActiveOutcome
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.base import Asset, Protection, Side
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.views import ActiveView, PassiveView
from cutlayer.training import together
from tests.parties.mutants import Change, doubled, lost, tamper, with_fields, with_stamp, with_tensors
from tests.parties.runs import ACTIVE, PASSIVES, raw_job, record, run, tables, unaudited_job

JOB = unaudited_job(passives=2, privacy={"label_dp": {"eps": 2.0}, "max_norm": {}})
TWO = unaudited_job(privacy={"label_dp": {"eps": 2.0}, "max_norm": {}})
"""A job of two parties, where a third one has no part in what is wrong."""
GIVEN = tables(passives=2)
TELCO = PASSIVES[0]
OTHER_ROWS = rows_digest(torch.arange(48))

WRONG: dict[str, tuple[Kind, Change]] = {
    "gradient of other rows": (Kind.GRADIENT, with_stamp(rows=OTHER_ROWS)),
    "gradient without rows": (Kind.GRADIENT, with_stamp(rows=b"")),
    "gradient of another step": (Kind.GRADIENT, with_stamp(step=2)),
    "gradient of another epoch": (Kind.GRADIENT, with_stamp(epoch=1)),
    "gradient of another shape": (Kind.GRADIENT, with_tensors(lambda t: t[:, :-1])),
    "gradient of fewer rows": (Kind.GRADIENT, with_tensors(lambda t: t[:-1])),
    "gradient of another dtype": (Kind.GRADIENT, with_tensors(lambda t: t.double())),
    "gradient of another rank": (Kind.GRADIENT, with_tensors(lambda t: t[None])),
    "gradient lost": (Kind.GRADIENT, lost),
    "embedding of other rows": (Kind.EMBEDDING, with_stamp(rows=OTHER_ROWS)),
    "embedding of another step": (Kind.EMBEDDING, with_stamp(step=2)),
    "embedding of another epoch": (Kind.EMBEDDING, with_stamp(epoch=0, step=-1)),
    "embedding of another shape": (Kind.EMBEDDING, with_tensors(lambda t: t[:, :-1])),
    "embedding of fewer rows": (Kind.EMBEDDING, with_tensors(lambda t: t[:-1])),
    "embedding of another dtype": (Kind.EMBEDDING, with_tensors(lambda t: t.half())),
    "embedding lost": (Kind.EMBEDDING, lost),
    "embedding of another run": (Kind.EMBEDDING, with_stamp(run="another")),
    "embedding for another party": (Kind.EMBEDDING, with_stamp(receiver=PASSIVES[1])),
    "embedding by another name": (Kind.EMBEDDING, with_stamp(sender="nobody")),
    "embedding out of turn": (Kind.EMBEDDING, lambda m: [*with_stamp(kind=Kind.EVALUATION)(m)]),
    "evaluation of other rows": (Kind.EVALUATION, with_stamp(rows=OTHER_ROWS)),
    "evaluation of another shape": (Kind.EVALUATION, with_tensors(lambda t: t[1:])),
    "request for other rows": (Kind.REQUEST, with_stamp(rows=OTHER_ROWS)),
    "request for training rows": (Kind.REQUEST, with_fields(part="train")),
    "request for an unknown part": (Kind.REQUEST, with_fields(part="../../etc")),
    "request for a batch there is not": (Kind.REQUEST, with_fields(batch=99)),
    "request for a batch below none": (Kind.REQUEST, with_fields(batch=-1)),
    "end of another epoch": (Kind.EPOCH_END, with_stamp(epoch=1)),
    "epoch end lost": (Kind.EPOCH_END, lost),
    "close lost": (Kind.CLOSE, lost),
    "commit of another epoch": (Kind.COMMITTED, with_stamp(epoch=1)),
    "job of another digest": (Kind.HELLO, with_fields(job="0" * 32)),
    "another protocol": (Kind.HELLO, with_fields(version="0")),
    "a field of another type": (Kind.HELLO, with_fields(rows="240")),
    "a field too many": (Kind.HELLO, with_fields(labels="0101")),
    "a width that is not the embedding's": (Kind.READY, with_fields(width=99)),
    "evidence that is no JSON": (Kind.EVIDENCE, with_fields(json="{")),
    "evidence that is no list": (Kind.EVIDENCE, with_fields(json="3")),
    "evidence of other keys": (Kind.EVIDENCE, with_fields(json='[{"a": 1}]')),
    "evidence of other types": (
        Kind.EVIDENCE,
        with_fields(
            json='[{"protection": "x", "party": "p", "unit": "rows", "covered": "all", "sent": 1, "changed": 1}]'
        ),
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_message_is_a_protocol_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    tamper(monkeypatch, *WRONG[wrong], nth=1 if WRONG[wrong][0] in (Kind.GRADIENT, Kind.EMBEDDING) else 0)
    job = JOB if "another party" in wrong else TWO
    with pytest.raises(ProtocolError):
        run(job, {name: GIVEN[name] for name in job.parties}, tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> ActiveOutcome:
    return run(TWO, tables(), tmp_path_factory.mktemp("undisturbed")).active


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.EMBEDDING, Kind.GRADIENT, Kind.EPOCH_END, Kind.EVALUATION])
def test_a_repeated_message_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: ActiveOutcome, kind: Kind
) -> None:
    tamper(monkeypatch, kind, doubled, nth=1)
    assert run(TWO, tables(), tmp_path).active.step_losses == undisturbed.step_losses


@pytest.mark.parametrize(
    "change",
    [lambda p: p.flip(0), lambda p: p[torch.randperm(len(p), generator=torch.Generator().manual_seed(0))]],
    ids=["reversed", "shuffled"],
)
def test_rows_in_another_order_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    tamper(monkeypatch, Kind.ORDER, with_tensors(change))
    with pytest.raises(AlignmentError, match="another order"):
        run(JOB, GIVEN, tmp_path)


@pytest.mark.parametrize(
    "change", [lambda p: p.clone().fill_(3), lambda p: p + 10**6, lambda p: p - 10**6], ids=["same", "above", "below"]
)
def test_positions_that_are_no_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    tamper(monkeypatch, Kind.ORDER, with_tensors(change))
    with pytest.raises(AlignmentError):
        run(JOB, GIVEN, tmp_path)


def test_a_peer_with_another_job_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = unaudited_job(passives=2, seed=4)
    monkeypatch.setattr(together, "PassiveParty", lambda job, local, port: PassiveParty(other, local, port))
    with pytest.raises(ProtocolError, match=f"{TELCO} holds another job than {ACTIVE}"):
        run(JOB, GIVEN, tmp_path)


def test_ids_of_another_kind_are_refused(tmp_path: Path) -> None:
    texts = pa.array([f"c{key}" for key in GIVEN[TELCO]["id"].to_pylist()])
    given = {**GIVEN, TELCO: GIVEN[TELCO].set_column(0, "id", texts)}
    with pytest.raises(AlignmentError, match=r"one kind.*integer.*text"):
        run(JOB, given, tmp_path)


def test_parties_without_a_common_row_are_refused(tmp_path: Path) -> None:
    ids = pa.array([key + 10**6 for key in GIVEN[TELCO]["id"].to_pylist()])
    with pytest.raises(AlignmentError):
        run(JOB, {**GIVEN, TELCO: GIVEN[TELCO].set_column(0, "id", ids)}, tmp_path)


@pytest.mark.parametrize("batch_size", [186, 10_000])
def test_a_batch_larger_than_the_training_rows_is_refused(tmp_path: Path, batch_size: int) -> None:
    with pytest.raises(DataError, match="batch"):
        run(unaudited_job(passives=2, batch_size=batch_size), GIVEN, tmp_path)
    assert not list(tmp_path.glob("**/*.safetensors"))


def test_a_batch_of_all_training_rows_is_taken(tmp_path: Path, undisturbed: ActiveOutcome) -> None:
    rows = len(undisturbed.split.train)
    assert len(run(unaudited_job(batch_size=rows), tables(), tmp_path).active.step_losses) == 2


class Shrink(Protection[FrozenModel]):
    """A passive party's protection that halves what it sends."""

    name, config, side, protects, reference, rank = "shrink", FrozenModel, Side.PASSIVE, Asset.FEATURES, "none", 10

    def embedding_out(self, e: Tensor, view: PassiveView) -> Tensor:
        return e / 2

    def event(self, plan: ReleasePlan) -> Event:
        return NoFormalGuarantee("a test")

    def metrics(self) -> Mapping[str, float]:
        return {"factor": 0.5}


@pytest.fixture
def shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every passive party the protection above."""
    real = together.build_chain

    def build(party: str, role: Any, privacy: Any, where: str) -> Chain:
        return real(party, role, privacy, where) if role == "active" else Chain(party, [Shrink(FrozenModel())])

    monkeypatch.setattr(together, "build_chain", build)
    monkeypatch.setitem(REGISTRY, Shrink.name, Shrink)


@pytest.mark.usefixtures("shrinking")
def test_a_passive_partys_evidence_travels(tmp_path: Path) -> None:
    trained = run(JOB, GIVEN, tmp_path)
    stated = [item for item in trained.active.evidence if item.protection == "shrink"]
    messages = 2 * 4 + 2 + 1  # training steps, one evaluation an epoch, and the last one
    assert [item.party for item in stated] == list(PASSIVES[:2])
    assert {(item.covered, item.sent, item.changed) for item in stated} == {(messages, messages, messages)}


@pytest.mark.usefixtures("shrinking")
def test_a_party_speaks_for_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_another(message: Message) -> list[Message]:
        stated = [{**item, "party": ACTIVE} for item in json.loads(str(message.fields["json"]))]
        return with_fields(json=json.dumps(stated))(message)

    tamper(monkeypatch, Kind.EVIDENCE, as_another)
    assert [item.party for item in run(JOB, GIVEN, tmp_path).active.evidence[-2:]] == list(PASSIVES[:2])


def replace_part(monkeypatch: pytest.MonkeyPatch, mutant: type[Any]) -> None:
    """Give every party the mutant in place of the part that it changes."""
    (part,) = mutant.__bases__
    parts = (active_epochs, agree, passive_side, set_up)
    module = next(module for module in parts if hasattr(module, part.__name__))
    monkeypatch.setattr(module, part.__name__, mutant)


class SkipsOneGradient(ActiveStep):
    """Sends one gradient as the loss gave it."""

    def protected_gradients(self, view: ActiveView) -> dict[str, Tensor]:
        if view.step != 5:
            return super().protected_gradients(view)
        return {name: embedding.grad for name, embedding in view.embeddings.items() if embedding.grad is not None}


class CountsABareGradient(ActiveStep):
    """Has every hook called and counted, and sends one gradient as the loss gave it."""

    def protected_gradients(self, view: ActiveView) -> dict[str, Tensor]:
        sent = super().protected_gradients(view)
        if view.step != 5:
            return sent
        return {name: embedding.grad for name, embedding in view.embeddings.items() if embedding.grad is not None}


class SkipsOneParty(ActiveStep):
    """Protects what one party gets and not what the other does."""

    def protected_gradients(self, view: ActiveView) -> dict[str, Tensor]:
        bare = {name: embedding.grad for name, embedding in view.embeddings.items() if embedding.grad is not None}
        passives = self.passives
        ports, passives.gradient_ports = passives.gradient_ports, {TELCO: passives.gradient_ports[TELCO]}
        try:
            return {**bare, **super().protected_gradients(view)}
        finally:
            passives.gradient_ports = ports


class SkipsLabels(ActiveSetup):
    """Trains on the true labels."""

    def _protect_labels(self, *given: Any) -> None:
        super()._protect_labels(*given)
        self.state.chain._coverage._covered.clear()
        self.labels = self.truth


class SkipsOneEmbedding(PassiveSetup):
    """Answers one evaluation with the bare embedding."""

    def protected(self, view: PassiveView) -> Tensor:
        chain, self.state.chain = self.state.chain, Chain("nobody", [])
        released = super().protected(view)
        self.state.chain = chain
        return released


@pytest.mark.usefixtures("shrinking")
@pytest.mark.parametrize(
    ("mutant", "kind", "before", "reason"),
    [
        (SkipsOneGradient, Kind.GRADIENT, 5 * 2, rf"the gradient for {TELCO} is not what .* \(max_norm\)"),
        (CountsABareGradient, Kind.GRADIENT, 5 * 2, rf"the gradient for {TELCO} is not what .* \(max_norm\)"),
        (SkipsOneParty, Kind.GRADIENT, 1, rf"the gradient for {PASSIVES[1]} is not what .* \(max_norm\)"),
        (SkipsLabels, Kind.GRADIENT, 0, "label_dp of bank covered 0 of"),
        (SkipsOneEmbedding, Kind.EVALUATION, 0, f"the evaluation for {ACTIVE} is not what .* \\(shrink\\)"),
    ],
)
def test_a_protection_that_was_passed_by_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: type[Any], kind: Kind, before: int, reason: str
) -> None:
    replace_part(monkeypatch, mutant)
    messages = record(monkeypatch)
    with pytest.raises(NotApplied, match=reason) as caught:
        run(JOB, GIVEN, tmp_path)
    assert caught.value.exit_code == 1
    if mutant is not SkipsLabels:
        sent = sum(message.kind == kind for message in messages)
        assert sent == before, "the message that bypassed its protection was sent"


class SkipsOneEmbeddingInTraining(PassiveStep):
    """Sends one batch as the bottom model gave it."""

    def take(self, order: StepOrder, next_rows: Tensor | None) -> Any:
        chain = self.state.chain
        self.state.chain = Chain("nobody", []) if order.global_step == 5 else chain
        yield from super().take(order, next_rows)
        self.state.chain = chain


@pytest.mark.parametrize("mutant", [SkipsOneEmbedding, SkipsOneEmbeddingInTraining])
def test_an_embedding_that_bypasses_its_noise_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: type[Any]
) -> None:
    raw = raw_job()
    raw["parties"][TELCO]["privacy"] = {"dp_embedding": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}}
    replace_part(monkeypatch, mutant)
    wanted = rf"{TELCO}: the (embedding|evaluation) for {ACTIVE} is not what its protections returned \(dp_embedding\)"
    with pytest.raises(NotApplied, match=wanted):
        run(validated(Job, raw, ""), tables(), tmp_path)


@pytest.mark.parametrize(("reason", "error"), [("NotApplied", ProtocolError), ("PeerLost", PeerLost)])
@pytest.mark.parametrize("kind", [Kind.GRADIENT, Kind.EPOCH_END, Kind.CLOSE, Kind.EMBEDDING, Kind.EVIDENCE])
def test_a_peer_that_gave_up_is_not_one_that_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, reason: str, error: type[CutlayerError]
) -> None:
    def gives_up(message: Message) -> list[Message]:
        stamp = {"kind": Kind.CLOSE, "epoch": -1, "step": -1, "rows": b"", "tensors": {}}
        return with_stamp(**stamp, fields={"reason": reason})(message)

    tamper(monkeypatch, kind, gives_up)
    with pytest.raises(error, match=r"left: NotApplied|has lost another party"):
        run(JOB, GIVEN, tmp_path)
