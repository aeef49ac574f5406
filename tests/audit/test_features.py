"""Attacks on features of a whole job: which releases, which rows, which runs, together and apart, and again."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import r2_score

from cutlayer.attacks.catalogue import Inversion
from cutlayer.attacks.feature import decoder
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.audit.features import audit_features
from cutlayer.audit.features.releases import recorded_releases
from cutlayer.audit.features.shadow import ShadowRoom
from cutlayer.channel.transcript import read_epochs
from cutlayer.config import Job, validated
from cutlayer.consent import allowed
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError
from cutlayer.jobs.audit import audit_again
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.report.build import build_report
from cutlayer.results.features import FeatureResult, strongest
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.malicious_runs import auxiliary_indices
from cutlayer.training.recorder import read_truth
from cutlayer.training.trained import Run
from tests.parties.runs import ACTIVE, KEY, PASSIVES, raw_job, tables

TELCO = PASSIVES[0]
ALL = ["inversion", "exact", "sdar", "membership", "lira", "attribute"]
ROWS, RECORDED = 320, 160


@pytest.fixture(autouse=True, scope="module")
def _consent() -> Iterator[None]:
    with allowed("cutlayer_published"):
        yield


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    train_briefly(monkeypatch)


def train_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "EPOCHS", 3)
    monkeypatch.setattr(decoder, "HIDDEN", 16)
    monkeypatch.setattr("cutlayer.attacks.feature.membership.SHADOWS", 2)
    monkeypatch.setattr("cutlayer_published.attacks.lira.SHADOW_PAIRS", 2)
    monkeypatch.setattr("cutlayer_published.attacks.lira.TREES", 10)
    monkeypatch.setattr("cutlayer.attacks.feature.exact.STEPS", 4)
    monkeypatch.setattr("cutlayer.attacks.feature.kernel_ridge.SCALES", (1.0,))
    monkeypatch.setattr("cutlayer_published.attacks.sdar.PASSES", 2)
    # `attribute` chooses its regularisation among them, and by so many folds.
    monkeypatch.setattr("cutlayer.attacks.label.probe.STRENGTHS", (0.1, 1.0))
    monkeypatch.setattr("cutlayer.attacks.label.probe.FOLDS", 2)
    monkeypatch.setattr("cutlayer.audit.features.measures.REPEATS", 200)


def job_of(audit: dict[str, Any], passives: int = 1, **more: Any) -> Job:
    raw = raw_job(passives=passives, audit={"attacks": ["norm"], "rows": ROWS})
    raw["parties"][TELCO]["audit"] = {"rows": RECORDED} | audit
    raw["parties"][TELCO]["privacy"] = more.pop("privacy", {})
    return validated(Job, raw | more, "")


def run(job: Job, folder: Path, passives: int = 1) -> RunFolder:
    given = tables(passives=passives, rows=ROWS)
    return execute(job, folder / "run", Options(Keys(folder, KEY), tables=given), Progress())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, RunFolder]:
    with pytest.MonkeyPatch.context() as patched:
        train_briefly(patched)
        noise = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 0.5}}
        job = job_of({"attacks": ALL, "attribute": f"{TELCO}_1"}, privacy=noise, compare=["undefended"])
        return job, run(job, tmp_path_factory.mktemp("whole"))


def test_every_attack_reads_this_run_and_its_undefended_twin(whole: tuple[Job, RunFolder]) -> None:
    parts = build_report(whole[1].path).features
    for name in ("this run", "undefended"):
        own = [part for part in parts if part.run == name]
        assert {part.attack for part in own} == set(ALL)
        inverted = [part.release for part in own if part.attack == "inversion"]
        assert inverted[0] == "epoch 2, the last recorded"
        assert inverted[1:] == ["mean of 2 releases", "2 epochs side by side", "epoch 1, the first recorded"]
        assert f"{TELCO}_1" in {part.column for part in own if part.attack == "attribute"}
        assert [part.rows for part in own if part.attack in ("membership", "lira")] == [62, 62]  # 31 test rows
    value = {part.run: part.value for part in parts if part.attack == "inversion" and "last" in part.release}
    assert value["undefended"] > value["this run"] + 0.2
    assert {part.party for part in parts} == {TELCO}


def test_without_followed_rows_the_mean_is_of_the_party_s_own_record(
    whole: tuple[Job, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As between organisations, or where too few rows were sent in every epoch."""
    job, folder = whole
    monkeypatch.setattr("cutlayer.audit.features.releases.MIN_ROWS", ROWS + 1)
    last, mean, first = recorded_releases(job, folder, TELCO)
    assert re.fullmatch(r"mean of 1\.[1-9] releases", mean.name)
    assert torch.equal(mean.rows, last.rows)
    assert not torch.equal(mean.embeddings, last.embeddings)
    assert first.name == "epoch 1, the first recorded"


