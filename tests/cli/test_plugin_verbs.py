"""Verbs and parts of packages besides the core: found by their entry points, and named where they are not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import EntryPoints

import pytest

from cutlayer.config import extras
from cutlayer.errors import ConfigError
from tests.cli.jobs import Place
from tests.plugin_packages import write_metadata

frame = import_module("cutlayer.cli.app")
Install = Callable[[str, dict[str, dict[str, str]]], None]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """The verbs are looked up anew, and by later tests too."""
    frame._command.cache_clear()
    yield
    frame._command.cache_clear()


@pytest.fixture
def install(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts the metadata of a package before that of all others."""
    site = tmp_path_factory.mktemp("site")
    monkeypatch.syspath_prepend(site)
    return lambda name, groups: write_metadata(site, name, groups)


@pytest.fixture
def core_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other package is installed."""
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: EntryPoints())
    monkeypatch.setattr(extras, "entry_points", lambda **_: EntryPoints())
    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name.startswith("cutlayer_") else found(name))


def test_a_verb_is_in_the_help_and_never_replaces_one_of_cutlayer(place: Place, install: Install) -> None:
    install("stranger", {"cutlayer.verbs": {"run": "nowhere:run", "broken": "nowhere:run"}})
    shown = place.call("--help")
    assert shown.code == 0
    for verb in extras.VERBS:
        assert f"│ {verb} " in shown.out
    assert "broken" not in shown.out
    assert place.call("run", "--help").code == 0
    result = place.call("broken")
    assert result.code == 2
    assert "expected an importable nowhere:run for the verb broken" in result.error


def test_another_package_gives_no_verb_and_no_part_of_the_packages_of_cutlayer(place: Place, install: Install) -> None:
    install(
        "stranger",
        {
            "cutlayer.verbs": {"serve": "cutlayer.cli.doctor:doctor"},
            "cutlayer.parts": {"audit": "builtins:print", "logged": "builtins:print"},
        },
    )
    assert "Run folders" in place.call("serve", "--help").out
    assert extras.load_extra_part("serve", "audit", "it").__module__ == "cutlayer_serve.audit"
    assert extras.load_extra_part("mlflow", "logged", "it").__module__ == "cutlayer_loggers.logged_run"


@pytest.mark.usefixtures("core_alone")
@pytest.mark.parametrize("verb", extras.VERBS)
def test_without_its_package_a_verb_is_refused_with_what_to_install(place: Place, verb: str) -> None:
    extra = extras.VERBS[verb]
    shown = place.call(verb, "--help")
    assert shown.code == 2
    remedy = f"pip install 'cutlayer[{extra}]', or in a checkout pip install './plugins/{extra}"
    assert f"expected the extra `{extra}` for the verb {verb}, got no cutlayer_{extra}; {remedy}" in shown.error
    assert f"│ {verb} " not in place.call("--help").out


@pytest.mark.usefixtures("core_alone")
def test_without_its_package_a_part_is_refused_with_what_to_install(place: Place) -> None:
    assert place.call("run", "job.yaml", "--quiet").code == 0
    refused = place.call("audit", place.run_folder, "--served")
    assert refused.code == 2
    assert (
        "expected the extra `serve` for --served, got no cutlayer_serve; pip install 'cutlayer[serve]'" in refused.error
    )
    with pytest.raises(ConfigError, match="expected the extra `mlflow` for --registry, got no cutlayer_loggers"):
        extras.load_extra_part("mlflow", "register", "--registry")
    place.change({"parties.bank.log": {"tensorboard": "curves"}})
    place.refused("expected the extra `tensorboard` for parties.bank.log.tensorboard, got no cutlayer_loggers")


def test_a_package_of_another_version_is_named(place: Place, install: Install) -> None:
    verbs, parts = {"serve": "cutlayer_serve.gone:serve"}, {"audit": "cutlayer_serve:gone"}
    install("cutlayer-serve", {"cutlayer.verbs": verbs, "cutlayer.parts": parts})
    refused = place.call("serve")
    assert refused.code == 2
    assert refused.error.endswith("'cutlayer_serve.gone'; install its package in the version of cutlayer\n")
    with pytest.raises(ConfigError, match=r"cutlayer_serve:gone for it, got .* in the version of cutlayer"):
        extras.load_extra_part("serve", "audit", "it")
