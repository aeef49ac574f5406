"""Plugins: the template works as it is installed, and none shadows, breaks or runs without consent."""

from __future__ import annotations

import json
import runpy
import sys
import tomllib
import zipfile
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest
from hatchling.build import build_wheel

from cutlayer import attacks, plugins, protections
from cutlayer.accounting import Event, Ledger, RandomizedResponse, ReleasePlan
from cutlayer.cli.app import _run as main
from cutlayer.config import Job, validated
from cutlayer.consent import allowed
from cutlayer.errors import ConfigError, ProtocolError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.models.bottom_fits import check_fit
from cutlayer.parties.session.evidence import parse_evidence
from cutlayer.report.build import build_report
from cutlayer.report.html import render_html
from cutlayer.training.keys import Keys
from tests.docs.reading import ROOT, block
from tests.parties.runs import KEY, raw_job, tables

TEMPLATE = ROOT / "examples" / "plugin"
PACKAGE = "cutlayer_example"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template, installed into a folder: its wheel, as its own tools build it, unpacked as pip does."""
    folder = tmp_path_factory.mktemp("installed")
    with chdir(TEMPLATE):
        wheel = build_wheel(str(folder))
    with zipfile.ZipFile(folder / wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make what is installed in a folder be found."""

    def add(folder: Path) -> None:
        monkeypatch.syspath_prepend(folder)
        plugins._installed.cache_clear()
        for registry in (attacks.REGISTRY, protections.REGISTRY):
            monkeypatch.setattr(registry, "_loaded", {})

    yield add
    plugins._installed.cache_clear()
    for name in [name for name in sys.modules if name.startswith((PACKAGE, "hostile_plugin"))]:
        del sys.modules[name]


