"""Parties that release each row once: what crosses, what is kept, what it costs, and that nothing is drawn twice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cutlayer.accounting import Entry, Total
from cutlayer.channel import Kind, Message
from cutlayer.config import Job, TrainConfig, validated
from cutlayer.consent import allowed
from cutlayer.data.split import split_rows
from cutlayer.errors import BudgetExceeded, CheckpointError, ConfigError, NotApplied, ProtocolError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.faults import FaultPoint
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.parties.phases import release
from cutlayer.parties.session.plan import plan_of
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.views import PassiveView
from cutlayer.training.keys import Keys
from cutlayer.training.run_ledger import ledger_after, ledger_of
from tests.parties.interruptions import Calls, Dying, Fails, assert_equal, interrupted, left_at_renames, of_kind
from tests.parties.mutants import tamper, with_fields, with_stamp, with_tensors
from tests.parties.noisy import Noisy
from tests.parties.processes import lay_out
from tests.parties.recorded import Recording
from tests.parties.runs import ACTIVE, KEY, MLP, PASSIVES, make_job, raw_job, record, run, tables
from tests.parties.threads import run_apart

TELCO, SHOP = PASSIVES[:2]
LINEAR = {"kind": "linear", "width": 3}
BOTTOMS = {ACTIVE: MLP, TELCO: LINEAR, SHOP: MLP}
GIVEN = tables(passives=2)
T = TypeVar("T", Entry, Total)
STEPS, EPOCHS = 2, 3


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "noisy", Noisy)  # type: ignore[arg-type]


def raw(fit: Mapping[str, Any] | None = None, privacy: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """Two passive parties of which telco releases once, with noise."""
    options = {
        "epochs": EPOCHS,
        "batch_size": 96,
        "audit": {"rows": 64, "attacks": []},
        "release": {TELCO: "once"},
        "bottom": BOTTOMS,
    } | options
    made = raw_job(passives=2, **options)
    made["parties"][TELCO] |= {"privacy": {"noisy": {"multiplier": 0.1}} if privacy is None else privacy}
    if fit is not None:
        made["parties"][TELCO]["fit"] = fit
    return made


def once(*args: Any, **options: Any) -> Job:
    return validated(Job, raw(*args, **options), "")


JOB = once({"kind": "pca"}, active_features=False)


def of(messages: list[Message], *kinds: Kind) -> list[Message]:
    return [message for message in messages if message.kind in kinds]


def released(folder: Path, party: str, name: str = "released") -> Tensor:
    return load_file(folder / "checkpoint" / party / "released.safetensors")[name]


def about(entries: Sequence[T], asset: str) -> list[T]:
    """Entries or totals of the ledger about an asset."""
    return [entry for entry in entries if entry.protects == asset]


def test_every_row_crosses_once_and_no_gradient_comes_back(recorded: Recording) -> None:
    whole = recorded(JOB, GIVEN)
    messages, trained = whole.messages, whole.trained
    mine = [message for message in messages if TELCO in (message.sender, message.receiver)]
    sent = of(mine, Kind.RELEASE)
    split = trained.active.split
    count = len(split.train) + len(split.validation) + len(split.test)
    assert sum(len(message.tensors["embedding"]) for message in sent) == count
    assert not of(mine, Kind.EMBEDDING, Kind.EVALUATION, Kind.GRADIENT)
    begun = next(index for index, message in enumerate(messages) if message.kind == Kind.GRADIENT)
    assert all(message.kind != Kind.RELEASE for message in messages[begun:])
    others = [message for message in messages if SHOP in (message.sender, message.receiver)]
    assert len(of(others, Kind.GRADIENT)) == len(of(others, Kind.EMBEDDING)) == EPOCHS * STEPS
    up, _ = trained.traffic[TELCO]
    ids = GIVEN[TELCO].num_rows * 16
    assert up == ids + count * LINEAR["width"] * 4  # type: ignore[operator]


def test_what_is_kept_is_what_was_sent_and_what_the_top_model_reads(recorded: Recording) -> None:
    whole = recorded(JOB, GIVEN)
    sent = torch.cat([message.tensors["embedding"] for message in of(whole.messages, Kind.RELEASE)])
    kept = released(whole.folder, ACTIVE, TELCO)
    assert torch.equal(kept, released(whole.folder, TELCO))
    split = split_rows(len(kept), TrainConfig().split, 3)
    assert torch.equal(sent, kept[torch.cat([split.part(part) for part in ("train", "validation", "test")])])
    transcripts = load_file(whole.folder / "transcript" / ACTIVE / "epoch-0002.safetensors")
    names = [name for name in transcripts if name.endswith(f"/{TELCO}")]
    assert names == [f"0/embedding/000/{TELCO}"] or len(names) > 1
    assert all("embedding" in name for name in names)
    for name in names:
        assert torch.equal(transcripts[name], kept[transcripts[f"{name.split('/')[0]}/rows"]])


def test_the_release_is_what_the_kept_bottom_model_says(tmp_path: Path) -> None:
    """Without a protection it is the bottom model's output, and that model is one and the same to the end."""
    trained = run(once({"kind": "pca"}, privacy={}), GIVEN, tmp_path)
    weights = load_file(tmp_path / "checkpoint" / TELCO / "best.safetensors")
    first = load_file(tmp_path / "checkpoint" / TELCO / "released.safetensors")
    assert all(torch.equal(tensor, first[name]) for name, tensor in weights.items())
    scores = first["released"][trained.active.split.part("train")]
    covariance = torch.cov(scores.double().T)
    assert float((covariance - covariance.diag().diag()).abs().max()) < 1e-5  # principal components are uncorrelated
    assert 0 < trained.passives[TELCO].fit_losses[0] < 1


