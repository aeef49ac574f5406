"""The mutation runner on a toy: a module of one function, a mutant that its test kills and one that it does not see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutation.settings import equivalents
from tools.mutation.significance import significant

ROOT = Path(__file__).parents[2]
MODULE = '''"""A toy."""


def scaled(x: float) -> float:
    """Ten times x, and x where it is tiny."""
    if x > 1e-300:
        return x * 10
    return x
'''
TEST = """from toy.scale import scaled


def test_scaled():
    assert scaled(3) == 30
    assert scaled(-3) == -3
"""
SETTINGS = """
targets = ["src/toy/scale.py"]
tests = ["tests/test_*.py"]
definitions = []
copied = ["src", "tests", "pyproject.toml"]
preloaded = []
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    files = {
        "src/toy/__init__.py": "",
        "src/toy/scale.py": MODULE,
        "tests/test_toy.py": TEST,
        "pyproject.toml": "[tool.pytest.ini_options]\n",
        "mutation.toml": SETTINGS,
        "equivalent.toml": "",
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def mutation(root: Path, *options: str) -> str:
    command = [sys.executable, "-m", "tools.mutation", "--root", str(root), "--settings", str(root / "mutation.toml")]
    run = subprocess.run([*command, *options], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_a_toy_is_measured_mutated_and_summed_up(toy: Path) -> None:
    pytest.importorskip("cosmic_ray", reason="needs the extra `mutation`")
    pytest.importorskip("coverage", reason="needs the extra `mutation`")
    assert "tests/test_toy.py" in mutation(toy, "--measure")
    tested = mutation(toy)
    assert "killed" in tested
    assert "src/toy/scale.py:7 core/ReplaceBinaryOperator_Mul_Div" in tested
    survivors = mutation(toy, "--list-survivors")
    assert "-     if x > 1e-300:".replace("    ", "", 1) in survivors
    assert "+ if x >= 1e-300:" in survivors
    assert "x / 10" not in survivors
    assert "0 to test" in mutation(toy), "a finished session tests nothing again"
    assert (toy / "src/toy/scale.py").read_text() == MODULE
    before, after = "if x > 1e-300:", "if x >= 1e-300:"
    entry = (
        f'[[equivalent]]\nmodule = "src/toy/scale.py"\nbefore = "{before}"\nafter = "{after}"\nreason = "no such x"\n'
    )
    (toy / "equivalent.toml").write_text(entry)
    assert after not in mutation(toy, "--list-survivors")


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        ("x = 1", "x = 2", True),
        ("def f(x: int | None): return x", "def f(x: int & None): return x", False),
        ("raise ValueError(f'{1 + 1}')", "raise ValueError(f'{1 - 1}')", False),
        ("raise ValueError", "raise TypeError", True),
        ("def metrics(self): return 1", "def metrics(self): return 2", False),
        ("@dataclass(frozen=True)\nclass A: pass", "@dataclass(frozen=False)\nclass A: pass", False),
        ("log.info(1)\nx = f(1)", "log.info(2)\nx = f(1)", False),
        ("x = f(1)", "x = f(2)", True),
        ("x = 1", "x = = 1", False),
    ],
)
def test_changes_that_no_test_should_see_are_left_out(before: str, after: str, seen: bool) -> None:
    assert significant(before, after) is seen


@pytest.mark.parametrize(
    ("operator", "source", "mutants"),
    [
        ("own/OmitCall", "y = clip(rows, 2)\n", ["y = (rows)\n"]),
        ("own/OmitCall", "y = rows.mul(2)\n", ["y = (rows)\n"]),
        ("own/OmitCall", "y = make(size=2)\n", []),
        ("own/OmitCall", "y = float(x)\n", []),
        ("own/DeleteStatement", "def f(x):\n    x.add_(1)\n", ["def f(x):\n    pass\n"]),
        ("own/DeleteStatement", "x[0] = 1\nx += 1\ny = 2\n", ["pass\nx += 1\ny = 2\n", "x[0] = 1\npass\ny = 2\n"]),
        ("own/ShareLabel", "f(b'a')\ng(b'b')\n", ["f(b'b')\ng(b'b')\n", "f(b'a')\ng(b'a')\n"]),
    ],
)
def test_the_operators_of_our_own(operator: str, source: str, mutants: list[str]) -> None:
    pytest.importorskip("cosmic_ray", reason="needs the extra `mutation`")
    from tools.mutation.mutants import mutated, work_items

    specs = [item.mutations[0] for item in work_items("toy.py", source)]
    assert [mutated(source, spec) for spec in specs if spec.operator_name == operator] == mutants


def test_an_equivalent_mutant_changes_a_line_of_its_module() -> None:
    for module, before, _ in equivalents(ROOT / "tools" / "mutation" / "equivalent.toml"):
        lines = (ROOT / module).read_text(encoding="utf-8").splitlines()
        assert before in map(str.strip, lines), f"{module} has no line {before!r}: remove it from equivalent.toml"