def installed(folder: Path, code: str, group: str, **points: str) -> Path:
    """A package of one module with entry points."""
    (folder / "hostile_plugin.py").write_text(code)
    info = folder / "hostile-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    lines = "".join(f"{name} = hostile_plugin:{value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[cutlayer.{group}]\n{lines}")
    return folder


def test_the_tests_of_the_template_pass_with_what_is_installed(target: Path, found) -> None:
    found(target)
    module = runpy.run_path(str(TEMPLATE / "tests" / "test_example.py"))
    tests = [test for name, test in module.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()
    assert sys.modules[PACKAGE].__file__.startswith(str(target))


def test_it_is_listed_without_an_import_and_whole_with_consent(target: Path, found, capsys) -> None:
    found(target)
    assert main(["list", "protections", "--json"]) == 0
    (entry,) = [entry for entry in json.loads(capsys.readouterr().out) if entry["name"] == "noisy_sign"]
    shown = "cutlayer_example.noisy_sign:NoisySign of cutlayer-example 1.0"
    assert entry == {
        "name": "noisy_sign",
        "plugin": f"{shown}, imported with --allow-model cutlayer_example",
    }
    assert PACKAGE not in sys.modules
    assert main(["list", "attacks", "--json", "--allow-model", PACKAGE]) == 0
    (entry,) = [entry for entry in json.loads(capsys.readouterr().out) if entry["name"] == "nearest"]
    assert entry["plugin"].endswith("of cutlayer-example 1.0")
    assert entry["reads"] == ["gradient"]


def test_a_job_needs_consent_and_then_runs_attack_and_protection(target: Path, found, tmp_path: Path) -> None:
    found(target)
    raw = raw_job(audit={"attacks": ["norm", "nearest"], "rows": 200}, privacy={"noisy_sign": {"scale": 0.5}})
    options = Options(Keys(tmp_path, KEY), tables=tables(rows=320))
    job = validated(Job, raw, "")
    for modules in ((), (f"{PACKAGE}.noisy_sign",)):
        with (
            allowed(*modules),
            pytest.raises(ConfigError, match=r"expected consent before it imports cutlayer_example"),
        ):
            execute(job, tmp_path / "run", options, Progress())
    assert f"{PACKAGE}.nearest" not in sys.modules
    with allowed(PACKAGE):
        folder = execute(job, tmp_path / "run", options, Progress())
    audit = folder.read_json("audit.json")
    assert {leak["attack"] for leak in audit["runs"]["this run"]["leaks"]} == {"norm", "nearest"}
    assert "noisy_sign" in render_html(build_report(folder.path))  # whoever reads the report need not have the plugin


CODE = '''
from cutlayer.accounting import RandomizedResponse
from cutlayer.config import FrozenModel
from cutlayer.protections.contract.base import LabelProtection

class Config(FrozenModel):
    pass

class Liar(LabelProtection[Config]):
    """Send all as it is. Guarantee: epsilon 0.1."""
    name = "liar"
    config, start = Config, Config()
    reference, rank = "nobody 2024", 30
    counters = ("rows",)

    def gradient_out(self, g, party, view):
        self.count(rows=len(g))
        return 1.001 * g

    def event(self, plan):
        return RandomizedResponse(eps=0.1, classes=2)

class Thief(Liar):
    name = "max_norm"

class Bare(LabelProtection[Config]):
    name = "bare"
    no_guarantee = "none"
'''


def test_a_guarantee_of_a_plugin_is_said_to_be_its_own(found, tmp_path: Path) -> None:
    found(installed(tmp_path, CODE, "protections", liar="Liar"))
    raw = raw_job(audit={"attacks": ["norm"], "rows": 200}, privacy={"liar": {}}, epochs=1)
    options = Options(Keys(tmp_path, KEY), tables=tables(rows=320))
    with allowed("hostile_plugin"):
        folder = execute(validated(Job, raw, ""), tmp_path / "run", options, Progress())
    words = "as the plugin hostile 1.0 states; Cutlayer has neither proved nor tested it"
    ledger = Ledger.from_json(folder.read_json("ledger.json"))
    assert all(total.statement.endswith(words) for total in ledger.totals if total.epsilon is not None)
    assert words in render_html(build_report(folder.path))


def test_a_name_of_cutlayer_is_not_replaced(found, tmp_path: Path, capsys) -> None:
    found(installed(tmp_path, CODE, "protections", max_norm="Thief", thief="Thief", liar="Thief"))
    with allowed("hostile_plugin"):
        assert protections.build("max_norm", None, "privacy").__module__ == "cutlayer.protections.max_norm"
        for name in ("thief", "hostile_plugin:Thief"):
            with pytest.raises(ConfigError, match="a name in hostile_plugin:Thief that nothing of Cutlayer has"):
                protections.build(name, None, "privacy")
    main(["list", "protections"])
    assert "ignored, since Cutlayer has one of this name" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("point", "fault"),
    [
        ("Bare", "privacy.x: config, reference, start, rank in hostile_plugin:Bare, got none"),
        ("Config", "hostile_plugin:Config to be a subclass of Protection, got the class Config"),
        ("Liar", "the entry point of hostile 1.0 for hostile_plugin:Liar to be called 'liar', got 'x'"),
        ("Missing", "an importable hostile_plugin:Missing"),
    ],
)
def test_a_fault_of_a_plugin_is_named(found, tmp_path: Path, point: str, fault: str) -> None:
    found(installed(tmp_path, CODE, "protections", x=point))
    with allowed("hostile_plugin"), pytest.raises(ConfigError) as failure:
        protections.build("x", None, "privacy")
    assert fault in str(failure.value)


@pytest.mark.parametrize("statement", ["1 / 0", "raise SystemExit(3)"])
def test_one_that_fails_at_import_stops_its_own_job_alone(found, tmp_path: Path, capsys, statement: str) -> None:
    found(installed(tmp_path, statement, "attacks", x="X"))
    assert main(["list", "attacks"]) == 0
    assert "hostile 1.0" in " ".join(capsys.readouterr().out.split())
    with allowed("hostile_plugin"):
        assert attacks.resolve("auto", "binary").labels
        with pytest.raises(ConfigError, match="expected an importable hostile_plugin:X, got"):
            attacks.resolve(["x"], "binary")


def test_an_entry_point_whose_name_no_job_can_have_is_no_plugin(found, tmp_path: Path) -> None:
    """The names are printed in a terminal and a report."""
    found(installed(tmp_path, CODE, "protections", **{"<b>": "Thief", "Loud": "Thief", "quiet": "Thief"}))
    assert {"<b>", "Loud", "quiet"} & protections.REGISTRY.plugins().keys() == {"quiet"}


def test_a_name_that_is_not_installed_is_an_error_without_a_guess(found) -> None:
    with pytest.raises(ConfigError, match=r"^audit.attacks: unknown attack 'not_here'"):
        attacks.resolve(["not_here"], "binary")
    with pytest.raises(ConfigError, match="unknown protection"):
        protections.build("../evil:X", None, "privacy")


def test_a_path_names_a_fit_and_a_protection(found, tmp_path: Path) -> None:
    example = block(ROOT / "examples" / "in_the_package.md", "decorrelated.py")
    (tmp_path / "hostile_plugin.py").write_text(
        example + CODE.replace("from cutlayer.accounting", "from cutlayer.accounting")
    )
    found(tmp_path)
    with pytest.raises(ConfigError, match="expected consent"):
        check_fit({"kind": "hostile_plugin:DECORRELATED"}, {"kind": "mlp"}, 0, "fit")
    with allowed("hostile_plugin"):
        check_fit({"kind": "hostile_plugin:DECORRELATED", "epochs": 2}, {"kind": "mlp"}, 0, "fit")
        with pytest.raises(ConfigError, match=r"fit\.epochs"):
            check_fit({"kind": "hostile_plugin:DECORRELATED", "epochs": 0}, {"kind": "mlp"}, 0, "fit")
        built = protections.build("hostile_plugin:Liar", None, "privacy")
    assert built.name == "hostile_plugin:Liar"
    assert isinstance(built.event(ReleasePlan(training=1)), Event | RandomizedResponse)


@pytest.mark.parametrize(
    ("name", "good"), [("noisy_sign", True), ("my.module:Kind", True), ("max_norm", False), ("<b>", False)]
)
def test_a_partner_states_evidence_of_a_plugin_that_is_not_here(name: str, good: bool) -> None:
    item = {"protection": name, "party": "telco", "unit": "embeddings", "covered": 1, "sent": 1, "changed": 1}
    text = json.dumps([{**item, "metrics": {}, "kinds": {}}])
    if good:
        assert parse_evidence(text, "telco")[0].protection == name
    else:
        with pytest.raises(ProtocolError, match="a protection that passive parties have"):
            parse_evidence(text, "telco")


def test_a_name_of_the_published_methods_is_pointed_to_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((ROOT / "plugins" / "published" / "pyproject.toml").read_text())["project"]
    assert {group: {*points} for group, points in project["entry-points"].items()} == plugins.PUBLISHED
    monkeypatch.setattr(plugins, "_installed", lambda _: {})
    with pytest.raises(ConfigError, match=r"privacy\.ppdl: the package cutlayer-published, which has ppdl, got none"):
        protections.build("ppdl", {"theta": 0.1}, "privacy")
    with pytest.raises(ConfigError, match=r"audit\.attacks: the package cutlayer-published.*\./plugins/published"):
        attacks.resolve(["sdar"], "binary", "passive")
    with pytest.raises(ConfigError, match=r"^privacy\.sdar: unknown protection"):
        protections.build("sdar", {}, "privacy")
