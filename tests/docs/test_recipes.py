"""The recipes of schedulers: each can be parsed, and its command lines have verbs and options that there are."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from cutlayer.config.load import load_job
from tests.docs.reading import ROOT
from tests.docs.test_style import parse

FOLDER = ROOT / "examples" / "recipes"
MONTH = re.compile(r'"\$\(date \+%Y-%m\)"|\{\{ ds\[:7\] \}\}|\$\{ROUND:[^}]*\}')
"""The name of a round as each scheduler writes it."""


def read_yaml(name: str) -> Any:
    return YAML(typ="safe", pure=True).load((FOLDER / name).read_text())


def cron() -> list[str]:
    (line,) = [line for line in (FOLDER / "telco.crontab").read_text().splitlines() if line[:1].isdigit()]
    schedule, command = line.split(" ", 5)[:5], line.split(" ", 5)[5]
    assert len(schedule) == 5
    assert "%" not in command.replace("\\%", "")  # cron ends a command at a bare %
    return [command.replace("\\%", "%")]


def unit(name: str) -> configparser.ConfigParser:
    read = configparser.ConfigParser(interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string((FOLDER / name).read_text())
    return read


def systemd() -> list[str]:
    service = unit("cutlayer-telco.service")["Service"]
    assert service["SuccessExitStatus"] == "5"
    shell, option, command = shlex.split(service["ExecStart"])
    assert (shell, option) == ("/bin/sh", "-c")
    return [command.replace("%%", "%").replace("$$", "$").replace("/opt/cutlayer/bin/", "")]


def airflow() -> list[str]:
    tree = ast.parse((FOLDER / "airflow_dag.py").read_text())
    commands = [each.value for each in ast.walk(tree) if isinstance(each, ast.keyword) and each.arg == "bash_command"]
    texts = [[part.value for part in ast.walk(each) if isinstance(part, ast.Constant)] for each in commands]
    return ["".join(map(str, parts)) for parts in texts]


def kubernetes() -> list[str]:
    (container,) = read_yaml("cronjob.yaml")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["/bin/sh", "-c"]
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert {container["workingDir"], "/shared"} <= mounted
    return list(container["args"])


def compose() -> list[str]:
    services: Mapping[str, Any] = read_yaml("compose.yaml")["services"]
    for name, service in services.items():
        assert f"../compose/{name}:/party" in service["volumes"]
        assert (FOLDER / "../compose" / name).is_dir()
        assert "./shared:/shared" in service["volumes"]
        assert service["network_mode"] == "none"
    return ["cutlayer " + shlex.join(service["command"]) for service in services.values()]


def compose_tls() -> list[str]:
    whole = read_yaml("compose-tls.yaml")
    services: Mapping[str, Any] = whole["services"]
    job = load_job(FOLDER / "../compose/bank/job.yaml")
    assert services.keys() == job.parties.keys()
    assert whole["networks"]["link"]["internal"] is True
    for name, service in services.items():
        assert service["volumes"] == [f"../compose/{name}:/party"]  # no folder that both see
        assert "--folder" not in service["command"]
        assert "--plaintext" not in service["command"]
        assert "link" in service["networks"]
    assert job.parties[job.active].address in {
        f"{host}:7070" for host in services["bank"]["networks"]["link"]["aliases"]
    }
    return ["cutlayer " + shlex.join(service["command"]) for service in services.values()]


def commands_of(line: str) -> list[list[str]]:
    """The arguments of each call of the program in a line of a shell."""
    words = shlex.split(MONTH.sub("2026-11", line), comments=False)
    starts = [at for at, word in enumerate(words) if word == "cutlayer"]
    ends = [at for at, word in enumerate(words) if word in (";", "||", "&&", ">")]
    return [words[start + 1 : min([end for end in ends if end > start], default=len(words))] for start in starts]


@pytest.mark.parametrize("lines", [cron, systemd, airflow, kubernetes, compose, compose_tls])
def test_a_recipe_has_commands_that_there_are(lines: Any) -> None:
    found = [command for line in lines() for command in commands_of(line)]
    assert [command for command in found if command[0] == "exchange"]
    for command in found:
        parse(command)
        if command[0] == "exchange":
            assert command[command.index("--round") + 1].startswith("2026-11")


def test_every_file_of_the_recipes_is_tested_and_named() -> None:
    named = set(re.findall(r"`([a-z_.-]+)`", (FOLDER / "README.md").read_text()))
    named |= {f"cutlayer-telco{ending}" for ending in (".service", ".timer")}
    assert {path.name for path in FOLDER.iterdir() if path.is_file()} - {"README.md"} <= named


def test_the_timer_is_that_of_the_service() -> None:
    assert unit("cutlayer-telco.timer")["Timer"]["OnCalendar"]
    assert Path("cutlayer-telco.timer").stem == Path("cutlayer-telco.service").stem


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_accepts_the_units() -> None:
    files = [FOLDER / f"cutlayer-telco.{ending}" for ending in ("service", "timer")]
    done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
