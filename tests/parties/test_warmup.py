"""Epochs before a single release: nothing of the party crosses, gradients come back, and the fit follows them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cutlayer.channel import Kind, Message
from cutlayer.config import Job, validated
from cutlayer.config.phases import Phase
from cutlayer.errors import ConfigError, ProtocolError
from cutlayer.jobs.check import check_job
from cutlayer.parties.faults import FaultPoint
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.protections import REGISTRY
from cutlayer.training.run_ledger import ledger_of
from tests.parties.interruptions import Copies, Fails, assert_equal, left_at_renames
from tests.parties.mutants import tamper, with_tensors
from tests.parties.noisy import Noisy
from tests.parties.processes import lay_out
from tests.parties.runs import ACTIVE, KEY, MLP, PASSIVES, Transmit, raw_job, record, run, tables, wrap_links
from tests.parties.threads import run_apart

TELCO, SHOP = PASSIVES[:2]
LINEAR = {"kind": "mlp", "hidden": [8, 3], "cut": "linear"}
GIVEN = tables(passives=2)
STEPS, WARMUP, EPOCHS = 2, 2, 4
AUDIT = {"rows": 64, "attacks": []}
FIT = {"kind": "gradients", "epochs": 5, "batch_size": 32, "lr": 0.01}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "noisy", Noisy)  # type: ignore[arg-type]


def raw(**options: Any) -> Any:
    """Two passive parties of which telco releases once, with noise, fitted by the gradients of two warm-up epochs."""
    fit, active = options.pop("fit", FIT), options.pop("active", {})
    bottom = {ACTIVE: MLP, TELCO: LINEAR, SHOP: MLP}
    schedule = {"epochs": EPOCHS, "batch_size": 96, "warmup_epochs": WARMUP, "release": {TELCO: "once"}, "audit": AUDIT}
    made = raw_job(passives=2, **{"bottom": bottom, **schedule, **options})
    made["parties"][TELCO] |= {"privacy": {"noisy": {"multiplier": 0.1}}, "fit": fit}
    made["parties"][ACTIVE]["privacy"] = active
    return made


def warmup_job(**options: Any) -> Job:
    return validated(Job, raw(**options), "")


JOB = warmup_job()


def of(messages: list[Message], *kinds: Kind) -> list[Message]:
    return [message for message in messages if message.kind in kinds]


def released(folder: Path, party: str) -> dict[str, Tensor]:
    return load_file(folder / "checkpoint" / party / "released.safetensors")


def test_gradients_cross_in_the_warm_up_alone_and_rows_once_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = record(monkeypatch)
    trained = run(JOB, GIVEN, tmp_path)
    mine = [message for message in messages if TELCO in (message.sender, message.receiver)]
    gradients = of(mine, Kind.GRADIENT)
    assert [message.epoch for message in gradients] == [epoch for epoch in range(WARMUP) for _ in range(STEPS)]
    assert not of(mine, Kind.EMBEDDING, Kind.EVALUATION)
    assert mine.index(of(mine, Kind.RELEASE)[0]) > mine.index(gradients[-1])
    split = trained.active.split
    rows = len(split.train) + len(split.validation) + len(split.test)
    assert sum(len(message.tensors["embedding"]) for message in of(mine, Kind.RELEASE)) == rows
    assert trained.active.selected_epoch >= WARMUP
    assert len(trained.passives[TELCO].fit_losses) == FIT["epochs"]


def test_zeros_stand_for_its_rows_until_they_come(whole: Any) -> None:
    transcript = whole[0] / "transcript"
    for party in (ACTIVE, TELCO):
        first = load_file(transcript / party / "epoch-0001.safetensors")
        sent = [tensor for name, tensor in first.items() if "embedding" in name and name.endswith(f"/{TELCO}")]
        back = [tensor for name, tensor in first.items() if "gradient" in name and name.endswith(f"/{TELCO}")]
        assert sent
        assert not any(bool(tensor.any()) for tensor in sent)
        assert any(bool(tensor.any()) for tensor in back)
    later = load_file(transcript / ACTIVE / "epoch-0002.safetensors")
    assert any(bool(tensor.any()) for name, tensor in later.items() if name.endswith(f"/{TELCO}"))
    assert not any("gradient" in name for name in later if name.endswith(f"/{TELCO}"))


def test_the_embedding_of_one_column_follows_the_labels(tmp_path: Path) -> None:
    """Told nothing but gradients, the party finds what its columns say of the labels that nobody else knew."""
    bottom = {ACTIVE: MLP, TELCO: {"kind": "mlp", "hidden": [8, 1], "cut": "linear"}, SHOP: MLP}
    job = warmup_job(bottom=bottom, fit={**FIT, "epochs": 40}, batch_size=48)
    trained = run(job, GIVEN, tmp_path)
    train = trained.active.split.part("train")
    labels = load_labels(trained)
    auc = roc_auc(released(tmp_path, ACTIVE)[TELCO][train, 0].double(), labels[train])
    assert abs(auc - 0.5) > 0.15
    assert trained.passives[TELCO].fit_losses[-1] < 0.95  # 1 is that of predicting zeros


def load_labels(trained: Any) -> Tensor:
    """Whether each common row is positive."""
    found: Tensor = trained.auditor.truth == 1
    return found


def test_the_ledger_counts_one_release_on_a_fitted_bottom_model() -> None:
    (total,) = ledger_of(JOB).totals
    assert (total.releases, total.condition) == (1, "conditional on the bottom model and the encoding")


DEATHS = (STEPS + 1, WARMUP * STEPS, 3 * STEPS)
"""Steps at which a run dies."""
POINTS = {
    f"{party} before its release": Fails(FaultPoint.PHASE, party, when=lambda phase: phase == Phase.RELEASE)
    for party in (ACTIVE, TELCO)
}


@pytest.fixture(scope="module")
def died(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The whole run, and the folders that it would have left had it died."""
    copies = Copies(tmp_path_factory.mktemp("whole") / "run")
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(REGISTRY, "noisy", Noisy)  # type: ignore[arg-type]
        trained = run(JOB, GIVEN, copies.folder, progress=copies.steps(*DEATHS), faults=copies.faults(POINTS))
    return copies.folder, trained, copies.left


