"""The Compose files of two organisations: valid YAML that calls the command as it is; no container is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML

from cutlayer.cli import app
from tests.docs.reading import ROOT, block

FOLDER = ROOT / "examples" / "compose"
PAGE = ROOT / "docs" / "how-to" / "between-organisations.md"


def read(text: str) -> dict[str, Any]:
    whole: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return whole


@pytest.mark.parametrize("name", ["bank", "telco"])
def test_a_compose_file_runs_the_party_of_the_guide(name: str) -> None:
    service = read((FOLDER / f"{name}.compose.yaml").read_text())["services"]["party"]
    job = read(block(PAGE, "organisations.yaml"))
    program, verb, file, *options = service["entrypoint"]
    assert (program, verb, file) == ("cutlayer", "party", "job.yaml")
    assert dict(zip(options[::2], options[1::2], strict=True)) == {"--as": name, "--local": f"{name}.yaml"}
    command = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    known = {option for param in command.params for option in param.opts}
    assert {*options[::2], "--preflight", "--resume"} <= known
    listens = job["parties"][name]["role"] == "active"
    assert ("ports" in service) == listens
    if listens:
        port = job["parties"][name]["address"].rpartition(":")[2]
        assert service["ports"] == [f"{port}:{port}"]
    # What must outlive the container is in the mounted folder: the rest cannot be written.
    assert service["volumes"] == [".:/party"]
    assert service["read_only"] is True


def test_the_image_is_that_of_the_compose_files() -> None:
    for file in FOLDER.glob("*.compose.yaml"):
        built = read(file.read_text())["services"]["party"]["build"]
        assert built["dockerfile"] == str((FOLDER / "Dockerfile").relative_to(ROOT))
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    assert "WORKDIR /party" in lines
    assert lines[lines.index("WORKDIR /party") - 1] == "USER party"
    assert Path(FOLDER / "README.md").exists()
