"""A study runs its trainings once, keeps them, goes on where it stopped, and writes its page and figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from written_pages import page_of

import studies
from cutlayer.config import Job, validated
from cutlayer.durable import locked
from cutlayer.errors import ConfigError, DataError, RunFolderError
from cutlayer.runs.check import check_job
from cutlayer.runs.execute import Progress
from cutlayer.runs.folder import RunFolder
from studies.__main__ import main
from studies.base import Cell, Found, Study, mean, run_cells
from studies.forward_leakage import ForwardLeakage
from studies.gradient_leakage import GradientLeakage
from studies.label_dp import LabelDPStudy

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
ALL = [ForwardLeakage, GradientLeakage, LabelDPStudy]
LEAKS = ("embedding/spectral", "gradient/norm", "gradient/direction", "gradient/hint", "gradient/spectral")
LAYERS = ("publisher/layers.0", "publisher/layers.1", "advertiser/top.logits")


def tiny_job(seed: int, privacy: Mapping[str, object]) -> Job:
    raw = {
        "parties": {
            "bank": {"role": "active", "label": "y", "features": {"include": "none"}, "privacy": privacy},
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


class Tiny(GradientLeakage):
    """The study's page over two trainings of seconds."""

    name = "tiny"

    def cells(self, data: Path, seeds: int) -> Iterator[Cell]:
        for seed in range(1, seeds + 1):
            for setting, privacy in {"undefended": {}, "max_norm": {"max_norm": None}}.items():
                yield Cell("Criteo", setting, seed, tiny_job(seed, privacy), tiny_tables())

    def measure(self, cell: Cell, folder: RunFolder) -> dict[str, Any]:
        return {"epochs kept": len(folder.history())}


class Stages(Progress):
    """Counts the trainings."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def stage(self, name: str) -> None:
        if "seed" in name:
            self.names.append(name)


def pretended(study: Study, cells: list[Cell], seed: int = 0) -> list[Found]:
    """Results of made-up trainings: dCor hides, the rest leaks 0.75, every test metric is about 0.7."""
    draw = np.random.default_rng(seed)

    def near(value: float) -> float:
        return value + float(draw.normal(0, 0.002))

    found = []
    for cell in cells:
        leak = 0.51 if "dcor" in cell.setting else 0.75
        leaks = {key: {"auc": near(leak), "epoch": 1, "last": near(leak)} for key in LEAKS}
        layers = {key: {"auc": near(0.6 + 0.05 * place), "epoch": 1, "last": 0.6} for place, key in enumerate(LAYERS)}
        measured: dict[str, Any] = {}
        if cell.group == "Avazu, by day":
            day = {"rows": 600, "positives": 100, "auc": near(0.68), "deviation": 0.03}
            measured = {
                "days": {name: {**day, "leaks": dict.fromkeys(LEAKS, near(0.7))} for name in ("141021", "141022")}
            }
        if cell.group.endswith("in one place"):
            measured = {"right_once": 0.7, "right_vote": near(0.95), "once_auc": 0.7, "vote_auc": near(0.95)}
        found.append(Found(cell.group, cell.setting, cell.seed, near(0.7), 1.0, leaks, layers, measured))
    return found


def rows_of(page: str) -> list[list[str]]:
    """The cells of every table row."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")
    ]


def test_a_study_keeps_its_trainings_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "STUDIES", {"tiny": Tiny})
    first, again = Stages(), Stages()
    found = studies.run_study("tiny", tmp_path, tmp_path / "out", 1, first)
    assert [one.setting for one in found] == ["undefended", "max_norm"]
    assert [one.measured for one in found] == [{"epochs kept": 2}] * 2
    assert len(first.names) == 2
    wider = studies.run_study("tiny", tmp_path, tmp_path / "out", 2, again)
    assert wider[:2] == found
    assert len(again.names) == 2
    page = (tmp_path / "out" / "page.md").read_text()
    assert "| undefended | " in page
    assert "| max_norm | " in page
    assert "seeds 1, 2; 4 trainings" in " ".join(page.split())
    kept = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [one["metric"] for one in kept] == [one.metric for one in wider]
    assert not (tmp_path / "out" / "work").exists()


