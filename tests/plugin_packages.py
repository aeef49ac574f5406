"""The packages in `plugins`: tests find their verbs and parts, also where only the core is installed."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

PLUGINS = Path(__file__).parents[1] / "plugins"


def see_plugins() -> None:
    """Put the metadata of packages that are not installed as they are here on the path, as their installation would."""
    projects = [tomllib.loads(file.read_text(encoding="utf-8"))["project"] for file in PLUGINS.glob("*/pyproject.toml")]
    if missing := [
        project for project in projects if not is_installed(project["name"], project.get("entry-points", {}))
    ]:
        site = Path(tempfile.mkdtemp(prefix="plugins"))
        atexit.register(shutil.rmtree, site, ignore_errors=True)
        for project in missing:
            write_metadata(site, project["name"], project.get("entry-points", {}))
        sys.path.insert(0, str(site))  # before what an earlier installation has of them
        sources = [str(PLUGINS / project["name"].removeprefix("cutlayer-") / "src") for project in missing]
        paths = [os.environ.get("PYTHONPATH", ""), str(site), *sources]  # for the processes that tests start
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def is_installed(name: str, groups: dict[str, dict[str, str]]) -> bool:
    """Whether a package has metadata here, with these entry points."""
    try:
        found = distribution(name).entry_points
    except PackageNotFoundError:
        return False
    stated = {(group, *point) for group, points in groups.items() for point in points.items()}
    return stated == {(point.group, point.name, point.value) for point in found}


def write_metadata(site: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    """Metadata of a package with entry points, by group and name."""
    info = site / f"{name.replace('-', '_')}-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    lines = [line for group, points in groups.items() for line in (f"[{group}]", *map(" = ".join, points.items()))]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
