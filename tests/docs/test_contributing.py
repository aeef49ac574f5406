"""The examples of CONTRIBUTING.md work as they stand there."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from docs_reading import ROOT, block, blocks

from cutlayer import attacks, protections

PAGE = ROOT / "CONTRIBUTING.md"


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tests")
    return importlib.import_module("conformance.suite")


def example(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Write a block of the page to a file and import it."""
    (folder / name).write_text(block(PAGE, name), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module(Path(name).stem)


def line_of(name: str) -> dict:
    """A line of the conformance table, in the table's own words."""
    table = importlib.import_module("conformance.table")
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
    assert name in [one.name for one in attacks.resolve("auto", "binary")]


def test_the_examples_are_not_registered_yet() -> None:
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
