"""The examples of docs/extending.md work as written there."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from pyarrow import feather

from cutlayer import attacks, models, protections
from cutlayer.attacks.completion.base import HEADS, CompletionAttack, CompletionTraining
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.config import Job, TableConfig, validated
from cutlayer.data import sources
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError, DataError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.report.build import build
from cutlayer.report.html import render_html
from cutlayer.training.keys import Keys
from studies import registry
from studies.results import TrialResult
from studies.trials import Scope, Study, Trial
from tests.conformance import completion_suite, feature_suite
from tests.docs.reading import ROOT, block, blocks
from tests.parties.runs import KEY, raw_job, tables
from tests.parties.runs import run as train

PAGE = ROOT / "docs" / "extending.md"


@pytest.fixture
def suite() -> ModuleType:
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
    assert [protection.name for protection in chain.protections] == ["max_norm", "sign_only"]


def test_an_attack_in_one_file(suite: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack = example("nearest.py", tmp_path, monkeypatch).Nearest
    ((name, case),) = line_of("attacks-line").items()
    suite.check_attack(attack, case)
    monkeypatch.setitem(attacks.REGISTRY, name, attack)
    assert name in [label.name for label in attacks.resolve("auto", "binary").labels]


def test_a_completion_attack_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HEADS, "MLP", (64, 32))  # as in tests/conformance
    attack = example("nearest_mean.py", tmp_path, monkeypatch).NearestMean
    ((_, case),) = line_of("completions-line").items()
    completion_suite.check_completion(attack, case)


def test_an_attack_on_features_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack = example("kernel_regression.py", tmp_path, monkeypatch).KernelRegression
    ((_, case),) = line_of("features-line").items()
    feature_suite.check_feature_attack(attack, case)


def test_a_job_runs_new_attacks_of_every_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered, named in a job, and found in `audit.json` and in the report, with nothing else changed."""
    for file in ("nearest.py", "nearest_mean.py", "kernel_regression.py"):
        module = example(file, tmp_path, monkeypatch)
        (attack,) = (
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, attacks.Attack) and kind.__module__ == module.__name__
        )
        monkeypatch.setitem(attacks.REGISTRY, attack.name, attack)
    raw = raw_job(audit={"attacks": ["nearest", "nearest_mean"], "rows": 200})
    raw["parties"]["telco"]["audit"] = {"attacks": ["kernel_regression"], "rows": 200}
    briefly = CompletionTraining(min_steps=1, max_steps=9, unlabelled_steps=9)
    monkeypatch.setattr(CompletionAttack.__init__, "__defaults__", (None, briefly))
    options = Options(Keys(tmp_path, KEY), tables=tables(rows=320))
    folder = execute(validated(Job, raw, ""), tmp_path / "run", options, Progress())
    audit = folder.read_json("audit.json")
    assert {leak["attack"] for leak in audit["runs"]["this run"]["leaks"]} == {"nearest"}
    assert [completion["attack"] for completion in audit["completions"]] == ["nearest_mean"] * 2
    assert {feature_result["attack"] for feature_result in audit["features"]} == {"kernel_regression"}
    assert audit["runs"]["this run"]["skipped"] == []
    report = build(folder.path)
    assert {item.attack for item in (*report.leaks, *report.completions, *report.features)} == {
        "nearest",
        "nearest_mean",
        "kernel_regression",
    }
    page = render_html(report)
    assert all(name in page for name in ("nearest", "nearest_mean", "kernel_regression"))