def test_embedding_attacks_still_run_and_gradient_attacks_do_not(tmp_path: Path) -> None:
    trained = run(once(None, audit={"rows": 64, "attacks": ["spectral", "norm"]}), GIVEN, tmp_path)
    assert trained.auditor is not None
    labels = {cell.label for cell in trained.auditor.series}
    assert f"{TELCO}/embedding/spectral" in labels
    assert not {f"{TELCO}/gradient/{attack}" for attack in ("norm", "spectral")} & labels
    assert {f"{SHOP}/gradient/norm", f"{SHOP}/embedding/spectral"} <= labels


@pytest.mark.parametrize("privacy", [{"max_norm": {}}, {"dcor": {"alpha": 0.01}}, {"dimip": {"lam": 0.5}}])
def test_gradient_protections_cover_the_others(
    tmp_path: Path, privacy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = raw(epochs=1)
    made["parties"][ACTIVE]["privacy"] = privacy
    messages = record(monkeypatch)
    trained = run(validated(Job, made, ""), GIVEN, tmp_path)
    evidence = trained.active.evidence[0]
    assert evidence.covered == evidence.sent == STEPS
    assert {message.receiver for message in of(messages, Kind.GRADIENT)} == {SHOP}


def test_party_dropout_still_drops_it(tmp_path: Path) -> None:
    made = raw(release="once")
    made["parties"][ACTIVE]["privacy"] = {"party_dropout": {"rate": {TELCO: 0.5}}}
    metrics = run(validated(Job, made, ""), GIVEN, tmp_path).active.evidence[0].metrics
    assert 0 < metrics[f"dropped.{TELCO}"] < metrics["steps"] == EPOCHS * STEPS


def test_when_all_release_once_nothing_crosses_but_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = record(monkeypatch)
    trained = run(once(release="once"), GIVEN, tmp_path)
    last = max(index for index, message in enumerate(messages) if message.kind == Kind.RELEASE)
    assert {message.kind for message in messages[last + 1 :]} == {Kind.EVIDENCE, Kind.CLOSE}
    assert len(set(trained.active.step_losses)) == EPOCHS * STEPS


def test_wide_rows_come_in_smaller_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "MAX_NUMBERS", 20 * 3)
    messages = record(monkeypatch)
    run(JOB, GIVEN, tmp_path)
    sizes = [len(message.tensors["embedding"]) for message in of(messages, Kind.RELEASE)]
    assert max(sizes) == 20
    assert sum(sizes) == len(released(tmp_path, ACTIVE, TELCO))


def test_the_ledger_says_one_release(recorded: Recording) -> None:
    trained = recorded(JOB, GIVEN).trained
    (evidence,) = trained.active.evidence
    assert evidence.metrics["releases"] == evidence.metrics["releases_allowed"] == 1
    assert evidence.covered == evidence.sent == 3  # one message each of training, validation and test rows
    (total,) = about(ledger_after(JOB, trained.active).totals, "features")
    assert total.releases == 1
    (every,) = about(ledger_of(once(release="every_step")).totals, "features")
    assert every.releases == EPOCHS
    assert every.epsilon is not None
    assert total.epsilon is not None
    assert total.epsilon < every.epsilon
    (entry,) = about(ledger_of(JOB).entries, "features")
    assert "released once; the epochs after that use it again" in entry.statement


@pytest.mark.parametrize(
    ("fit", "bottom", "condition"),
    [
        (None, "independent", "conditional on the encoding"),
        ({"kind": "none"}, "independent", "conditional on the encoding"),
        ({"kind": "pca"}, "fitted", "conditional on the bottom model and the encoding"),
    ],
)
def test_what_the_release_covers(fit: dict[str, Any] | None, bottom: str, condition: str) -> None:
    plan = plan_of(once(fit), TELCO)
    assert (plan.bottom, plan.condition) == (bottom, condition)
    (total,) = about(ledger_of(once(fit)).totals, "features")
    assert total.condition == condition
    assert condition in total.statement


