"""The examples of CONTRIBUTING.md work as they stand there."""

from __future__ import annotations

import importlib
import re
import tomllib
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest

from cutlayer import attacks, protections
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import Progress
from studies import registry
from studies.results import TrialResult
from studies.trials import Study, Trial
from tests.docs.reading import ROOT, block, blocks

PAGE = ROOT / "CONTRIBUTING.md"


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tests")
    return importlib.import_module("tests.conformance.suite")


def example(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Write a block of the page to a file and import it."""
    (folder / name).write_text(block(PAGE, name), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module(Path(name).stem)


def line_of(name: str) -> dict:
    """A line of the conformance table, in the table's own words."""
    table = importlib.import_module("tests.conformance.table")
    return eval("{" + block(PAGE, name) + "}", vars(table))


def test_a_defence_in_one_file(suite: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defence = example("sign_only.py", tmp_path, monkeypatch).SignOnly
    ((name, case),) = line_of("protections-line").items()
    suite.check_protection(defence, case)
    monkeypatch.setitem(protections.REGISTRY, name, defence)
    chain = protections.build_chain("bank", "active", {name: None, "max_norm": None}, "parties.bank.privacy")
    assert [one.name for one in chain.protections] == ["max_norm", "sign_only"]


def test_an_attack_in_one_file(suite: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack = example("nearest.py", tmp_path, monkeypatch).Nearest
    ((name, case),) = line_of("attacks-line").items()
    suite.check_attack(attack, case)
    monkeypatch.setitem(attacks.REGISTRY, name, attack)
    assert name in [one.name for one in attacks.resolve("auto", "binary").labels]


def test_a_study_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = example("max_norm_cost.py", tmp_path, monkeypatch).MaxNormCost
    made_up = {"undefended": 0.9, "max_norm": 0.895}

    def train(self: Study, trial: Trial, work: Path, progress: Progress) -> dict:
        check_job(trial.job)
        metric = made_up[trial.setting] + trial.seed / 1000
        return asdict(TrialResult(trial.group, trial.setting, trial.seed, metric, 1.0, {}, {}))

    monkeypatch.setattr(kind, "train", train)
    monkeypatch.setattr(registry, "STUDIES", {**registry.STUDIES, kind.name: kind})
    record = registry.run_study(kind.name, tmp_path, tmp_path / "out", 3, Progress())
    assert len(record.results) == 6
    page = (tmp_path / "out" / "max-norm-cost.md").read_text(encoding="utf-8")
    assert "Of 1 claims, 1 holds." in page
    assert "| max_norm | 0.897 ± 0.002 | 0.005 ± 0.000 |" in page
    assert (tmp_path / "out" / "figures" / "max-norm-cost-auc.svg").exists()


def test_the_examples_are_not_registered_yet() -> None:
    assert "max-norm-cost" not in registry.STUDIES
    assert "sign_only" not in protections.REGISTRY
    assert "nearest" not in attacks.REGISTRY


def test_the_picture_of_the_layers_is_that_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (contract,) = [contract for contract in contracts if contract["type"] == "layers"]
    (picture,) = [one.text for one in blocks(PAGE, "text")]
    drawn = [re.split(r"  +", line)[0] for line in picture.splitlines()]
    assert drawn == contract["layers"]
