"""A study runs each training once, continues where it was interrupted, and writes its page and figures."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import studies.registry as registry
from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError, DataError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.options import Progress
from cutlayer.storage.durable import locked
from cutlayer.training.folder import RunFolder
from studies import workers
from studies.__main__ import main
from studies.forward_leakage.study import SHARES, ForwardLeakageStudy
from studies.gradient_leakage.study import GradientLeakageStudy
from studies.label_dp.study import LabelDPStudy
from studies.record import Record
from studies.results import SeedMean, TrialResult, seed_mean_of
from studies.trials import Scope, Study, Trial, run_trials
from studies.workers import run_in_workers
from tests.parties.processes import forkserver
from tests.studies.written_pages import page_of

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
ALL = [ForwardLeakageStudy, GradientLeakageStudy, LabelDPStudy]
LEAKS = ("embedding/spectral", "gradient/norm", "gradient/direction", "gradient/hint", "gradient/spectral")
LAYERS = ("publisher/layers.0", "publisher/layers.1", "advertiser/top.layers.0", "advertiser/top.logits")


def tiny_job(seed: int, privacy: Mapping[str, object]) -> Job:
    raw = {
        "parties": {
            "bank": {
                "role": "active",
                "label": "y",
                "features": {"include": "none"},
                "privacy": privacy,
                "audit": {"attacks": ["norm"]},
            },
            "shop": {"role": "passive"},
        },
        "model": {"bottom": {"kind": "mlp", "hidden": [4]}, "top": {"kind": "mlp", "hidden": []}},
        "train": {"epochs": 2, "batch_size": 50, "seed": seed, "threads": 1},
    }
    return validated(Job, raw, "tiny")


def tiny_tables() -> dict[str, pa.Table]:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(400, 2))
    return {"bank": pa.table({"y": (x[:, 0] > 0).astype(int)}), "shop": pa.table({"a": x[:, 0], "b": x[:, 1]})}


class Tiny(GradientLeakageStudy):
    """The study's page over two trainings of seconds."""

    name = "tiny"

    def trials(self, data: Path, seeds: int) -> Iterator[Trial]:
        for seed in range(1, seeds + 1):
            for setting, privacy in {"undefended": {}, "max_norm": {"max_norm": None}}.items():
                yield Trial("Criteo", setting, seed, tiny_job(seed, privacy), tiny_tables())

    def measure(self, trial: Trial, folder: RunFolder) -> dict[str, Any]:
        return {"epochs": len(folder.history())}


