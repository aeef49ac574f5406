"""The page on the architecture: its ways lead through files that exist, in one direction, along imports."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tools.architecture_figure import FIGURE, ROOT, Way, figure, layer_of, ways

SOURCE = ROOT / "src"
each_way = pytest.mark.parametrize("way", ways(), ids=lambda way: way.name)


@cache
def imported_by(path: Path) -> set[str]:
    """Names of modules, and of what is taken from them, that a file imports."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    return {
        name for node in nodes for alias in node.names for name in (node.module or "", f"{node.module}.{alias.name}")
    }


def imports(importer: str, imported: str) -> bool:
    """Whether a file imports another one, or a package that has imported it for its users."""
    module = "cutlayer." + imported.removesuffix(".py").replace("/", ".")
    names = imported_by(SOURCE / "cutlayer" / importer)
    packages = [".".join(module.split(".")[:end]) for end in range(2, module.count(".") + 1)]
    through = [name for name in packages if module in imported_by(SOURCE / name.replace(".", "/") / "__init__.py")]
    return not names.isdisjoint({module, *through})


def turns(way: Way) -> list[str]:
    """Files at which a way goes back to a layer that it has left."""
    indices = [layer_of(path) if way.down else -layer_of(path) for path in way.files]
    return [path for path, before, here in zip(way.files[1:], indices, indices[1:], strict=False) if here < before]


def test_there_are_three_ways() -> None:
    assert [(way.name, way.down) for way in ways()] == [
        ("a batch", True),
        ("a leak figure", False),
        ("a config key", False),
    ]
    assert all(len(way.files) >= 8 for way in ways())


@each_way
def test_each_file_exists_once_in_its_way(way: Way) -> None:
    assert [path for path in way.files if not (SOURCE / "cutlayer" / path).is_file()] == []
    assert len({*way.files}) == len(way.files)


@each_way
def test_a_way_never_turns_back(way: Way) -> None:
    assert turns(way) == []
    assert turns(way._replace(files=way.files[::-1])) != []


@each_way
def test_files_of_a_way_are_linked_by_imports(way: Way) -> None:
    """Down: each but the first is imported by an earlier one. Up: each but the last is imported by a later one."""
    files = way.files if way.down else way.files[::-1]
    alone = [
        path
        for index, path in enumerate(files)
        if index and not any(imports(earlier, path) for earlier in files[:index])
    ]
    assert alone == []


def test_the_figure_is_that_of_the_page() -> None:
    """`python -m tools.architecture_figure` draws it again."""
    assert FIGURE.read_text(encoding="utf-8") == figure()
