"""Labels never leave the active party and features never leave a passive one; past the hook nobody sees true labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cutlayer.accounting import Event, NoFormalGuarantee, ReleasePlan
from cutlayer.channel import Kind, Message, rows_digest
from cutlayer.channel.message import SHAPES
from cutlayer.config import FrozenModel, Job
from cutlayer.data.batches import Schedule, evaluation_batches
from cutlayer.data.split import split_rows
from cutlayer.data.store import Store
from cutlayer.parties.active import ActiveParty
from cutlayer.parties.active_step import ActiveStep
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.protections.contract.base import Asset, Context, Protection, Side
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.views import ActiveView
from cutlayer.training import together
from cutlayer.training.recorder import read_truth
from cutlayer.training.together import TrainedRun
from tests.parties.interruptions import Crash, Dying
from tests.parties.runs import ACTIVE, KEY, PASSIVES, make_job, record, run, tables, unaudited_job

DEFENCES: dict[str, Any] = {"label_dp": {"eps": 1.0}, "max_norm": {}}
BETWEEN_PROCESSES = {Kind.ALIGN, Kind.MASKED, Kind.REMASKED, Kind.COMMON, Kind.PROOF}
"""Of private set intersection, before any label or feature is read; `test_psi` looks at them."""
AFTER_TRAINING = {Kind.OFFER, Kind.LOOKUP, Kind.LOOKED_UP, Kind.PROBE, Kind.ALIVE}
"""Of predictions between processes, which load no labels; the tests of serving look at them."""
UPWARDS = {Kind.EMBEDDING, Kind.EVALUATION, Kind.RELEASE}


def batches(job: Job, rows: int) -> dict[bytes, Tensor]:
    """Every batch of the job by the digest that its messages carry."""
    split = split_rows(rows, job.train.split, job.train.seed)
    schedule = Schedule(split.train, job.train.batch_size, job.train.seed)
    found = [batch for epoch in range(job.train.epochs) for batch in schedule.epoch(epoch)]
    found += [
        batch
        for part in ("train", "validation", "test")
        for batch in evaluation_batches(split.part(part), EVALUATION_ROWS)
    ]
    return {rows_digest(batch): batch for batch in found}


def tells(tensor: Tensor, secret: Tensor) -> bool:
    """Whether a column of a message (n, w), or the message read row by row, is the secret (n,) up to a linear map."""
    rows = len(secret)
    columns = [column for column in (*tensor.double().T, tensor.double().flatten()[:rows]) if len(column) == rows]
    if rows < 8 or not columns:
        return False
    correlations = torch.corrcoef(torch.stack([secret.double(), *columns]))[0, 1:]  # of one value: no number
    return bool((correlations.abs() > 1 - 1e-6).any())


def leaks(messages: list[Message], secrets: Mapping[str, Tensor], known: Mapping[bytes, Tensor]) -> list[str]:
    """Every message that tells one of the secrets, each by row of the common order."""
    return [
        f"{message.kind} of {message.sender} tells {name}"
        for message in messages
        if message.rows
        for tensor in message.tensors.values()
        for name, secret in secrets.items()
        if tells(tensor, secret[known[message.rows]])
    ]


@pytest.mark.parametrize(
    ("task", "privacy"), [("binary", {}), ("multiclass", DEFENCES)], ids=["undefended", "defended"]
)
def test_no_message_carries_a_label_or_a_feature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, privacy: Mapping[str, Any]
) -> None:
    once = {"release": {PASSIVES[2]: "once"}}
    job, given = make_job(task, passives=3, privacy=privacy, epochs=3, **once), tables(task, passives=3)
    messages = record(monkeypatch)
    run(job, given, tmp_path)
    truth, _ = read_truth(tmp_path / "transcript" / ACTIVE)
    known = batches(job, len(truth))
    labels = {f"class {code}": (truth == code).double() for code in truth.unique().tolist()} | {"codes": truth.double()}
    others = BETWEEN_PROCESSES | AFTER_TRAINING | {Kind.FILE} | {Kind.SPLIT, Kind.LABELS}
    assert {message.kind for message in messages} == set(Kind) - others
    assert leaks(messages, labels, known) == []
    for party in PASSIVES:
        own = [message for message in messages if message.sender == party and message.kind in UPWARDS]
        store = Store.open(tmp_path / "data" / party)
        features = {f"number {i}": store.numbers[:, i] for i in range(3)} | {"code": store.codes[:, 0]}
        assert own
        assert leaks(own, features, known) == []
        # Of 2,300 times 636 pairs of float32 numbers near 1 one coincides in every 25th run; a column that crossed
        # would show hundreds.
        assert len(_values_of(own) & set(store.numbers.flatten().tolist())) <= 2


def test_a_message_that_did_carry_labels_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above bites: a gradient with the labels in one column, scaled and shifted, is found."""
    job, given = make_job(), tables()

    class Tells(ActiveStep):
        def protected_gradients(self, view: ActiveView) -> dict[str, Tensor]:
            sent = super().protected_gradients(view)
            truth = self.setup.truth[view.rows].float()
            return {name: torch.cat([g[:, :-1], 0.3 - 1e-3 * truth[:, None]], dim=1) for name, g in sent.items()}

    monkeypatch.setattr("cutlayer.parties.phases.active_epochs.ActiveStep", Tells)
    messages = record(monkeypatch)
    run(job, given, tmp_path)
    truth, _ = read_truth(tmp_path / "transcript" / ACTIVE)
    found = leaks(messages, {"label": truth.double()}, batches(job, len(truth)))
    assert len(found) == sum(message.kind == Kind.GRADIENT for message in messages) > 0


