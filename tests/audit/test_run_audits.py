"""The audit of real runs: live, at the end, after a resume and repeated from disk, the same figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from cutlayer.attacks import resolve
from cutlayer.attacks.label.base import Target
from cutlayer.audit.auditor import Auditor
from cutlayer.audit.watch import attack_recorded_steps
from cutlayer.channel import Kind
from cutlayer.channel.row_history import read_followed
from cutlayer.channel.transcript import read_epochs
from cutlayer.jobs.audit import audit_again
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.session.observer import EpochRecord, Observer
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.recorder import read_truth
from tests.cli.jobs import audit_briefly
from tests.parties.interruptions import cells
from tests.parties.runs import ACTIVE, KEY, PASSIVES, make_job, record, run, tables

GIVEN = tables(passives=2)


def job_with(every: str | int = "epoch", **audit: Any) -> Any:
    return make_job(passives=2, audit={"rows": 64, "every": every, "attacks": ["spectral"], **audit}, epochs=3)


def test_live_at_the_end_and_replayed_figures_are_equal(tmp_path: Path) -> None:
    live, late = (run(job_with(every, attacks="auto"), GIVEN, tmp_path / every) for every in ("epoch", "end"))
    assert cells(live)
    assert cells(live) == cells(late)
    truth, training = read_truth(tmp_path / "epoch" / "transcript" / ACTIVE)
    again = Auditor(live.active.task, truth, training, resolve("auto", "binary").labels, ACTIVE, job_with().train.seed)
    attack_recorded_steps(job_with(attacks="auto"), RunFolder(tmp_path / "epoch"), again, [ACTIVE, *PASSIVES[:2]])
    assert live.auditor is not None
    assert again.series.keys() == live.auditor.series.keys()
    assert all(again.series[cell].leaks == live.auditor.series[cell].leaks for cell in again.series)


class Told(Observer):
    """Keeps what each epoch said."""

    def __init__(self) -> None:
        self.records: list[EpochRecord] = []

    def ended(self, record: EpochRecord) -> None:
        self.records.append(record)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Told]:
    """A run audited in every epoch, its folder, and what it told."""
    folder, told = tmp_path_factory.mktemp("whole"), Told()
    return run(job_with(), GIVEN, folder, progress=told), folder, told


def test_the_history_keeps_the_leak_of_every_epoch(whole: tuple[Any, Path, Told]) -> None:
    trained, folder, told = whole
    lines = RunFolder(folder).history()
    assert [line["epoch"] for line in lines] == [0, 1, 2]
    assert [line["leak"] for line in lines] == [dict(record.leak) for record in told.records]
    assert trained.auditor is not None
    for cell, series in trained.auditor.series.items():
        if not cell.layer:
            assert [line["leak"][cell.label] for line in lines] == [leak.value for leak in series.leaks.values()]


def test_every_second_epoch_is_recorded_and_attacked_as_when_all_are(
    whole: tuple[Any, Path, Told], tmp_path: Path
) -> None:
    every, half = whole[0], run(job_with(2), GIVEN, tmp_path / "2")
    for name in (ACTIVE, *PASSIVES[:2]):
        files = {path.name for path in (tmp_path / "2" / "transcript" / name).glob("*-0*")}
        assert {f"epoch-000{epoch}.safetensors" for epoch in (0, 2)} <= files
        assert not [name for name in files if "0001" in name]
    assert [bool(line["leak"]) for line in RunFolder(tmp_path / "2").history()] == [True, False, True]
    assert every.auditor is not None
    assert half.auditor is not None
    for cell, series in half.auditor.series.items():
        assert set(series.leaks) == {0, 2}
        assert all(leak == every.auditor.series[cell].leaks[epoch] for epoch, leak in series.leaks.items())
    assert [epoch.epoch for epoch in read_followed(tmp_path / "2" / "transcript" / ACTIVE)] == [0, 2]
    assert half.active.logits.equal(every.active.logits), "what is recorded changes no message"


def test_without_an_audit_nothing_is_recorded(tmp_path: Path) -> None:
    trained = run(job_with("never"), GIVEN, tmp_path)
    assert trained.auditor is None
    assert not list(tmp_path.glob("transcript/*/epoch-*"))
    assert [line["leak"] for line in RunFolder(tmp_path).history()] == [{}, {}, {}]


def test_without_layers_no_layer_is_recorded(tmp_path: Path) -> None:
    trained = run(job_with(layers=False), GIVEN, tmp_path)
    assert trained.auditor is not None
    assert not any(cell.layer for cell in trained.auditor.series)
    assert not any(step.layers for _, steps in read_epochs(tmp_path / "transcript" / ACTIVE) for step in steps)


def test_the_transcript_is_what_crossed_as_it_crossed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = record(monkeypatch)
    audit = {"rows": 100, "attacks": ["norm"]}
    job = make_job(passives=2, privacy={"max_norm": {}}, audit=audit, epochs=2)
    run(job, GIVEN, tmp_path)
    sent: Mapping[Any, torch.Tensor] = {
        (m.kind, m.epoch, m.step, m.sender, m.receiver): next(iter(m.tensors.values()))
        for m in messages
        if m.kind in (Kind.EMBEDDING, Kind.GRADIENT)
    }
    for name in (ACTIVE, *PASSIVES[:2]):
        recorded = dict(read_epochs(tmp_path / "transcript" / name))
        assert [len(steps) for steps in recorded.values()] == [3, 3]
        for epoch, steps in recorded.items():
            for step in steps:
                links = PASSIVES[:2] if name == ACTIVE else (name,)
                assert tuple(step.embeddings) == tuple(step.gradients) == tuple(links)
                for link in links:
                    crossed = sent[Kind.EMBEDDING, epoch, step.step, link, ACTIVE]
                    assert torch.equal(step.embeddings[link], crossed)
                    assert torch.equal(step.gradients[link], sent[Kind.GRADIENT, epoch, step.step, ACTIVE, link])


def test_a_passive_partys_layers_are_its_own(whole: tuple[Any, Path, Told]) -> None:
    for name, prefix in ((ACTIVE, ("bottom.", "top.")), (PASSIVES[0], ("categories", "layers."))):
        steps = [step for _, steps in read_epochs(whole[1] / "transcript" / name) for step in steps]
        names = {layer for step in steps for layer in step.layers}
        assert names
        assert all(layer.startswith(prefix) for layer in names)
        assert PASSIVES[0] == name or {layer.split(".")[0] for layer in names} == {"bottom", "top"}


def test_a_run_recorded_to_its_limit_is_thinned_and_still_audited_live(tmp_path: Path) -> None:
    """The bound is on what lies on disk; live, every epoch is attacked."""
    audit = {"rows": 192, "max_megabytes": 1, "attacks": ["spectral"]}
    job = make_job(passives=2, bottom={"kind": "mlp", "hidden": [700]}, audit=audit, epochs=3)
    trained = run(job, GIVEN, tmp_path)
    for name in (ACTIVE, *PASSIVES[:2]):
        files = list((tmp_path / "transcript" / name).glob("epoch-*"))
        assert sum(path.stat().st_size for path in files) <= 2**20
        assert len(files) < 3
    assert trained.auditor is not None
    epochs = {cell.target: len(series.leaks) for cell, series in trained.auditor.series.items()}
    assert epochs == {Target.GRADIENT: 3, Target.EMBEDDING: 3, Target.LAYER: 2}, "layers in the first and the last"


def test_auditing_a_finished_run_again_repeats_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit_briefly(monkeypatch)
    attacks = ["norm", "few_labels"]  # that each repeats its figures is a test of `conformance`
    job = make_job(passives=1, privacy={"max_norm": {}}, audit={"rows": 64, "attacks": attacks}, epochs=2)
    job = job.model_copy(update={"compare": ("undefended",)})
    folder = execute(job, tmp_path / "run", Options(Keys(tmp_path, KEY), tables=tables(passives=1)), Progress())
    before = folder.read_json("audit.json")
    _with_paths_of_tables(folder)
    audit_again(folder)
    assert json.dumps(folder.read_json("audit.json")) == json.dumps(before)
    audit_again(folder, attacks=("norm",), fail_above=0.55)
    after = folder.read_json("audit.json")
    assert {leak["attack"] for run in after["runs"].values() for leak in run["leaks"] + run["layers"]} == {"norm"}
    [gate] = after["gates"]
    assert gate["limit"] == 0.55
    assert not gate["passed"]
    assert gate["undecided"] == (gate["worst"] <= 0.55)
    assert "few_labels" in after["left_out"]


def _with_paths_of_tables(folder: RunFolder) -> None:
    """The run was given its tables in memory; nothing of them is read again."""
    assert "table" not in (folder.path / "job.yaml").read_text()