@pytest.fixture(scope="module")
def whole(died: Any) -> Any:
    return died[:2]


@pytest.mark.parametrize("point", [*(f"step {step}" for step in DEATHS), *POINTS])
def test_a_resume_is_as_if_nothing_had_happened(died: Any, point: str) -> None:
    """Nor is a gradient lost between the warm-up and the release."""
    folder, trained, left = died
    assert_equal(left[point], run(JOB, GIVEN, left[point], resume=True), folder, trained, JOB)
    assert torch.equal(released(left[point], TELCO)["released"], released(folder, TELCO)["released"])


def test_dying_at_any_rename_changes_nothing(tmp_path: Path, whole: Any) -> None:
    """Around the end of the warm-up: the halves of its last epoch, its commit, and both halves of the release."""
    left = left_at_renames(tmp_path / "run", lambda: run(JOB, GIVEN, tmp_path / "run"), range(8, 26, 5))
    assert len(left) == 4
    for folder in left.values():
        assert_equal(folder, run(JOB, GIVEN, folder, resume=True), *whole, JOB)


def test_protections_of_the_labels_cover_the_warm_up(tmp_path: Path) -> None:
    job = warmup_job(active={"max_norm": {}}, release="once")
    check_job(job)
    (evidence, *_) = run(job, GIVEN, tmp_path).active.evidence
    assert evidence.covered == evidence.sent == WARMUP * STEPS * 2


def test_organisations_equal_one_process_to_the_last_bit(tmp_path: Path) -> None:
    made = raw()
    made["parties"][TELCO]["privacy"] = {}
    together = tmp_path / "together"
    trained = run(validated(Job, made, ""), GIVEN, together, key=KEY)
    sites = lay_out(tmp_path / "apart", made, GIVEN)
    run_apart(sites)
    assert torch.equal(released(sites[ACTIVE].run, ACTIVE)[TELCO], released(together, ACTIVE)[TELCO])
    assert json.loads((sites[TELCO].run / "outcome.json").read_text())["fit_losses"] == list(
        trained.passives[TELCO].fit_losses
    )


def test_a_request_before_the_release_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be a second release of the held-out rows, by the initial weights."""
    messages: list[Message] = []

    def asking(transmit: Transmit) -> Transmit:
        def pass_on(message: Message) -> None:
            messages.append(message)
            if (message.kind, message.receiver) == (Kind.EPOCH_END, TELCO):
                asked = next(m for m in messages if (m.kind, m.receiver) == (Kind.REQUEST, SHOP))
                transmit(replace(asked, receiver=TELCO, run=message.run, sequence=message.sequence))
                message = replace(message, sequence=message.sequence + 1)
            transmit(message)

        return pass_on

    wrap_links(monkeypatch, asking)
    made = raw()
    made["parties"][TELCO]["privacy"] = {}
    with pytest.raises(ProtocolError, match="no request before the single release"):
        run(validated(Job, made, ""), GIVEN, tmp_path)
    assert not of([message for message in messages if message.sender == TELCO], Kind.EVALUATION, Kind.RELEASE)


def test_a_gradient_of_another_shape_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tamper(monkeypatch, Kind.GRADIENT, with_tensors(lambda tensor: tensor[:, :2].contiguous()))
    with pytest.raises(ProtocolError, match="a gradient of shape"):
        run(JOB, GIVEN, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"warmup_epochs": EPOCHS}, "warmup_epochs below the 4 epochs, got 4"),
        ({"warmup_epochs": 0}, "warm-up epochs for kind gradients, got train.warmup_epochs: 0"),
        ({"release": "every_step", "fit": None}, "no train.warmup_epochs where no party releases once, got 2"),
        ({"bottom": MLP}, "a linear cut for kind gradients, got an activation after it; write cut: linear"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_job(warmup_job(**change))