def test_the_active_partys_features_never_leave_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = record(monkeypatch)
    run(unaudited_job(), tables(), tmp_path)
    assert {message.kind for message in messages if message.sender == ACTIVE and message.tensors} == {
        Kind.GRADIENT,
        Kind.ORDER,
    }


def test_no_kind_of_message_has_room_for_labels() -> None:
    """The wire's whole vocabulary: whoever adds to it must look at this list."""
    names = {kind: {*shape.tensors, *shape.fields} for kind, shape in SHAPES.items()}
    assert names == {
        Kind.HELLO: {"job", "name", "version", "rows", "ids", "rule", "purpose", "resume", "step"},
        Kind.ALIGN: {"session", "bits", "first"},
        Kind.MASKED: {"points"},
        Kind.REMASKED: {"points"},
        Kind.COMMON: {"rows"},
        Kind.PROOF: {"proof"},
        Kind.FILE: {"content", "last"},  # of drawn labels or of a release, whose messages are among these
        Kind.IDS: {"digests", "last"},
        Kind.ORDER: {"positions", "last"},
        Kind.SPLIT: {"parts", "last"},
        Kind.LABELS: {"labels", "last", "epsilon", "classes"},  # drawn ones, to partners that grade rows
        Kind.READY: {"order", "width", "pilot"},
        Kind.EMBEDDING: {"embedding"},
        Kind.GRADIENT: {"gradient"},
        Kind.REQUEST: {"part", "batch"},
        Kind.EVALUATION: {"embedding"},
        Kind.RELEASE: {"embedding"},
        Kind.EPOCH_END: {"stop", "best"},
        Kind.COMMITTED: set(),
        Kind.EVIDENCE: {"json"},
        Kind.CLOSE: {"reason"},
        Kind.OFFER: {"version", "width"},
        Kind.LOOKUP: {"ids"},
        Kind.LOOKED_UP: {"embedding", "status"},
        Kind.PROBE: set(),
        Kind.ALIVE: set(),
    }


class Spy(Protection[FrozenModel]):
    """Keeps all that a protection is shown."""

    name, config, side, protects, reference, rank = "spy", FrozenModel, Side.ACTIVE, Asset.LABELS, "none", 90
    seen: list[Context | ActiveView]

    def setup(self, context: Context) -> None:
        super().setup(context)
        self.seen = [*getattr(self, "seen", []), context]

    def embeddings_in(self, es: Mapping[str, Tensor], view: ActiveView) -> Mapping[str, Tensor]:
        self.seen.append(view)
        return es

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        self.seen.append(view)
        return g

    def event(self, plan: ReleasePlan) -> Event:
        return NoFormalGuarantee("a test")

    def metrics(self) -> Mapping[str, float]:
        return {}