class Stages(Progress):
    """Counts the trainings."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def stage(self, name: str) -> None:
        if "seed" in name:
            self.names.append(name)


def made_up(study: Study, trials: list[Trial], seed: int = 0) -> list[TrialResult]:
    """Results of made-up trainings: dCor hides, the rest leaks 0.75, all_hold test metric is about 0.7."""
    draw = np.random.default_rng(seed)

    def near(value: float) -> float:
        return value + float(draw.normal(0, 0.002))

    results = []
    for trial in trials:
        leak = 0.51 if "dcor" in trial.setting else 0.75
        leaks = {key: {"auc": near(leak), "epoch": 1, "last": near(leak)} for key in LEAKS}
        layers = {key: {"auc": near(0.6 + 0.05 * index), "epoch": 1, "last": 0.6} for index, key in enumerate(LAYERS)}
        measured: dict[str, Any] = {"log_loss": near(0.3), "constant_log_loss": near(0.5)}
        if trial.group == "Avazu, by day":
            day = {"rows": 600, "positives": 100, "auc": near(0.68), "deviation": 0.03}
            measured = {
                "days": {name: {**day, "leaks": dict.fromkeys(LEAKS, near(0.7))} for name in ("141021", "141022")}
            }
        if trial.group.endswith("centralised"):
            measured = {"right_once": 0.7, "right_vote": near(0.95), "once_auc": 0.7, "vote_auc": near(0.95)}
        results.append(TrialResult(trial.group, trial.setting, trial.seed, near(0.7), 1.0, leaks, layers, measured))
    return results


def rows_of(page: str) -> list[list[str]]:
    """The trials of every table row."""
    return [
        [trial.strip() for trial in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")
    ]


def test_a_study_runs_each_training_once_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "STUDIES", {"tiny": Tiny})
    first, again = Stages(), Stages()
    results = registry.run_study("tiny", tmp_path, tmp_path / "out", Scope(1), first).results
    assert [result.setting for result in results] == ["undefended", "max_norm"]
    assert [result.measured for result in results] == [{"epochs": 2}] * 2
    assert len(first.names) == 2
    wider = registry.run_study("tiny", tmp_path, tmp_path / "out", Scope(2), again).results
    assert wider[:2] == results
    assert len(again.names) == 2
    page = (tmp_path / "out" / "tiny.md").read_text()
    assert "| undefended | " in page
    assert "| max_norm | " in page
    assert "seeds 1, 2; 4 trainings" in " ".join(page.split())
    saved = json.loads((tmp_path / "out" / "tiny.json").read_text())["results"]
    assert [entry["metric"] for entry in saved] == [result.metric for result in wider]
    assert not list((tmp_path / "out").glob("work*"))


def test_a_published_record_is_extended_by_one_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record without its `trials/`, as in studies/results, keeps its results; each new one says its commit."""
    monkeypatch.setattr(registry, "STUDIES", {"tiny": Tiny})
    known = TrialResult("Criteo", "undefended", 1, 0.7, 1.0, {}, {})
    Record("tiny", "0.1.0", 1, full=False, provenance="Trained.", results=(known,)).save(tmp_path)
    stages = Stages()
    record = registry.run_study("tiny", tmp_path, tmp_path, Scope(2, settings=["max_norm"]), stages)
    assert [result.key for result in record.results] == [
        known.key,
        ("Criteo", "max_norm", 1),
        ("Criteo", "max_norm", 2),
    ]
    assert record.results[0] == known
    assert (record.seeds, len(stages.names)) == (2, 2)
    assert all(result.commit and "cores" in result.host for result in record.results[1:])
    assert f"2 trainings at commit `{record.results[1].commit}`" in " ".join((tmp_path / "tiny.md").read_text().split())
    with pytest.raises(ConfigError, match=r"unknown --group 'Criteoo'.*Criteo"):
        registry.run_study("tiny", tmp_path, tmp_path, Scope(1, groups=["Criteoo"]), Progress())
    with pytest.raises(ConfigError, match=r"unknown --setting 'max_nrm'.*max_norm"):
        registry.run_study("tiny", tmp_path, tmp_path, Scope(1, settings=["max_nrm"]), Progress())


def test_results_without_measured_values_are_read(tmp_path: Path) -> None:
    study = Tiny()
    trial = next(study.trials(tmp_path, 1))
    (tmp_path / "trials").mkdir()
    old = {
        "group": "Criteo",
        "setting": "undefended",
        "seed": 1,
        "metric": 0.7,
        "seconds": 1.0,
        "leaks": {},
        "layers": {},
    }
    for name in (trial.slug, trial.slug.replace("undefended", "max_norm")):
        (tmp_path / "trials" / f"{name}.json").write_text(json.dumps(old))
    assert [result.measured for result in run_trials(study, tmp_path, tmp_path, Scope(1), Progress())] == [{}, {}]


class Slow(Tiny):
    """Trainings that note who ran them and wait for a partner, so that two processes must share them."""

    name = "slow"

    def train(self, trial: Trial, work: Path, progress: Progress) -> dict[str, Any]:
        with (work.parent / "log").open("a") as log:
            log.write(f"{os.getpid()} {trial.slug}\n")
        until = time.monotonic() + 60
        while len({line.split()[0] for line in (work.parent / "log").read_text().splitlines()}) < 2:
            assert time.monotonic() < until, "no second worker came"
            time.sleep(0.05)
        return asdict(TrialResult(trial.group, trial.setting, trial.seed, 0.7, 1.0, {}, {}))


def test_workers_share_the_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "context", forkserver)
    run_in_workers(Slow, tmp_path, tmp_path, Scope(2), 2, full=False)
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == len({line.split()[1] for line in lines}) == 4, "each training once"
    assert len({line.split()[0] for line in lines}) == 2
    results = run_trials(Slow(), tmp_path, tmp_path, Scope(2), Progress())
    assert [(result.setting, result.seed) for result in results] == [
        ("undefended", 1),
        ("max_norm", 1),
        ("undefended", 2),
        ("max_norm", 2),
    ]


