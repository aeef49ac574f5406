"""A study runs its trainings once, keeps them, goes on where it stopped, and writes its page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import cutlayer.studies as studies
from cutlayer.cli.app import _run
from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError, DataError
from cutlayer.runs.execute import Progress
from cutlayer.studies.base import Cell, Found, mean
from cutlayer.studies.forward_leakage import ForwardLeakage
from cutlayer.studies.gradient_leakage import GradientLeakage
from cutlayer.studies.label_dp import LabelDPStudy

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"


def tiny_job(seed: int, privacy: dict[str, object]) -> Job:
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


class Stages(Progress):
    """Counts the trainings."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def stage(self, name: str) -> None:
        if "seed" in name:
            self.names.append(name)


def test_a_study_keeps_its_trainings_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "STUDIES", {"tiny": Tiny})
    first, again = Stages(), Stages()
    found = studies.run_study("tiny", tmp_path, tmp_path / "out", 1, first)
    assert [one.setting for one in found] == ["undefended", "max_norm"]
    assert len(first.names) == 2
    wider = studies.run_study("tiny", tmp_path, tmp_path / "out", 2, again)
    assert wider[:2] == found
    assert len(again.names) == 2
    page = (tmp_path / "out" / "page.md").read_text()
    assert "| undefended | " in page
    assert "| max_norm | " in page
    kept = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [one["metric"] for one in kept] == [one.metric for one in wider]
    assert not (tmp_path / "out" / "work").exists()


def test_the_verb_prints_one_document_or_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(studies, "STUDIES", {"tiny": Tiny})
    arguments = ["study", "tiny", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--seeds", "1"]
    assert _run([*arguments, "--json"]) == 0
    assert [one["setting"] for one in json.loads(capsys.readouterr().out)] == ["undefended", "max_norm"]
    assert _run(arguments) == 0
    assert "# Label leakage from gradients" in capsys.readouterr().out


def test_an_unknown_study_and_absent_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gradient-leakage"):
        studies.run_study("gradient-leakge", tmp_path, tmp_path / "out", 1, Progress())
    with pytest.raises(DataError, match="data"):
        studies.run_study("gradient-leakage", tmp_path, tmp_path / "out", 1, Progress())


def test_an_interval_needs_two_seeds() -> None:
    assert str(mean([0.7])) == "0.700"
    assert mean([0.6, 0.8]).half == pytest.approx(12.706 * 0.1, rel=1e-3)


@pytest.mark.real_data
@pytest.mark.parametrize("study", [ForwardLeakage, GradientLeakage, LabelDPStudy])
def test_every_job_of_a_study_is_valid_and_named_once(study: type[studies.Study]) -> None:
    if not DATA.exists():
        pytest.skip(f"the data sets are not at {DATA.parent.name}/{DATA.name} beside the checkout")
    cells = list(study().cells(DATA, 2))
    assert len({cell.slug for cell in cells}) == len(cells)
    leaks = {
        "gradient/norm": {"auc": 0.9, "epoch": 1, "last": 0.8},
        "embedding/spectral": {"auc": 0.3, "epoch": 2, "last": 0.4},
    }
    page = study().page(
        [Found(c.group, c.setting, c.seed, 0.7, 1.0, leaks, {"p/l": leaks["gradient/norm"]}) for c in cells]
    )
    assert all(f"## {group}" in page for group in {cell.group for cell in cells})