def reachable(value: Any, depth: int = 6) -> Iterator[Tensor]:
    """Every tensor to be found in a view, through dataclasses, mappings, sequences and attributes."""
    if isinstance(value, Tensor):
        yield value
    elif depth == 0 or isinstance(value, str | bytes | int | float | type(None)):
        return
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from reachable(inner, depth - 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from reachable(inner, depth - 1)
    elif dataclasses.is_dataclass(value) or hasattr(value, "__dict__"):
        for inner in vars(value).values():
            yield from reachable(inner, depth - 1)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[ActiveParty]:
    """The active parties of the runs that follow."""
    parties: list[ActiveParty] = []

    def keep(*args: Any) -> ActiveParty:
        parties.append(ActiveParty(*args))
        return parties[-1]

    monkeypatch.setattr(together, "ActiveParty", keep)
    return parties


def test_past_the_hook_training_reaches_no_true_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: list[ActiveParty]
) -> None:
    spy, real, losses = Spy(FrozenModel()), together.build_chain, []

    def build(party: str, role: Any, privacy: Any, where: str) -> Chain:
        chain = real(party, role, privacy, where)
        return Chain(party, [*chain.protections, spy]) if role == "active" else chain

    def loss(of: TrainingLoss, logits: Tensor, labels: Tensor) -> Tensor:
        losses.append(labels)
        return original(of, logits, labels)

    original = TrainingLoss.__call__
    monkeypatch.setattr(together, "build_chain", build)
    monkeypatch.setattr(TrainingLoss, "__call__", loss)
    job = unaudited_job(privacy={"label_dp": {"eps": 0.5}})
    run(job, tables(), tmp_path)
    party, train = kept[0], kept[0].split.part("train")
    truth = party.setup.truth
    flipped = party.setup.labels[train] != truth[train]
    assert 0.2 < float(flipped.double().mean()) < 0.55
    held_out = torch.cat([party.split.part("validation"), party.split.part("test")])
    assert bool((party.setup.labels[held_out] == -1).all())
    expected = [b for e in range(2) for b in Schedule(party.split.train, 48, job.train.seed).epoch(e)]
    assert all(torch.equal(labels, party.setup.labels[rows]) for labels, rows in zip(losses, expected, strict=True))
    contexts = [seen for seen in spy.seen if isinstance(seen, Context)]
    assert contexts[0].labels is None
    assert contexts[-1].labels is not None
    assert torch.equal(contexts[-1].labels, party.setup.labels)
    for tensor in reachable(spy.seen):
        assert not (tensor.shape == truth.shape and torch.equal(tensor[train].long(), truth[train]))
    for view in (seen for seen in spy.seen if isinstance(seen, ActiveView)):
        assert torch.equal(view.labels, party.setup.labels[view.rows])


def drawn(job: Job, folder: Path, kept: list[ActiveParty], key: bytes, **options: Any) -> Tensor:
    """The protected labels that a run trained on."""
    run(job, tables(), folder, key=key, **options)
    return kept[-1].setup.labels


def test_labels_flip_the_same_way_in_every_run_on_one_secret(tmp_path: Path, kept: list[ActiveParty]) -> None:
    job = unaudited_job(privacy={"label_dp": {"eps": 0.5}}, epochs=1)
    first = drawn(job, tmp_path / "a", kept, KEY)
    assert torch.equal(drawn(job, tmp_path / "b", kept, KEY), first)
    longer = unaudited_job(privacy={"label_dp": {"eps": 0.5}}, epochs=2, batch_size=60)
    assert torch.equal(drawn(longer, tmp_path / "c", kept, KEY), first)
    assert not torch.equal(drawn(job, tmp_path / "d", kept, bytes(32)), first)
    weaker = unaudited_job(privacy={"label_dp": {"eps": 0.6}}, epochs=1)
    assert not torch.equal(drawn(weaker, tmp_path / "e", kept, KEY), first)


def test_a_row_flips_the_same_way_when_the_split_moves_it(tmp_path: Path, kept: list[ActiveParty]) -> None:
    """The draw is of the row and not of its place: another seed trains on other rows, and the common ones agree."""
    first = drawn(unaudited_job(privacy={"label_dp": {"eps": 0.5}}, epochs=1), tmp_path / "a", kept, KEY)
    other = drawn(unaudited_job(privacy={"label_dp": {"eps": 0.5}}, epochs=1, seed=9), tmp_path / "b", kept, KEY)
    both = np.intersect1d(kept[0].split.train, kept[1].split.train)
    assert len(both) < len(kept[0].split.train)
    assert torch.equal(first[both], other[both])


def test_labels_flip_the_same_way_after_a_resume(tmp_path: Path, kept: list[ActiveParty]) -> None:
    job = unaudited_job(privacy={"label_dp": {"eps": 0.5}})
    with pytest.raises(Crash):
        run(job, tables(), tmp_path, key=None, progress=Dying(5))
    run(job, tables(), tmp_path, key=None, resume=True)
    assert torch.equal(kept[0].setup.labels, kept[1].setup.labels)
    assert not torch.equal(kept[0].setup.labels, kept[0].setup.truth)


def test_a_passive_partys_folder_holds_no_label(tmp_path: Path) -> None:
    trained: TrainedRun = run(make_job(audit={"rows": 64, "attacks": ["norm"]}), tables(), tmp_path)
    truth, _ = read_truth(tmp_path / "transcript" / ACTIVE)
    rows = len(truth)
    for path in (path for path in tmp_path.rglob(f"*/{PASSIVES[0]}/*.safetensors")):
        for name, tensor in load_file(path).items():
            assert tensor.shape[:1] != (rows,), f"{path.name}: {name}"
            assert name != "truth"
    assert trained.active.epochs == 2


def _values_of(messages: list[Message]) -> set[float]:
    found = {
        value for message in messages for tensor in message.tensors.values() for value in tensor.flatten().tolist()
    }
    return found - {0.0}
