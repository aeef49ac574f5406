"""The examples of docs/extending.md work as written there, alone and added to a copy of the project."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import traceback
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
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.models.bottom_fits import FITS
from cutlayer.report.build import build_report
from cutlayer.report.html import render_html
from cutlayer.training.keys import Keys
from studies import registry
from studies.results import TrialResult
from studies.trials import Scope, Study, Trial
from tests.cli.test_start import COMPUTING, HEAVY
from tests.conformance import completion_suite, feature_suite, fit_suite, model_suite, source_suite
from tests.docs.reading import ROOT, block, blocks
from tests.forks import forked
from tests.parties.runs import KEY, raw_job, tables
from tests.parties.runs import run as train

PAGE = ROOT / "examples" / "in_the_package.md"
PLUGIN = ROOT / "examples" / "plugin"
IN_PLUGIN = ("noisy_sign.py", "nearest.py")


def source(name: str) -> str:
    """The file of an example."""
    folder = PLUGIN / "src" / "cutlayer_example"
    return (folder / name).read_text(encoding="utf-8") if name in IN_PLUGIN else block(PAGE, name)


@pytest.mark.parametrize("name", IN_PLUGIN)
def test_the_page_shows_the_files_of_the_template(name: str) -> None:
    assert block(ROOT / "docs" / "extending.md", name) == source(name)


@pytest.fixture
def suite() -> ModuleType:
    return importlib.import_module("tests.conformance.suite")


def example(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Write a block of the page to a file and import it."""
    (folder / name).write_text(source(name), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module(Path(name).stem)


def line_of(name: str) -> dict:
    """A line of the conformance table, in the table's own words."""
    table = importlib.import_module("tests.conformance.table")
    return eval("{" + block(PAGE, name) + "}", vars(table))


LONG = ("succeeds_undefended", "lowers_its_attacks", "withstands_adaptive", "is_at_chance_on_random_labels")
"""Checks of the suite that take seconds: the copy of the project below runs all but these, and they run here."""


def long_of(checks: tuple) -> tuple:
    """The long checks of a suite."""
    found = tuple(check for check in checks if any(name in check.__name__ for name in LONG))
    assert found, "the names of the checks have changed"
    return found


def every(checks: tuple, kind: type, case: object) -> None:
    for check in checks:
        check(kind, case)


def test_a_registered_defence_is_in_a_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defence = example("noisy_sign.py", tmp_path, monkeypatch).NoisySign
    ((name, case),) = line_of("protections-line").items()
    monkeypatch.setitem(protections.REGISTRY, name, defence)
    chain = protections.build_chain(
        "bank", "active", {name: case.options, "discrete_sgd": {"levels": 2}}, "parties.bank.privacy"
    )
    assert [protection.name for protection in chain.protections] == ["discrete_sgd", "noisy_sign"]


def test_a_defence_with_a_theorem(suite: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defence = example("sphere_noise.py", tmp_path, monkeypatch).SphereNoise
    every(long_of(suite.PROTECTION_CHECKS), defence, *line_of("formal-line").values())


def test_a_registered_attack_is_in_a_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack = example("nearest.py", tmp_path, monkeypatch).Nearest
    monkeypatch.setitem(attacks.REGISTRY, "nearest", attack)
    assert "nearest" in [label.name for label in attacks.resolve("auto", "binary").labels]


def test_a_completion_attack_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HEADS, "MLP", (64, 32))  # as in tests/conformance
    attack = example("nearest_mean.py", tmp_path, monkeypatch).NearestMean
    ((_, case),) = line_of("completions-line").items()
    checks = long_of(completion_suite.COMPLETION_CHECKS)
    every(checks, attack, case)


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
    report = build_report(folder.path)
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
    assert any("strange" in limit for limit in build_report(folder.path).limits)


def test_a_model_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = example("gated.py", tmp_path, monkeypatch).GATED
    monkeypatch.setitem(models.BOTTOMS, "gated", kind)
    model_suite.check_model("gated", *line_of("models-line").values())
    section = {"kind": "gated", "width": 3}
    with pytest.raises(ConfigError, match="numeric columns alone for kind gated"):
        models.build_bottom(section, models.Inputs((3,), 4))
    raw = raw_job(bottom=section, epochs=1)
    for party in raw["parties"].values():
        party["features"] = {"exclude": ["bank_kind"] if party["role"] == "active" else ["telco_kind"]}
    run = train(validated(Job, raw, ""), tables(), tmp_path / "run")
    assert {*run.active.widths.values()} == {3}


def test_a_data_source_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("feather.py", tmp_path, monkeypatch)
    monkeypatch.setitem(sources.SOURCES, "feather", module.FeatherSource)
    source_suite.check_source(module.FeatherSource, *line_of("sources-line").values(), tmp_path)
    table = pa.table({"id": [3, 1], "plan": ["a", "b"], "usage": [0.5, None]})
    feather.write_feather(table, tmp_path / "telco.feather")
    opened = sources.open_source(TableConfig(path=tmp_path / "telco.feather"), "telco")
    assert opened.names == ("id", "plan", "usage")
    assert opened.read(["usage", "id"]).equals(table.select(["usage", "id"]))
    prepared = PartyTable("telco", TableConfig(path=tmp_path / "telco.feather"), "id")
    assert (prepared.rows, prepared.id_kind) == (2, "integer")


def test_a_fit_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = example("decorrelated.py", tmp_path, monkeypatch).DECORRELATED
    monkeypatch.setitem(FITS, fit.kind, fit)
    fit_suite.check_fit_kind(fit, *line_of("fits-line").values())


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


def test_a_file_without_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert example("centred.py", tmp_path, monkeypatch).centred([1, 3]).tolist() == [-1.0, 1.0]


LOADED = f"""
import sys
from importlib import import_module

heavy = set({HEAVY.split()})
for name in sys.argv[1:]:
    import_module(name)
    found = heavy & {{*sys.modules}}
    assert not found, f"{{name}} imports {{sorted(found)}}"
    heavy = set({COMPUTING})  # a verb loads nothing, and a file of a catalogue no library that computes
"""


def test_files_of_examples_load_nothing_that_computes_before_it_is_used(tmp_path: Path) -> None:
    """In a process of its own, the verb first: a file of a catalogue is imported by verbs that only list it."""
    for name in (*ADDED, "centred.py"):
        (tmp_path / name).write_text(source(name), encoding="utf-8")
    (tmp_path / "columns.py").write_text(block(PAGE, "columns.py"), encoding="utf-8")
    names = [path.removesuffix(".py") for path in ("columns.py", "centred.py", *ADDED)]
    subprocess.run([sys.executable, "-c", LOADED, *names], cwd=tmp_path, check=True)


ADDED = {  # example: folder in src/cutlayer, name of its blocks, dictionary of the table
    "noisy_sign.py": ("protections", "protections", "PROTECTIONS"),
    "sphere_noise.py": ("protections", "formal", "PROTECTIONS"),
    "nearest.py": ("attacks/label", "attacks", "ATTACKS"),
    "nearest_mean.py": ("attacks/completion", "completions", "COMPLETIONS"),
    "kernel_regression.py": ("attacks/feature", "features", "FEATURES"),
    "decorrelated.py": ("models/bottom_fits", "fits", "FITS"),
    "gated.py": ("models", "models", "MODELS"),
    "feather.py": ("data/sources", "sources", "SOURCES"),
}
COPIED = (
    "src",
    "tests",
    "docs",
    "tools",
    "benchmarks",
    "studies",
    "examples",
    "plugins",
    "pyproject.toml",
    "mkdocs.yml",
    "Makefile",
)
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
OF_EACH = (
    "tests/conformance/test_conformance.py",
    "tests/cli/test_options.py",
    "tests/estimator/test_protected.py",
    "tests/parties/test_bounds.py",
    "tests/parties/test_step_reads.py",
    "tests/protections/test_party_dropout.py",
)
"""Tests of each thing that is registered: those of what was added run."""
OF_ALL = (
    "tests/attacks/test_catalogue.py",
    "tests/benchmarks/test_defences.py::test_every_defence_of_the_gradient_is_timed",
    "tests/benchmarks/test_gpu_training.py::test_every_protection_is_in_one_part",
    "tests/cli/test_options.py::test_help_lists_the_verbs_in_the_order_of_a_first_day",
    "tests/cli/test_options.py::test_verbs_and_options_are_those_listed_here",
    "tests/cli/test_start.py::test_names_on_first_use_are_listed_and_are_not_those_of_modules",
    "tests/conformance/test_conformance.py::test_no_two_have_one_name",
    "tests/conformance/test_conformance.py::test_the_table_has_a_line_for_everything_registered",
    "tests/docs/test_cli_page.py",
    "tests/docs/test_readme.py::test_every_verb_takes_json",
    "tests/docs/test_readme.py::test_the_limits_are_still_those_of_today",
    "tests/docs/test_reference.py::test_every_hook_is_described_with_who_uses_it",
    "tests/docs/test_reference.py::test_the_guarantees_of_all_protections_are_in_one_table",
    "tests/docs/test_reference.py::test_the_page_of_guarantees_has_mechanisms_with_one_alone_and_names_tests_that_exist",
    "tests/docs/test_reference_pages.py",
    "tests/estimator/test_job.py::test_every_protection_has_its_settings_in_the_package",
)


def inserted(path: Path, after: str, line: str) -> None:
    """Put lines after the only line that has a text."""
    text = path.read_text(encoding="utf-8")
    assert text.count(f"{after}\n") == 1
    path.write_text(text.replace(f"{after}\n", f"{after}\n{line}"), encoding="utf-8")


def test_one_file_and_two_lines_add_anything(tmp_path: Path) -> None:
    """In a copy of the project, to which all examples are added at once, and nothing else."""
    root, package = tmp_path / "copy", tmp_path / "copy" / "src" / "cutlayer"
    for name in (*COPIED, *PAGES):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        root.mkdir(exist_ok=True)
        copy(ROOT / name, root / name)
    table = root / "tests" / "conformance" / "table.py"
    for file, (folder, name, lines) in ADDED.items():
        (package / folder / file).write_text(source(file), encoding="utf-8")
        catalogue = package / folder / "catalogue.py"
        catalogue = catalogue if catalogue.exists() else package / Path(folder).parent / "catalogue.py"
        with catalogue.open("a", encoding="utf-8") as registry:
            registry.write(block(PAGE, f"{name}-registry"))
        inserted(table, f"{lines} = {{", block(PAGE, f"{name}-line"))
    (package / "cli" / "columns.py").write_text(block(PAGE, "columns.py"), encoding="utf-8")
    inserted(package / "cli" / "__init__.py", "_FILES = (", block(PAGE, "verbs-registry"))
    inserted(root / "tests" / "cli" / "test_options.py", "VERBS = {", block(PAGE, "verbs-line"))
    added = " or ".join((*(Path(file).stem for file in ADDED), "[columns]"))
    of_all = " or ".join(Path(test).name.rpartition("::")[2] for test in OF_ALL)
    chosen = f"({added}) and not ({' or '.join(LONG)}) or {of_all}"
    passed, output = passes_in(root, "-q", "-x", "-p", "no:cacheprovider", "-k", chosen, *OF_EACH, *OF_ALL)
    assert passed, output[-6000:]


def passes_in(root: Path, *arguments: str) -> tuple[bool, str]:
    """Whether tests of a copy of the project pass, and what pytest prints.

    They run in a process that is forked from this one, which has imported what the project imports of others: to do so
    takes as long as the tests.
    """
    output = root.parent / "output"
    child = forked()
    if not child:
        code = 1
        try:
            with output.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            for name in [*sys.modules]:
                if name.startswith("cutlayer") or name.partition(".")[0] in COPIED:
                    del sys.modules[name]
            os.chdir(root)
            os.environ["PYTHONPATH"] = str(root / "src")
            sys.path.insert(0, str(root / "src"))
            code = pytest.main([*arguments])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return status == 0, output.read_text(encoding="utf-8")


def test_the_examples_are_not_registered_yet() -> None:
    assert "max-norm-cost" not in registry.STUDIES
    assert not {"noisy_sign", "sphere_noise"} & protections.REGISTRY.keys()
    assert not {"nearest", "nearest_mean", "kernel_regression"} & attacks.REGISTRY.keys()
    assert "decorrelated" not in FITS
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