def test_the_figure_is_that_of_what_was_sent(whole: tuple[Job, RunFolder]) -> None:
    """The last recorded release, the mean of the epochs, and both side by side, by what the active party received."""
    job, folder = whole
    store = Store.open(folder.data(TELCO))
    received: list[dict[int, torch.Tensor]] = []
    for _, steps in read_epochs(folder.transcript(ACTIVE)):
        received.append({int(r): e for step in steps for r, e in zip(step.rows, step.embeddings[TELCO], strict=True)})
    followed = sorted(set.intersection(*map(set, received)))
    both = [torch.stack([epoch[row] for row in followed]) for epoch in received]
    *_, (_, own) = read_epochs(folder.transcript(TELCO))
    recorded = sorted(int(row) for step in own for row in step.rows)
    last = torch.stack([received[-1][row] for row in recorded])
    parts = [
        result
        for result in build_report(folder.path).features
        if result.attack == "inversion" and result.run == "this run"
    ]
    attacked = ((recorded, last), (followed, torch.stack(both).mean(0)), (followed, torch.cat(both, dim=1)))
    for part, (numbers, embeddings) in zip(parts, attacked, strict=False):
        rows = torch.tensor(numbers)
        indices = auxiliary_indices(len(rows), job.train.seed)
        known = Auxiliary(store.columns, indices, *store.gather(rows[indices]))
        made = Inversion()(FeatureView(TELCO, rows, embeddings), Knowledge(auxiliary_rows=known), job.train.seed)
        truth = store.gather(made.rows)[1].numpy()
        for index, name in enumerate(store.columns.number_names):
            value = next(column.value for column in part.columns if column.column == name)
            assert value == pytest.approx(r2_score(truth[:, index], made.values[:, index].numpy()), abs=1e-3)


def test_shadow_rows_are_neither_attacked_nor_held_out_for_it(whole: tuple[Job, RunFolder]) -> None:
    job, folder = whole
    room = ShadowRoom(Run(job, folder))
    _, training = read_truth(folder.transcript(ACTIVE))
    assert torch.equal(torch.isin(room.attacked, training), room.member)
    assert int(room.member.sum()) * 2 == len(room.attacked)
    assert not torch.isin(room.shadow_rows, room.attacked).any()
    view, again = room.view(TELCO), room.view(TELCO)
    assert torch.equal(view.embeddings, again.embeddings)
    assert view.logits is not None
    shadows = room.shadows(TELCO)
    assert shadows.training_rows == len(training)
    shadow = shadows.train(room.shadow_rows[:100], 0)(room.attacked)
    assert shadow.embeddings.shape == view.embeddings.shape
    assert not torch.equal(shadow.logits, view.logits)
    other = shadows.train(room.shadow_rows[1:101], 0)(room.attacked)
    assert not torch.equal(shadow.logits, other.logits)
    assert torch.equal(shadows.train(room.shadow_rows[:100], 0)(room.attacked).logits, shadow.logits)
    plain = ShadowRoom(Run(job_of({}), folder)).view(TELCO)
    assert (view.embeddings - plain.embeddings).std() == pytest.approx(1.0, rel=0.25)  # 0.5 times 2C, beside the clip


