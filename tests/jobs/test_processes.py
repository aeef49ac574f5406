"""One party per operating-system process over loopback gRPC: the same bits as all parties in one process."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.parties.interruptions import history
from tests.parties.processes import Site, fork, lay_out, wait_for
from tests.parties.runs import ACTIVE, DROPOUT, KEY, PASSIVES, make_job, raw_job, run, tables

OPTIONS: dict[str, Any] = {
    "passives": 2,
    "bottom": DROPOUT,
    "privacy": {"label_dp": {"eps": 2.0}, "max_norm": {}},
    "audit": {"rows": 64, "attacks": ["norm"]},
    "epochs": 4,
}
NAMES = (ACTIVE, *PASSIVES[:2])
LOST = 3
VICTIM = PASSIVES[0]


def weights(folder: Path, party: str) -> dict[str, torch.Tensor]:
    """The last checkpoint of one party, optimiser and random state included."""
    return load_file(sorted((folder / "checkpoint" / party).glob("epoch-*"))[-1])


def assert_same_weights(folder: Path, other: Path, party: str) -> None:
    mine, theirs = weights(folder, party), weights(other, party)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same job with all parties in this process."""
    folder = tmp_path_factory.mktemp("together")
    run(make_job(**OPTIONS), tables(passives=2), folder, key=KEY)
    return folder


@pytest.fixture
def sites(tmp_path: Path) -> dict[str, Site]:
    return lay_out(tmp_path, raw_job(**OPTIONS), tables(passives=2))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Site]:
    """A run of three processes, one of which was refused by itself and came again.

    With all attacks that the label owner can try on its own record.
    """
    raw = raw_job(**OPTIONS | {"audit": {"rows": 64}})
    sites = lay_out(tmp_path_factory.mktemp("sites"), raw, tables(passives=2))
    processes = {name: fork(site) for name, site in sites.items() if name != VICTIM}
    said = sites[ACTIVE].folder / "errors.txt"
    wait_for(lambda: "waiting for" in said.read_text() if said.exists() else False, "the label owner listens")
    assert fork(sites[VICTIM], "--resume").wait() == 2
    processes[VICTIM] = fork(sites[VICTIM])
    assert {name: process.wait() for name, process in processes.items()} == dict.fromkeys(NAMES, 0)
    return sites


def test_three_processes_equal_one_to_the_last_bit(ended: dict[str, Site], together: Path) -> None:
    assert [line["loss"] for line in history(ended[ACTIVE].run)] == [line["loss"] for line in history(together)]
    assert len(history(together)) == 4
    for name, site in ended.items():
        assert_same_weights(site.run, together, name)
        assert {path.name for path in (site.run / "data").iterdir()} == {name}
        assert {path.name for path in (site.run / "checkpoint").iterdir()} == {name}


def test_the_label_owner_audits_its_own_record_alone(ended: dict[str, Site]) -> None:
    report = json.loads((ended[ACTIVE].folder / "output.json").read_text())
    assert {leak["attack"] for leak in report["leaks"]} > {"norm", "spectral", "mixture", "few_labels", "co_training"}
    assert {fact["name"]: fact["covered"] for fact in report["protections"]} == {
        "label_dp": report["data"]["train"],
        "max_norm": 2 * 4 * 4,
    }


def test_a_party_that_is_refused_by_itself_is_not_waited_for_in_silence(ended: dict[str, Site]) -> None:
    """Nothing of why crosses; the label owner goes on as soon as it comes again."""
    said = (ended[ACTIVE].folder / "errors.txt").read_text()
    assert f"{VICTIM} at 127.0.0.1 cannot join: it ended before it connected" in said
    assert "--resume" not in said


def test_a_party_that_is_stopped_says_farewell(sites: dict[str, Site]) -> None:
    """Its peers name it, say that it was interrupted, and can resume."""
    processes = {name: fork(site) for name, site in sites.items()}
    wait_for(lambda: len(history(sites[ACTIVE].run)) >= 1, "the first epoch")
    processes[VICTIM].signal(signal.SIGTERM)
    assert {name: process.wait() for name, process in processes.items()} == {
        ACTIVE: LOST,
        VICTIM: 143,
        PASSIVES[1]: LOST,
    }
    result = {name: json.loads((site.folder / "output.json").read_text())["error"] for name, site in sites.items()}
    assert f"lost {VICTIM}: it was interrupted; resume when it is back" in result[ACTIVE]
    assert "the same command with --resume continues" in result[VICTIM]


def test_a_killed_party_is_named_and_all_can_resume(sites: dict[str, Site], together: Path) -> None:
    processes = {name: fork(site) for name, site in sites.items()}
    wait_for(lambda: len(history(sites[ACTIVE].run)) >= 1, "the first epoch")
    processes[VICTIM].kill()
    assert processes[ACTIVE].wait() == LOST
    result = json.loads((sites[ACTIVE].folder / "output.json").read_text())
    assert result["exit_code"] == LOST
    assert VICTIM in result["error"]
    assert processes[PASSIVES[1]].wait() == LOST
    assert 0 < len(history(sites[ACTIVE].run)) < 4
    again = {name: fork(site, "--resume") for name, site in sites.items()}
    assert {name: process.wait() for name, process in again.items()} == dict.fromkeys(NAMES, 0)
    assert [line["loss"] for line in history(sites[ACTIVE].run)] == [line["loss"] for line in history(together)]
    for name, site in sites.items():
        assert_same_weights(site.run, together, name)
