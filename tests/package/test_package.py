"""What users install: the wheel and the sdist hold the package alone, and work without the repository."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from contextlib import chdir
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from hatchling.build import build_sdist, build_wheel, prepare_metadata_for_build_wheel
from hatchling.builders import sdist as sdist_builder

import cutlayer

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "cutlayer"
FROM_WHEEL = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import cutlayer
from cutlayer.cli import main
print(cutlayer.__file__, cutlayer.__version__, file=sys.stderr)
main()
"""


def build(folder: Path, to: Path, *targets: str) -> None:
    """As a front end of PEP 517 does, in this process: an interpreter starts as long as most builds take."""
    to.mkdir(exist_ok=True)
    with chdir(folder):
        for target in targets:
            {"wheel": build_wheel, "sdist": build_sdist}[target](str(to))


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with wheel and sdist."""
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("no checkout to build from")
    folder = tmp_path_factory.mktemp("dist")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            sdist_builder, "gzip", SimpleNamespace(GzipFile=partial(gzip.GzipFile, compresslevel=1))
        )  # sooner
        build(ROOT, folder, "wheel", "sdist")
    return folder


def files(dist: Path) -> dict[str, int]:
    """Files of the wheel in a folder, with their sizes."""
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.file_size for each in archive.infolist()}


def version(dist: Path) -> str:
    (wheel,) = dist.glob("*.whl")
    return wheel.name.split("-")[1]


def test_the_wheel_holds_the_package_and_no_data_but_the_demo(dist: Path) -> None:
    found = files(dist)
    inside = {name for name in found if not re.match(r"cutlayer-[^/]+\.dist-info/", name)}
    modules = {f"cutlayer/{path.relative_to(SOURCE).as_posix()}" for path in SOURCE.rglob("*.py")}
    assert modules <= inside
    assert all(name.startswith("cutlayer/") for name in inside)
    data = ("py.typed", "demo/job.yaml", "report/templates/report.html.j2", "report/card/fields.yaml")
    assert {f"cutlayer/{name}" for name in data} <= inside
    assert [name for name, size in found.items() if size > 100_000] == ["cutlayer/demo/adult.parquet"]
    assert sum(path.stat().st_size for path in dist.glob("*.whl")) < 2_160_000
    licences = [name for name in found if "/licenses/" in name]
    assert {Path(name).name for name in licences} == {"LICENSE", "NOTICE"}


def test_an_unpacked_sdist_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    assert not (folder / "tests").exists()
    build(folder, tmp_path / "again", "wheel")
    own = re.compile(r"RECORD$")
    again = files(tmp_path / "again")
    assert {name: size for name, size in again.items() if not own.search(name)} == {
        name: size for name, size in files(dist).items() if not own.search(name)
    }
    assert version(tmp_path / "again") == version(dist)
    (folder / "PKG-INFO").unlink()  # as in an archive of a commit, which has neither tags nor metadata
    with chdir(folder):
        archive = prepare_metadata_for_build_wheel(str(tmp_path))
    assert archive.startswith("cutlayer-0.1.")


@pytest.mark.parametrize("plugin", [path.parent.name for path in (ROOT / "plugins").glob("*/pyproject.toml")])
def test_the_wheel_of_a_plugin_holds_its_package_in_the_version_of_the_core(
    plugin: str, dist: Path, tmp_path: Path
) -> None:
    source = ROOT / "plugins" / plugin / "src"
    build(source.parent, tmp_path, "wheel")
    inside, others = set(), {}
    for name, size in files(tmp_path).items():
        if ".dist-info/" in name:
            others[Path(name).name] = size
        else:
            inside.add(name)
    assert others["LICENSE"] == (ROOT / "LICENSE").stat().st_size
    assert (source.parent / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert inside == {path.relative_to(source).as_posix() for path in source.rglob("*.*") if path.suffix != ".pyc"}
    assert version(tmp_path) == version(dist)


def test_the_wheel_works_without_the_repository(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    site, work = tmp_path / "site", tmp_path / "work"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    work.mkdir()
    command = [sys.executable, "-c", FROM_WHEEL, str(site), "demo", "--copy", "mine", "--json"]
    ran = subprocess.run(command, cwd=work, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == {"job": "mine/job.yaml"}
    assert ran.stderr.split() == [str(site / "cutlayer" / "__init__.py"), version(dist)]
    assert (work / "mine" / "adult.parquet").exists()
    assert cutlayer.__file__ != ran.stderr.split()[0]