def test_a_training_of_another_process_is_waited_for_and_taken_over_when_it_dies(tmp_path: Path) -> None:
    study = Tiny()
    first = next(study.trials(tmp_path, 1))
    (tmp_path / "trials").mkdir()
    stages = Stages()
    stages.stage = stages.names.append  # type: ignore[method-assign]
    other = locked(tmp_path / "trials" / f"{first.slug}.lock", "another machine")
    other.__enter__()
    thread = threading.Thread(target=run_trials, args=(study, tmp_path, tmp_path, Scope(1), stages))
    thread.start()
    while not any("waiting" in name for name in stages.names):
        assert thread.is_alive()
        time.sleep(0.01)
    assert [name for name in stages.names if "seed" in name] == ["Criteo: max_norm, seed 1"]
    other.__exit__(None, None, None)  # without a result: as if its process was killed
    thread.join(60)
    assert not thread.is_alive()
    assert "Criteo: undefended, seed 1" in stages.names
    assert len(list((tmp_path / "trials").glob("*.json"))) == 2
    assert not list(tmp_path.glob("work-*"))


def test_an_error_of_a_worker_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "context", forkserver)
    with pytest.raises(DataError, match="data"):
        run_in_workers(GradientLeakageStudy, tmp_path, tmp_path, Scope(1), 2, full=False)
    with pytest.raises(ConfigError, match="--workers of 1 or more"):
        registry.run_study("gradient-leakage", tmp_path, tmp_path, Scope(1), Progress(), workers=0)


def test_the_command_prints_one_document_or_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "STUDIES", {"tiny": Tiny})
    arguments = ["tiny", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--seeds", "1"]
    assert main([*arguments, "--json"]) == 0
    assert [entry["setting"] for entry in json.loads(capsys.readouterr().out)] == ["undefended", "max_norm"]
    assert main(arguments) == 0
    assert "# Label leakage from gradients" in capsys.readouterr().out


def test_an_unknown_study_and_absent_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gradient-leakage"):
        registry.run_study("gradient-leakge", tmp_path, tmp_path / "out", Scope(1), Progress())
    with pytest.raises(DataError, match="data"):
        registry.run_study("gradient-leakage", tmp_path, tmp_path / "out", Scope(1), Progress())


def test_an_interval_needs_two_seeds() -> None:
    assert str(seed_mean_of([0.7])) == "0.700"
    assert seed_mean_of([0.6, 0.8]).half_width == pytest.approx(12.706 * 0.1, rel=1e-3)
    assert str(SeedMean(-0.0001, 0.01)) == "0.000 ± 0.010"
    assert str(seed_mean_of([-0.0001])) == "−0.0001"


@pytest.mark.real_data
@pytest.mark.parametrize("kind", ALL)
def test_every_job_of_a_study_is_valid_and_named_once(
    kind: type[Study], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not DATA.exists():
        pytest.skip(f"the data sets are not at {DATA.parent.name}/{DATA.name} beside the checkout")
    asked: set[float] = set()
    # Another test leaves negatives of a small file out; here all of Criteo would be read for each share.
    monkeypatch.setattr("studies.forward_leakage.study.with_positives", lambda _, share, seed: asked.add(share) or {})
    study = kind()
    first = list(study.trials(DATA, 1))
    for trial in first:
        check_job(trial.job)
        assert trial.job.train.seed == trial.seed == 1
    assert asked == ({*SHARES} if kind is ForwardLeakageStudy else set())
    assert all(0.257 < share < 1 for share in asked), "Criteo has so many positives already"
    trials = [Trial(c.group, c.setting, seed, c.job) for seed in (1, 2, 3) for c in first]
    assert len({trial.slug for trial in trials}) == len(trials)
    page = page_of(study, made_up(study, trials), tmp_path / "whole")
    assert " ".join(study.settings.split()) in " ".join(page.split())
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith(("|", "#", "!", "<")))
    assert "not run" not in page
    assert not [row for row in rows_of(page) if row.count("–") > 2]
    settings = {trial.setting for trial in trials if "centralised" not in trial.group}
    assert not settings - {trial for row in rows_of(page) for trial in row}


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("seeds", [0, 1])
def test_a_page_of_what_there_is_resolves_nothing(kind: type[Study], seeds: int, tmp_path: Path) -> None:
    study = kind()
    groups = ("Criteo", "Avazu")
    trials = [Trial(group, "undefended", seed, tiny_job(1, {})) for seed in range(1, seeds + 1) for group in groups]
    page = page_of(study, made_up(study, trials), tmp_path / "out")
    verdicts = [row[3] for row in rows_of(page) if len(row) == 4 and row[3].startswith("**")]
    assert verdicts
    assert set(verdicts) <= {"**not run**", "**open**", "**open at 1 seed**"}
