"""The command line answers `--help` at once: what a verb computes with is imported when it runs."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.cli.test_options import VERBS

HEAVY = "cryptography dp_accounting grpc jinja2 numpy optuna pandas pyarrow ruamel scipy sklearn torch"
START = f"""
import contextlib, io, sys

def check(after):
    loaded = set({HEAVY.split()}) & set(sys.modules)
    assert not loaded, f"{{after}} imports {{sorted(loaded)}}; import them inside the function that runs the verb"

import cutlayer
check("import cutlayer")
from cutlayer.cli import app
for line in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        app([*line.split(), "--help"], standalone_mode=False)
    assert "Usage" in out.getvalue(), line
    check(f"cutlayer {{line}} --help")
"""


def test_help_imports_no_heavy_module() -> None:
    subprocess.run([sys.executable, "-c", START, "", *VERBS], check=True)


@pytest.mark.parametrize("package", ["cutlayer", "cutlayer.report", "cutlayer.sweeps"])
def test_names_on_first_use_are_listed_and_are_not_those_of_modules(package: str) -> None:
    module = import_module(package)
    assert {*module.__all__} <= {*dir(module)}
    assert [getattr(module, name) for name in module.__all__]
    assert not [name for name in module.__all__ if find_spec(f"{package}.{name}")]
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'absent'"):
        _ = module.absent
