"""The Compose files of two organisations: valid YAML, commands that parse, files that pass `check`."""

from __future__ import annotations

import shlex
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML

from cutlayer.cli import app
from cutlayer.config.load import load_job, load_private_part, with_private_part
from cutlayer.jobs.check import check_job
from tests.docs.reading import ROOT, block, blocks
from tests.docs.test_style import parse

FOLDER = ROOT / "examples" / "compose"
PAGE = ROOT / "docs" / "how-to" / "between-organisations.md"
README = FOLDER / "README.md"
REHEARSAL = FOLDER / "rehearsal.compose.yaml"
PARTIES = ("bank", "telco")
IN_A_CONTAINER = "$ docker compose run --rm --no-deps "


def read(text: str) -> dict[str, Any]:
    whole: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return whole


@pytest.mark.parametrize("name", PARTIES)
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
        for service in read(file.read_text())["services"].values():
            assert service["build"]["dockerfile"] == str((FOLDER / "Dockerfile").relative_to(ROOT))
    assert (FOLDER / read(REHEARSAL.read_text())["x-party"]["build"]["context"]).resolve() == ROOT
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    assert "WORKDIR /party" in lines
    assert lines[lines.index("WORKDIR /party") - 1] == "USER party"
    assert Path(FOLDER / "README.md").exists()
    assert 'ENTRYPOINT ["cutlayer"]' in lines
    installs = [line for line in lines if "pip install" in line]
    assert all("--constraint constraints.txt" in line for line in installs)
    assert "torch" in installs[0]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"][
        "include"
    ]
    assert not {path.strip("/") for path in needed} & {*ignored}


def test_the_rehearsal_has_two_parties_that_share_a_network_and_no_folder() -> None:
    services = read(REHEARSAL.read_text())["services"]
    job = load_job(FOLDER / "bank" / "job.yaml")
    assert services.keys() == job.parties.keys() == {*PARTIES}
    for name, service in services.items():
        parse(service["command"])
        assert service["command"] == ["party", "job.yaml", "--as", name, "--local", f"{name}.yaml"]
        assert service["volumes"] == [f"./{name}:/party"]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "ports" not in service
    address = job.parties[job.active].address
    assert address is not None
    host, _, port = address.rpartition(":")
    assert services[job.active]["networks"]["link"]["aliases"] == [host]
    private = load_private_part(FOLDER / job.active / f"{job.active}.yaml")
    assert private.listen == f"0.0.0.0:{port}"


def test_the_files_of_the_rehearsal_fit_together() -> None:
    texts = [(FOLDER / name / "job.yaml").read_text() for name in PARTIES]
    assert texts[0] == texts[1]
    job = load_job(FOLDER / "bank" / "job.yaml")
    for name in PARTIES:
        whole = with_private_part(job, name, load_private_part(FOLDER / name / f"{name}.yaml"))
        check_job(whole)
        assert whole.digest() == job.digest()


def test_the_commands_of_the_rehearsal_work_without_containers(
    tmp_path: Path, tables: Path, cutlayer: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and checks in the order of the page, each command in the folder that its container would see."""
    base = tmp_path / "compose"
    for name in PARTIES:
        shutil.copytree(FOLDER / name, base / name)
        shutil.copy(tables / f"{name}.csv", base / name / f"{name}.csv")
    typed = [line for item in blocks(README, "console") for line in item.text.splitlines()]
    typed = [line for line in typed if line.startswith((IN_A_CONTAINER, "$ cp "))]
    assert len([line for line in typed if line.startswith(IN_A_CONTAINER)]) == 6
    for line in typed:
        if line.startswith("$ cp "):
            source, target = line.removeprefix("$ cp ").split()
            shutil.copy(base / source, base / target)
        else:
            name, *arguments = shlex.split(line.removeprefix(IN_A_CONTAINER))
            monkeypatch.chdir(base / name)
            assert cutlayer(*arguments)[0] == 0, line
    assert (base / "telco" / "keys" / "telco.pem").read_bytes().startswith(b"-----BEGIN CERTIFICATE-----")
    assert not (base / "bank" / "keys" / "telco.key").exists()


def test_the_page_says_that_no_container_was_started() -> None:
    assert "**Checked by lint only.**" in README.read_text()
    assert "checked by lint only" in " ".join(PAGE.read_text().split())