@pytest.mark.parametrize("fault", ["result", "knowledge"])
def test_an_attack_that_no_audit_can_run_is_skipped_with_the_reason(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Strange(attacks.FeatureAttack[str]):
        name = "strange"
        needs = frozenset({Need.HINTS if fault == "knowledge" else Need.AUXILIARY_FEATURES})

        def run(self, view: FeatureView, knowledge: Knowledge) -> str:
            return "all columns are blue"

    monkeypatch.setitem(attacks.REGISTRY, "strange", Strange)
    raw = raw_job(audit={"attacks": ["norm"], "rows": 200})
    raw["parties"]["telco"]["audit"] = {"attacks": ["strange"], "rows": 200}
    options = Options(Keys(tmp_path, KEY), tables=tables(rows=240))
    folder = execute(validated(Job, raw, ""), tmp_path / "run", options, Progress())
    [skipped] = folder.read_json("audit.json")["runs"]["this run"]["skipped"]
    assert (skipped["party"], skipped["message"], skipped["attack"]) == ("telco", "embedding", "strange")
    reason = skipped["reason"]
    assert ("got str" if fault == "result" else "got up to 10 positive rows") in reason
    assert any("strange" in limit for limit in build(folder.path).limits)


def test_a_model_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("gated.py", tmp_path, monkeypatch)
    known = {"ModelKind": models.ModelKind, **vars(module)}
    ((name, kind),) = eval("{" + block(PAGE, "models-line") + "}", known).items()
    monkeypatch.setitem(models.BOTTOMS, name, kind)
    section = {"kind": name, "width": 3}
    assert models.stated_width(section) == models.build_bottom(section, models.Inputs(numbers=4)).width == 3
    with pytest.raises(ConfigError, match="numeric columns alone for kind gated"):
        models.build_bottom(section, models.Inputs((3,), 4))
    raw = raw_job(bottom=section, epochs=1)
    for party in raw["parties"].values():
        party["features"] = {"exclude": ["bank_kind"] if party["role"] == "active" else ["telco_kind"]}
    run = train(validated(Job, raw, ""), tables(), tmp_path / "run")
    assert {*run.active.widths.values()} == {3}


def test_a_data_source_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("feather.py", tmp_path, monkeypatch)
    ((name, source),) = eval("{" + block(PAGE, "sources-line") + "}", vars(module)).items()
    monkeypatch.setitem(sources.SOURCES, name, source)
    table = pa.table({"id": [3, 1], "plan": ["a", "b"], "usage": [0.5, None]})
    feather.write_feather(table, tmp_path / "telco.feather")
    opened = sources.open_source(TableConfig(path=tmp_path / "telco.feather"), "telco")
    assert opened.names == ("id", "plan", "usage")
    assert opened.read(["usage", "id"]).equals(table.select(["usage", "id"]))
    prepared = PartyTable("telco", TableConfig(path=tmp_path / "telco.feather"), "id")
    assert (prepared.rows, prepared.id_kind) == (2, "integer")
    (tmp_path / "bad.arrow").write_bytes(b"not a table")
    with pytest.raises(DataError, match="a readable table"):
        sources.open_source(TableConfig(path=tmp_path / "bad.arrow"), "telco")


def test_a_study_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = example("max_norm_cost.py", tmp_path, monkeypatch).MaxNormCost
    made_up = {"undefended": 0.9, "max_norm": 0.895}

    def train(self: Study, trial: Trial, work: Path, progress: Progress) -> dict:
        check_job(trial.job)
        metric = made_up[trial.setting] + trial.seed / 1000
        return asdict(TrialResult(trial.group, trial.setting, trial.seed, metric, 1.0, {}, {}))

    monkeypatch.setattr(kind, "train", train)
    monkeypatch.setattr(registry, "STUDIES", {**registry.STUDIES, kind.name: kind})
    record = registry.run_study(kind.name, tmp_path, tmp_path / "out", Scope(3), Progress())
    assert len(record.results) == 6
    page = (tmp_path / "out" / "max-norm-cost.md").read_text(encoding="utf-8")
    assert "Of 1 claim without a figure of a paper 1 holds." in page
    assert "| max_norm | 0.897 ± 0.002 | 0.005 ± 0.000 |" in page
    assert (tmp_path / "out" / "figures" / "max-norm-cost-auc.svg").exists()


def test_a_file_without_pytorch(tmp_path: Path) -> None:
    (tmp_path / "centred.py").write_text(block(PAGE, "centred.py"), encoding="utf-8")
    code = "import sys, centred; assert 'torch' not in sys.modules; print(centred.centred([1, 3]).tolist())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["[-1.0,", "1.0]"]


def test_the_examples_are_not_registered_yet() -> None:
    assert "max-norm-cost" not in registry.STUDIES
    assert "sign_only" not in protections.REGISTRY
    assert not {"nearest", "nearest_mean", "kernel_regression"} & attacks.REGISTRY.keys()
    assert "nearest" not in attacks.REGISTRY
    assert "gated" not in models.BOTTOMS
    assert "feather" not in sources.SOURCES


def test_the_picture_of_the_layers_is_that_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (contract,) = [contract for contract in contracts if contract["type"] == "layers"]
    (picture,) = [item.text for item in blocks(ROOT / "docs" / "architecture.md", "text")]
    drawn = [re.split(r"  +", line)[0] for line in picture.splitlines()]
    assert drawn == contract["layers"]
