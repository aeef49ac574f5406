"""User modules: nothing is imported without consent, and nothing is called that is no model."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from torch import nn

from cutlayer.consent import allowed, host_of, is_allowed
from cutlayer.errors import ConfigError
from cutlayer.models import Inputs, build_bottom, build_top, modules_of
from cutlayer.plugins import import_class

INPUTS = Inputs((), 2)
MODELS = """
import os
from pathlib import Path
from subprocess import Popen
from torch import nn
from torch.nn import Linear

IMPORTED = True

class Tower(nn.Module):
    width = 3

    def __init__(self, inputs):
        super().__init__()

def tower(inputs):
    raise AssertionError("a function was called")

class Plain:
    def __init__(self, inputs):
        raise AssertionError("a class that is no module was called")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of models with a module of the same beginning beside it."""
    for name in ("consent_models/__init__.py", "consent_models/deep.py", "consent_models_2.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(MODELS)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("consent_models", "consent_models.deep", "consent_models_2"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "consent_models"


@pytest.mark.parametrize("modules", [(), ("consent",), ("consent_models.deep",), ("consent_models_2",)])
def test_without_consent_nothing_is_imported(package: str, modules: tuple[str, ...]) -> None:
    section = {"kind": "python", "path": f"{package}:Tower"}
    with allowed(*modules):
        with pytest.raises(ConfigError, match=r"expected consent before it imports consent_models:Tower, got none"):
            build_bottom(section, INPUTS)
        with pytest.raises(ConfigError, match="--allow-model consent_models "):
            build_top(section, {"bank": 1}, 1)
    assert package not in sys.modules


def test_consent_is_for_a_module_and_all_below_it(package: str) -> None:
    with allowed(package):
        assert import_class(f"{package}:Tower").__name__ == "Tower"
        assert import_class(f"{package}.deep:Tower").__module__ == f"{package}.deep"
        assert not is_allowed(f"{package}_2")
    assert not is_allowed(package)


def test_consent_ends_with_its_block_and_adds_to_that_around_it(package: str) -> None:
    with allowed("torch"):
        with allowed(package):
            assert is_allowed("torch.nn")
        assert is_allowed("torch.nn")
        assert not is_allowed(package)


def test_hosts_are_one_in_any_case_of_letters() -> None:
    assert host_of("https://reader@MLflow.Example:5000/path") == "mlflow.example:5000"
    assert host_of("Store.Example:9000") == "store.example:9000"


def test_another_thread_has_no_consent(package: str) -> None:
    seen = []
    with allowed(package):
        thread = threading.Thread(target=lambda: seen.append(is_allowed(package)))
        thread.start()
        thread.join()
    assert seen == [False]


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("Popen", "the class Popen"),
        ("Path", "the class Path"),
        ("Plain", "the class Plain"),
        ("tower", "function"),
        ("os", "module"),
        ("IMPORTED", "bool"),
    ],
)
def test_what_is_no_module_of_torch_is_never_called(package: str, name: str, got: str) -> None:
    wanted = f"expected {package}:{name} to be a subclass of nn.Module, got {got}"
    with allowed(package, "subprocess", "pathlib"), pytest.raises(ConfigError, match=wanted):
        build_bottom({"kind": "python", "path": f"{package}:{name}"}, INPUTS)


def test_a_class_that_an_allowed_module_merely_imports_is_refused(package: str) -> None:
    result = f"expected {package}:Linear to be defined in {package}, got a class of torch.nn.modules.linear"
    with allowed(package), pytest.raises(ConfigError, match=result):
        import_class(f"{package}:Linear")
    with allowed("torch.nn"):
        assert import_class("torch.nn:Linear") is nn.Linear


def test_consent_to_a_module_of_the_system_runs_no_program(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    section = {"kind": "python", "path": "subprocess:Popen", "args": {"args": ["touch", str(mark)]}}
    with allowed("subprocess"), pytest.raises(ConfigError, match=r"subclass of nn\.Module, got the class Popen"):
        build_bottom(section, INPUTS)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["", "a:B", "a..b", ".a", "a.", "a b", "a/b", "1a", "a\n"])
def test_consent_is_by_dotted_names(name: str) -> None:
    with pytest.raises(ConfigError, match="expected the name of a module"), allowed(name):
        pass


def test_modules_of_a_model_section() -> None:
    user = {"kind": "python", "path": "a.b:C"}
    assert modules_of({"bottom": user, "top": {"kind": "mlp"}}) == ("a.b",)
    assert modules_of({"bottom": {"bank": user, "telco": {"kind": "mlp"}}, "top": {**user, "path": "d:E"}}) == (
        "d",
        "a.b",
    )
    assert modules_of({"bottom": None, "top": {"kind": "python", "path": 5}}) == ()
    assert modules_of({}) == ()
