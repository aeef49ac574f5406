"""`cutlayer serve` and `cutlayer api-key` as a user calls them."""

from __future__ import annotations

import json
import signal
import socket
import sys
from hashlib import sha256
from importlib import import_module
from pathlib import Path

import httpx
import pytest
from ruamel.yaml import YAML

from cutlayer.cli.app import _run
from cutlayer.config import CallerConfig, extras, validated
from tests.parties.processes import forked, run_in, wait_for
from tests.serving.world import own_table, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("served"))


@pytest.fixture
def local(tmp_path: Path, run: Path) -> Path:
    path = tmp_path / "party.yaml"
    path.write_text(
        f'table: "{own_table(run, "bank")}"\nserve: {{address: "127.0.0.1:0", http: {{address: "127.0.0.1:0"}}}}\n'
    )
    return path


def test_what_serves_imports_nothing_of_http_before_it_knows_that_it_serves_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("cutlayer_serve")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("fastapi", "uvicorn", "prometheus_client"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    assert import_module("cutlayer_serve.process").ActiveService


def test_the_command_serves_until_it_is_told_to_stop(run: Path, local: Path) -> None:
    command = ["serve", str(run), "--as", "bank", "--local", str(local), "--plaintext", "--json"]
    process, output = forked(run_in, local.parent, command), local.parent / "output.json"
    try:
        wait_for(lambda: output.exists() and output.read_text().endswith("\n"), "a start")
        started = json.loads(output.read_text())
        assert started["party"] == "bank"
        answer = httpx.post(f"{started['url']}/v1/predict", json={"ids": [1]})
        assert answer.json()["degraded"]
        page = httpx.get(started["url"])
        assert "default-src 'none'" in page.headers["content-security-policy"]
        process.signal(signal.SIGTERM)
        assert process.wait() in (0, 143)
        assert "Traceback" not in (local.parent / "errors.txt").read_text()
    finally:
        process.kill()


def test_an_http_port_in_use_is_bad_input(run: Path, local: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        local.write_text(
            f'table: "{own_table(run, "bank")}"\nserve: {{address: "127.0.0.1:0", http: {{address: "{address}"}}}}\n'
        )
        served = ["serve", str(run), "--as", "bank", "--local", str(local), "--plaintext"]
        code = forked(run_in, local.parent, served).wait()
    errors = (local.parent / "errors.txt").read_text()
    assert code == 2, errors
    assert f"cannot listen at serve.http.address {address}" in " ".join(errors.split())
    assert "Traceback" not in errors


CASES: dict[str, tuple[list[str], str]] = {
    "no run": (["nowhere", "--as", "bank", "--plaintext"], "run folder"),
    "nobody": (["RUN", "--as", "nobody", "--plaintext"], "party of the run"),
    "no certificates": (["RUN", "--as", "bank"], "certificate of bank"),
    "two runs at a passive party": (["RUN", "RUN", "--as", "telco", "--plaintext"], "one run folder"),
    "no key": (["RUN", "--as", "telco", "--plaintext", "--key", "nothing"], "cannot be read"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_arguments_are_one_sentence(case: str, run: Path, local: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, words = CASES[case]
    code = _run(["serve", *(str(run) if word == "RUN" else word for word in arguments), "--local", str(local)])
    errors = capsys.readouterr().err
    assert code == 2, errors
    assert words in errors
    assert "Traceback" not in errors


def test_unknown_keys_of_the_section_are_errors(run: Path, local: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, words in (
        ("serve: {deadline: 3}", "did you mean 'deadline_ms'"),
        ("serve: {http: {callers: [{name: crm, sha256: secret}]}}", "never the key itself"),
        ("serve: {http: {certificate: a.pem}}", "certificate and key together"),
        ("serve: {absent: guess}", "absent"),
    ):
        local.write_text(text)
        assert _run(["serve", str(run), "--as", "bank", "--local", str(local), "--plaintext"]) == 2
        assert words in capsys.readouterr().err


def test_a_passive_party_needs_nothing_of_http(
    run: Path, local: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an active party, or one with metrics, is asked to install it."""
    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "uvicorn" else found(name))
    monkeypatch.setattr("cutlayer_serve.verb.run_service", lambda service: service.close())
    command = ["serve", str(run), "--local", str(local), "--plaintext", "--as"]
    assert _run([*command, "telco"]) == 0
    assert _run([*command, "bank"]) == 2
    assert "expected the extra `serve`, got no uvicorn; pip install 'cutlayer[serve]'" in capsys.readouterr().err
    local.write_text('serve: {metrics: "127.0.0.1:0"}')
    assert _run([*command, "telco"]) == 2


@pytest.fixture
def drawn(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert _run(["api-key", "crm", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_key_is_drawn_and_its_hash_printed(drawn: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert sha256(drawn["key"].encode()).hexdigest() == drawn["sha256"]
    assert len(drawn["key"]) > 40
    assert _run(["api-key", "crm"]) == 0
    entry = capsys.readouterr().out.partition("under serve.http.callers:\n")[2]
    (caller,) = YAML(typ="safe", pure=True).load(entry)
    assert validated(CallerConfig, caller, "caller").name == "crm"
    assert _run(["api-key", "a name"]) == 2