def test_a_party_that_releases_every_step_is_conditional() -> None:
    plan = plan_of(once(release="every_step"), TELCO)
    assert plan.condition == "conditional on the bottom model and the encoding"


def test_public_ranges_and_vocabularies_lift_the_condition_on_the_encoding() -> None:
    numbers, kind = [f"{TELCO}_{column}" for column in range(3)], f"{TELCO}_kind"
    stated = {"ranges": dict.fromkeys(numbers, (-4, 4)), "vocabulary": {kind: ["a", "b", "c", "d"]}}
    raw = once().model_dump(mode="json", exclude_unset=True)
    for include, lifted in (([*numbers, kind], True), ("all", False), ([*numbers, kind, "further"], False)):
        raw["parties"][TELCO]["features"] = {"include": include, **stated}
        (total,) = about(ledger_of(validated(Job, raw, "")).totals, "features")
        assert (total.condition == "unconditional") == lifted


def test_a_budget_pays_for_one_release() -> None:
    (total,) = about(ledger_of(JOB).totals, "features")
    for factor, fits in ((1.001, True), (0.999, False)):
        assert total.epsilon is not None
        privacy = {"noisy": {"multiplier": 0.1}, "budget": {"epsilon": total.epsilon * factor}}
        limited = once({"kind": "pca"}, privacy)
        if fits:
            check_job(limited)
        else:
            with pytest.raises(BudgetExceeded):
                check_job(limited)


class Bypassing(PassiveSetup):
    """Releases what the bottom model says."""

    def protected(self, view: PassiveView, embedding: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            return self.embed(view.rows)


def test_a_release_past_the_chain_is_not_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.parties.phases.agree.PassiveSetup", Bypassing)
    with pytest.raises(NotApplied, match=r"telco: the release for bank is not what its protections returned \(noisy\)"):
        run(JOB, GIVEN, tmp_path)


@pytest.mark.parametrize("steps", [0, STEPS + 1])
def test_a_resume_asks_for_nothing_again(
    tmp_path: Path, recorded: Recording, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = recorded(JOB, GIVEN)
    interrupted(JOB, GIVEN, tmp_path, Dying(steps))
    messages = record(monkeypatch)
    assert_equal(tmp_path, run(JOB, GIVEN, tmp_path, resume=True), whole.folder, whole.trained, JOB)
    assert not of(messages, Kind.RELEASE)


def test_dying_at_any_early_rename_changes_nothing(tmp_path: Path, recorded: Recording) -> None:
    """Around the writes of both halves of the release, and those before and after them."""
    whole = recorded(JOB, GIVEN)
    first = released(whole.folder, TELCO)
    left = left_at_renames(tmp_path / "run", lambda: run(JOB, GIVEN, tmp_path / "run"), range(0, 16, 4))
    assert len(left) == 4
    for folder in left.values():
        assert_equal(folder, run(JOB, GIVEN, folder, resume=True), whole.folder, whole.trained, JOB)
        assert torch.equal(released(folder, TELCO), first)


def test_rows_that_are_sent_again_are_the_same_even_where_fitting_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active party dies between two batches; another library would fit other weights, and noise would differ."""
    monkeypatch.setattr(release, "MAX_NUMBERS", 20 * 3)
    with monkeypatch.context() as patched:
        messages = record(patched)
        interrupted(JOB, GIVEN, tmp_path, faults=Fails(FaultPoint.RECEIVED, nth=3, when=of_kind(Kind.RELEASE)))
        before = of(messages, Kind.RELEASE)
    monkeypatch.setattr("cutlayer.parties.phases.release.fit_bottom", Calls(0)(lambda *_: ()))
    messages = record(monkeypatch)
    run(JOB, GIVEN, tmp_path, resume=True)
    again = of(messages, Kind.RELEASE)
    assert len(before) == 4
    assert len(again) > 4
    for first, second in zip(before, again, strict=False):
        assert first.rows == second.rows
        assert torch.equal(first.tensors["embedding"], second.tensors["embedding"])


def test_a_failed_run_keeps_what_was_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thrown away, it would be drawn again with other noise, and the active party has the first."""
    tamper(monkeypatch, Kind.EPOCH_END, with_stamp(epoch=7))
    options = Options(Keys(tmp_path / "keys"), tables=GIVEN)
    with pytest.raises(ProtocolError):
        execute(JOB, tmp_path / "run", options, Progress())
    before = released(tmp_path / "run", TELCO)
    monkeypatch.undo()
    monkeypatch.setitem(REGISTRY, "noisy", Noisy)  # type: ignore[arg-type]
    execute(JOB, tmp_path / "run", Options(Keys(tmp_path / "keys"), resume=True, tables=GIVEN), Progress())
    assert torch.equal(released(tmp_path / "run", TELCO), before)
    parties = json.loads((tmp_path / "run" / "summary.json").read_text())["parties"]
    assert {fact["name"]: fact["released_once"] for fact in parties} == {ACTIVE: False, TELCO: True, SHOP: False}


def test_a_release_of_other_rows_is_refused(tmp_path: Path) -> None:
    interrupted(JOB, GIVEN, tmp_path, Dying(0))
    fewer = {name: table.slice(0, 200) for name, table in GIVEN.items()}
    with pytest.raises(CheckpointError, match="rows the run was begun with"):
        run(JOB, fewer, tmp_path, resume=True)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (Kind.RELEASE, with_tensors(lambda tensor: tensor[:, :2].contiguous()), "an embedding of shape"),
        (Kind.RELEASE, with_stamp(rows=bytes(16)), "other rows"),
        (Kind.RELEASE, with_stamp(kind=Kind.EVALUATION), "expected release"),
        (Kind.REQUEST, with_fields(part="test"), "asked for release 0 of test"),
        (Kind.REQUEST, with_fields(batch=9), "asked for release 9"),
    ],
)
def test_a_wrong_message_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, change: Any, message: str
) -> None:
    tamper(monkeypatch, kind, change)
    with pytest.raises(ProtocolError, match=message):
        run(JOB, GIVEN, tmp_path)


