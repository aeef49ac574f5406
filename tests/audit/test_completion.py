"""Model completion of a whole job with its comparisons: which runs, which labels, which rows, and repeated."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from cutlayer.attacks import REGISTRY, resolve
from cutlayer.attacks.catalogue import ModelCompletion
from cutlayer.attacks.completion.base import (
    HEADS,
    Completion,
    CompletionAttack,
    CompletionTraining,
    DepartedView,
)
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.audit.completion import audit_completions
from cutlayer.config import Job, validated
from cutlayer.data.split import split_rows
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError, NotApplicable
from cutlayer.jobs.audit import audit_again
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.problem.task import Task
from cutlayer.report.build import build_report
from cutlayer.results.completion import CompletionResult
from cutlayer.training import utility
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.recorder import read_truth
from cutlayer.training.trained import Run
from tests.parties.runs import ACTIVE, KEY, PASSIVES, raw_job, tables

TELCO = PASSIVES[0]
QUICK = CompletionTraining(batch_size=64, min_steps=3, max_steps=3, unlabelled_steps=3)
BOTH = ("model_completion", "active_model_completion")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    train_briefly(monkeypatch)


def train_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompletionAttack.__init__, "__defaults__", (None, QUICK))
    monkeypatch.setitem(HEADS, "MLP", (32, 16))
    monkeypatch.setattr(utility, "RESAMPLES", 200)


def job_of(attacks: tuple[str, ...] = BOTH, every: str = "end", passives: int = 1, **more: Any) -> Job:
    raw = raw_job(passives=passives, privacy={"max_norm": {}}, audit={"attacks": list(attacks), "every": every}, **more)
    raw["compare"] = ["undefended"]
    return validated(Job, raw, "")


def run(job: Job, folder: Path, rows: int = 320, passives: int = 1) -> RunFolder:
    return execute(
        job, folder / "run", Options(Keys(folder, KEY), tables=tables(passives=passives, rows=rows)), Progress()
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, RunFolder]:
    with pytest.MonkeyPatch.context() as patched:
        train_briefly(patched)
        return job_of(), run(job_of(), tmp_path_factory.mktemp("whole"))


def test_each_attack_reads_the_runs_it_is_for(whole: tuple[Job, RunFolder]) -> None:
    report = build_report(whole[1].path)
    found = [(part.run, part.attack, part.all_labels) for part in report.completions]
    runs = {"undefended": BOTH[0], "this run": BOTH[0], f"malicious {TELCO}": BOTH[1]}
    assert sorted(found) == sorted((run, attack, every) for run, attack in runs.items() for every in (False, True))
    few = [part for part in report.completions if not part.all_labels]
    assert {part.labels for part in few} == {40}
    assert {len(part.variants) for part in few} == {8}
    assert {len(part.variants) for part in report.completions if part.all_labels} == {4}
    assert all(part.scratch == few[0].scratch for part in few)
    assert len({part.variants for part in few}) == 3
    assert {row.name for row in report.utility.rows} >= {f"malicious {TELCO}", "undefended"}
    note = next(row.note for row in report.utility.rows if row.name == f"malicious {TELCO}")
    assert "active_model_completion" in note


def test_the_malicious_run_ends_with_other_weights(whole: tuple[Job, RunFolder]) -> None:
    job, folder = whole
    other = RunFolder(folder.path / "compare" / f"malicious-{TELCO}")
    honest, attacked = (Run(job, item, origin=folder).bottom(TELCO).state_dict() for item in (folder, other))
    assert any(not torch.equal(honest[name], attacked[name]) for name in honest)


def test_the_figure_is_that_of_the_kept_model_on_the_test_rows(whole: tuple[Job, RunFolder]) -> None:
    job, folder = whole
    store = Store.open(folder.data(TELCO))
    truth, training = read_truth(folder.transcript(ACTIVE))
    bottom = Run(job, folder).bottom(TELCO)
    view = DepartedView(TELCO, Task("binary", ("no", "yes")), bottom, store.gather, training)
    everything = Knowledge(known={int(row): int(truth[row]) for row in training})
    (variant,) = (item for item in ModelCompletion.variants if item.name == "tuned MLP, supervised")
    completed = ModelCompletion(variant, QUICK)(view, everything, job.train.seed)
    test = torch.from_numpy(split_rows(len(truth), job.train.split, job.train.seed).test)
    expected = roc_auc_score(truth[test].numpy(), completed.logits(*store.gather(test))[:, 0].numpy())
    (part,) = (p for p in build_report(folder.path).completions if p.run == "this run" and p.all_labels)
    (worth,) = (each for each in part.variants if each.variant == "tuned MLP, supervised")
    assert worth.value == pytest.approx(expected)
    assert worth.low is not None
    assert worth.high is not None
    assert worth.low < expected < worth.high + 1e-9
    assert np.isin(training.numpy(), test.numpy()).sum() == 0


def test_an_audit_again_gives_the_same_figures_and_a_gain_is_a_finding(
    whole: tuple[Job, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = whole
    before = build_report(folder.path).completions
    # Where every figure of few labels is a gain: this run's and its malicious twin's are findings alone.
    monkeypatch.setattr(CompletionResult, "gains", property(lambda figure: not figure.all_labels))
    audit_again(folder)
    assert build_report(folder.path).completions == before
    found = [finding.detail for finding in build_report(folder.path).findings if finding.code == "CL108"]
    assert len(found) == 2
    assert any("from this run predict" in detail for detail in found)
    assert any(f"from malicious {TELCO} predict" in detail for detail in found)
    assert all("only 40 labels" in detail and "picked after the fact" in detail for detail in found)


def test_an_attack_that_does_not_apply_is_skipped_alone_and_what_is_not_named_is_left_out(
    whole: tuple[Job, RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reluctant(CompletionAttack):
        name = "reluctant"

        def run(self, view: DepartedView, knowledge: Knowledge) -> Completion:
            raise NotApplicable("not on a Sunday")

    folder = RunFolder(shutil.copytree(whole[1].path, tmp_path / "run"))
    before = build_report(folder.path).completions
    monkeypatch.setitem(REGISTRY, "reluctant", Reluctant)
    audit_again(folder, ("reluctant", "model_completion"))
    report = build_report(folder.path)
    assert report.completions == tuple(part for part in before if part.attack == "model_completion")
    assert any("reluctant" in limit and "not on a Sunday" in limit for limit in report.limits)


def test_without_a_malicious_run_the_active_attack_says_what_to_do(tmp_path: Path) -> None:
    folder = run(job_of(("norm",), epochs=1), tmp_path, rows=240)
    audit_again(folder, ("active_model_completion", "norm"))
    report = build_report(folder.path)
    assert report.completions == ()
    assert any("name it in audit.attacks and run the job again" in limit for limit in report.limits)
    before = folder.read_json("audit.json")
    with pytest.raises(ConfigError, match=r"name it in audit\.attacks and run the job again; the last audit stays"):
        audit_again(folder, ("active_model_completion",))
    assert folder.read_json("audit.json") == before


def test_between_organisations_the_reason_is_said(whole: tuple[Job, RunFolder], tmp_path: Path) -> None:
    job, folder = whole
    task = Task(job.task, folder.summary.task.classes)
    empty, attacks = RunFolder(tmp_path), resolve(job.parties[job.active].audit.attacks, job.task).completions
    done = audit_completions(job, {"this run": empty}, empty, attacks, task)
    assert done.results == []
    assert done.skipped.keys() == {f"{TELCO}/bottom model/{attack}" for attack in BOTH}
    assert all("truth stays with its owner" in skipped.reason for skipped in done.skipped.values())


def test_nothing_is_completed_where_nothing_is_audited(tmp_path: Path) -> None:
    folder = run(job_of(("model_completion",), every="never"), tmp_path, rows=240)
    assert build_report(folder.path).completions == ()


def test_several_parties_share_one_malicious_run(tmp_path: Path) -> None:
    folder = run(job_of(("active_model_completion",), passives=2, epochs=1), tmp_path, rows=160, passives=2)
    report = build_report(folder.path)
    assert {part.run for part in report.completions} == {"malicious passive parties"}
    assert {part.party for part in report.completions} == set(PASSIVES[:2])
    assert not any(finding.code == "CL106" for finding in report.findings)
    assert all(math.isfinite(variant.value or math.nan) for part in report.completions for variant in part.variants)