@pytest.fixture(scope="module")
def undefended(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    with pytest.MonkeyPatch.context() as patched:
        train_briefly(patched)
        return run(job_of({"attacks": ["inversion", "membership"]}), tmp_path_factory.mktemp("undefended"))


def test_an_audit_again_gives_the_same_figures(undefended: RunFolder, tmp_path: Path) -> None:
    folder = RunFolder(shutil.copytree(undefended.path, tmp_path / "run"))
    before = build_report(folder.path)
    audit_again(folder, ("inversion",))
    again = build_report(folder.path)
    audit_again(folder)
    assert again.features == tuple(part for part in before.features if part.attack == "inversion")
    assert again.leaks == ()
    assert build_report(folder.path).features == before.features
    assert build_report(folder.path).leaks == before.leaks


@pytest.mark.parametrize(("others", "gains"), [(None, True), (0.6, True), (0.95, False), (0.4, True)])
def test_what_other_parties_columns_tell_is_no_gain(others: float | None, gains: bool) -> None:
    """A date that follows from the label owner's own was reported as revealed by the grades."""
    values = {"value": 0.95, "low": 0.94, "high": 0.96, "baseline": 0.5, "other_columns": others}
    about = {"run": "this run", "party": TELCO, "attack": "best_guess", "release": "1", "known": 9, "rows": 90}
    result = FeatureResult(**about, **values, metric="auc", column="since")
    assert (strongest([result]) == [result]) is gains
    assert result.without == max(0.5, others or 0.0)


def test_a_gain_is_a_finding_and_nothing_named_is_nothing_run(undefended: RunFolder) -> None:
    report = build_report(undefended.path)
    assert "CL110" in {finding.code for finding in report.findings if TELCO in finding.detail}
    inverted = [part for part in report.features if part.attack == "inversion"]
    assert inverted
    assert all(part.value > part.baseline + 0.1 for part in inverted)
    unnamed = audit_features(job_of({}), {"this run": undefended}, undefended, None)
    assert (unnamed.results, unnamed.skipped) == ([], {})


def test_between_organisations_membership_says_why_not(whole: tuple[Job, RunFolder]) -> None:
    job, folder = job_of({"attacks": ["inversion", "membership", "lira"]}), whole[1]
    found = audit_features(job, {"this run": folder}, folder, None)
    assert {result.attack for result in found.results} == {"inversion"}
    for name in ("membership", "lira"):
        assert f"the top model and the labels are with {ACTIVE}" in found.skipped[f"{TELCO}/embedding/{name}"].reason


def test_what_cannot_be_run_says_why(tmp_path: Path) -> None:
    folder = run(job_of({"attacks": ["inversion"], "every": "never"}), tmp_path)
    assert any(f"parties.{TELCO}.audit.every" in limit for limit in build_report(folder.path).limits)


def test_a_column_that_is_not_there_is_named_with_those_that_are(whole: tuple[Job, RunFolder]) -> None:
    _, folder = whole
    found = audit_features(
        job_of({"attacks": ["attribute"], "attribute": "salary"}), {"this run": folder}, folder, None
    )
    assert f"{TELCO}_kind" in found.skipped[f"{TELCO}/embedding/attribute"].reason
    assert "'salary'" in found.skipped[f"{TELCO}/embedding/attribute"].reason
    assert found.results


def test_the_only_release_is_read_where_a_party_releases_once(tmp_path: Path) -> None:
    raw = raw_job(audit={"rows": ROWS}, release="once")
    raw["parties"][TELCO]["audit"] = {"attacks": ALL, "rows": 200}
    folder = run(validated(Job, raw, ""), tmp_path)
    report = build_report(folder.path)
    assert {part.release for part in report.features} == {"the only release"}
    assert {part.known + part.rows for part in report.features} == {200}
    assert any("releases once" in limit and "membership" in limit for limit in report.limits)


@pytest.mark.parametrize(
    ("audit", "wrong"),
    [
        ({"attacks": ["norm"]}, "norm looks for labels; name it in the active party's audit"),
        ({"attacks": ["inversoin"]}, "unknown attack 'inversoin'; did you mean 'inversion'"),
        ({"attacks": ["inversion"], "attribute": "sex"}, "attribute among the attacks"),
    ],
)
def test_a_wrong_name_is_refused_before_anything_runs(audit: dict[str, Any], wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=wrong):
        run(job_of(audit), tmp_path)
    assert not (tmp_path / "run").exists()


def test_the_active_party_has_no_features_to_audit(tmp_path: Path) -> None:
    raw = raw_job(audit={"attacks": ["membership"]})
    with pytest.raises(ConfigError, match="membership looks for features; name it in a passive party's audit"):
        run(validated(Job, raw, ""), tmp_path)