def test_training_rows_of_others_are_not_to_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tamper(monkeypatch, Kind.REQUEST, with_fields(part="train"))
    with pytest.raises(ProtocolError, match="validation or test"):
        run(make_job(), GIVEN, tmp_path)


def test_organisations_equal_one_process_to_the_last_bit(tmp_path: Path) -> None:
    options: dict[str, Any] = {"privacy": {}, "fit": {"kind": "contrastive", "epochs": 2}}
    together = tmp_path / "together"
    with allowed("cutlayer_published"):
        trained = run(once(**options), GIVEN, together, key=KEY)
    sites = lay_out(tmp_path / "apart", raw(**options), GIVEN)
    run_apart(sites, "cutlayer_published")
    assert torch.equal(released(sites[ACTIVE].run, ACTIVE, TELCO), released(together, ACTIVE, TELCO))
    for name, site in sites.items():
        mine, theirs = (load_file(place / "checkpoint" / name / "best.safetensors") for place in (site.run, together))
        assert all(torch.equal(mine[key], theirs[key]) for key in theirs)
    assert json.loads((sites[TELCO].run / "outcome.json").read_text())["fit_losses"] == list(
        trained.passives[TELCO].fit_losses
    )


def test_releasing_once_changes_the_shared_part_alone() -> None:
    assert once().digest() != once(release="every_step").digest()
    assert once().digest() == once({"kind": "pca"}).digest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"release": {"telc": "once"}}, "train.release.telc: no passive party of that name; did you mean 'telco'?"),
        ({"release": {ACTIVE: "once"}}, "train.release.bank: no passive party"),
        (
            {"release": "every_step", "fit": {"kind": "pca"}},
            "no parties.telco.fit but at a passive party that releases",
        ),
        ({"fit": {"kind": "pca"}, "bottom": MLP}, "a bottom model of kind linear for kind pca, got mlp"),
        ({"fit": {"kind": "sketh"}}, "parties.telco.fit.kind: unknown kind 'sketh'; did you mean 'sketch'?"),
        ({"release": "once", "active": {"max_norm": {}}}, "privacy.max_norm: nothing to protect.*remove it"),
        ({"release": "once", "active": {"dcor": {"alpha": 0.1}}}, "privacy.dcor: nothing to protect.*remove it"),
        ({"privacy": {"nopeek": {"alpha": 0.1}}}, "leave nopeek out"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, Any], message: str) -> None:
    active = change.pop("active", {})
    made = raw(**change)
    made["parties"][ACTIVE]["privacy"] = active
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        check_job(validated(Job, made, ""))
    change["active"] = active


def test_label_dp_has_labels_to_protect_where_all_release_once() -> None:
    made = raw(release="once")
    made["parties"][ACTIVE]["privacy"] = {"label_dp": {"eps": 1.0}, "party_dropout": {"rate": 0.1}}
    check_job(validated(Job, made, ""))


def test_a_release_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.release: expected every_step or once for telco, got 'twice'"):
        once(release={TELCO: "twice"})