def test_results_of_before_there_were_further_figures_are_still_read(tmp_path: Path) -> None:
    study = Tiny()
    cell = next(study.cells(tmp_path, 1))
    (tmp_path / "cells").mkdir()
    old = {
        "group": "Criteo",
        "setting": "undefended",
        "seed": 1,
        "metric": 0.7,
        "seconds": 1.0,
        "leaks": {},
        "layers": {},
    }
    for name in (cell.slug, cell.slug.replace("undefended", "max_norm")):
        (tmp_path / "cells" / f"{name}.json").write_text(json.dumps(old))
    assert [one.measured for one in run_cells(study, tmp_path, tmp_path, 1, Progress())] == [{}, {}]


def test_a_study_is_run_by_one_process_at_a_time(tmp_path: Path) -> None:
    """Both would train in the same folder, and each would remove what the other has there."""
    with (
        locked(tmp_path / "study.lock", "the study tiny"),
        pytest.raises(RunFolderError, match=r"in use by the study tiny \(process"),
    ):
        run_cells(Tiny(), tmp_path, tmp_path, 1, Progress())


def test_the_command_prints_one_document_or_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(studies, "STUDIES", {"tiny": Tiny})
    arguments = ["tiny", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--seeds", "1"]
    assert main([*arguments, "--json"]) == 0
    assert [one["setting"] for one in json.loads(capsys.readouterr().out)] == ["undefended", "max_norm"]
    assert main(arguments) == 0
    assert "# Label leakage from gradients" in capsys.readouterr().out


def test_an_unknown_study_and_absent_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gradient-leakage"):
        studies.run_study("gradient-leakge", tmp_path, tmp_path / "out", 1, Progress())
    with pytest.raises(DataError, match="data"):
        studies.run_study("gradient-leakage", tmp_path, tmp_path / "out", 1, Progress())


def test_an_interval_needs_two_seeds() -> None:
    assert str(mean([0.7])) == "0.700"
    assert mean([0.6, 0.8]).half == pytest.approx(12.706 * 0.1, rel=1e-3)
    assert str(mean([-0.0001])) == "0.000"


@pytest.mark.real_data
@pytest.mark.parametrize("kind", ALL)
def test_every_job_of_a_study_is_valid_and_named_once(kind: type[Study], tmp_path: Path) -> None:
    if not DATA.exists():
        pytest.skip(f"the data sets are not at {DATA.parent.name}/{DATA.name} beside the checkout")
    study = kind()
    first = list(study.cells(DATA, 1))
    for cell in first:
        check_job(cell.job)
        assert cell.job.train.seed == cell.seed == 1
    cells = [Cell(c.group, c.setting, seed, c.job) for seed in (1, 2, 3) for c in first]
    assert len({cell.slug for cell in cells}) == len(cells)
    page = page_of(study, pretended(study, cells), tmp_path / "whole")
    assert " ".join(study.settings.split()) in " ".join(page.split())
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith(("|", "#", "!")))
    assert "not run" not in page
    assert not [row for row in rows_of(page) if row.count("–") > 2]
    settings = {cell.setting for cell in cells if "in one place" not in cell.group}
    assert not settings - {cell for row in rows_of(page) for cell in row}


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("seeds", [0, 1])
def test_a_page_of_what_there_is_resolves_nothing(kind: type[Study], seeds: int, tmp_path: Path) -> None:
    study = kind()
    groups = ("Criteo", "Avazu")
    cells = [Cell(group, "undefended", seed, tiny_job(1, {})) for seed in range(1, seeds + 1) for group in groups]
    page = page_of(study, pretended(study, cells), tmp_path / "out")
    verdicts = [row[3] for row in rows_of(page) if len(row) == 4 and row[3].startswith("**")]
    assert verdicts
    assert set(verdicts) <= {"**not run**", "**cannot be resolved with these data**"}
