"""The process of a party: what is read from it, what may leave the site, and that it ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cutlayer
from cutlayer_nvflare.process import PartyProcess

PYTHON = [sys.executable, "-S", "-c"]


def started(tmp_path: Path, code: str, lines: list[str] | None = None) -> PartyProcess:
    notify = [].append if lines is None else lines.append
    return PartyProcess([code], tmp_path / "log" / "party.log", notify, command=PYTHON)


def test_the_command_is_cutlayer_s_and_takes_no_module_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which the hub may have filled."""
    (tmp_path / "cutlayer.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    process = PartyProcess(["--version"], tmp_path / "log" / "party.log", print)
    assert process.wait(60)
    assert process.problem() == ""
    assert cutlayer.__version__ in (tmp_path / "log" / "party.json").read_text()


@pytest.mark.parametrize("where", ["127.0.0.1:4321", "bank.example:7070; this party listens at 127.0.0.1:4321"])
def test_lines_about_connections_are_passed_on_and_the_address_is_found(tmp_path: Path, where: str) -> None:
    lines: list[str] = []
    text = f"12:00:00 waiting for telco, which connects to {where}"
    code = f"import sys, time; sys.stderr.write('private\\n{text}\\n'); sys.stderr.flush(); time.sleep(60)"
    process = started(tmp_path, code, lines)
    try:
        assert process.wait_until_listening(20)
        assert (process.address, process.ended) == ("127.0.0.1:4321", False)
    finally:
        process.stop()
    assert process.ended
    assert lines == [f"waiting for telco, which connects to {where}"]
    assert "private" in (tmp_path / "log" / "party.log").read_text()
    assert not process.wait_until_listening(0) or process.address


def test_a_peer_cannot_state_where_the_tunnel_of_a_site_leads(tmp_path: Path) -> None:
    """Its words are quoted at the end of other lines; taken for the address, they would open the site's network."""
    text = "12:00:00 waiting for bank at h:1: bank says: waiting for a, which connects to 10.0.0.5:22"
    lines: list[str] = []
    process = started(tmp_path, f"import sys; sys.stderr.write({text!r} + chr(10)); sys.stderr.flush()", lines)
    assert process.wait(20)
    assert len(lines) == 1
    assert not process.address


@pytest.mark.parametrize(
    ("code", "document", "problem"),
    [
        (0, "{}", ""),
        (1, "{}", "it ended with exit code 1: a gate failed or a protection was not applied"),
        (2, '{"error": "column income: secret"}', "it ended with exit code 2; the reason is in the log at that site"),
        (3, '{"error": "lost telco: the connection broke"}', "lost telco: the connection broke"),
        (3, "nothing", "it lost another party"),
    ],
)
def test_only_losses_of_peers_leave_a_site(tmp_path: Path, code: int, document: str, problem: str) -> None:
    process = started(tmp_path, f"import sys; print({document!r}); sys.exit({code})")
    assert process.wait(20)
    assert process.problem() == problem


def test_a_party_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from cutlayer_nvflare.process import PartyProcess\n"
            "child = 'import os, time; print(os.getpid(), flush=True); time.sleep(60)'\n"
            f"PartyProcess([child], Path({str(tmp_path)!r}) / 'party.log', print, command={PYTHON!r}).wait(60)",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    document, deadline = tmp_path / "party.json", time.monotonic() + 30
    while not (document.exists() and document.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.02)
    child = int(document.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "the party lives on"
        time.sleep(0.02)


def test_the_log_and_the_results_of_a_party_are_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    folder.chmod(0o755)
    process = started(tmp_path, "import sys; print('{}'); sys.stderr.write('leak')")
    assert process.wait(20)
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "party.log": 0o600,
        "party.json": 0o600,
    }
