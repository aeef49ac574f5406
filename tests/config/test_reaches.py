"""What a job names outside of its folder: all of it is found, refused without consent, and shut in a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from cutlayer.config import Job, PrivateFile, TableConfig, validated
from cutlayer.config.load import load_closed_job, load_job, load_private_part
from cutlayer.config.reaches import reaches
from cutlayer.consent import Kind, allowed, check_allowed
from cutlayer.data.sources import open_source
from cutlayer.errors import ConfigError

MLFLOW = "MLFLOW_TRACKING_URI"


def job_in(folder: Path, party: str = "", table: str = "bank.csv") -> Path:
    """A job file of two parties; `party` are more keys of the bank."""
    path = folder / "job.yaml"
    path.write_text(
        f"parties:\n  bank: {{role: active, id: id, label: y, table: {table}{', ' * bool(party)}{party}}}\n"
        "  telco: {role: passive, id: id, table: telco.csv}\n"
    )
    return path


def _paths_and_addresses(section: type[BaseModel]) -> Iterator[str]:
    """Keys that hold a path, or are named as an address of something that is connected to."""
    for name, field in section.model_fields.items():
        kinds = [field.annotation]
        for kind in kinds:
            if get_origin(kind) in (Annotated, Union, UnionType, tuple) or "Mapping" in str(get_origin(kind)):
                kinds.extend(get_args(kind))
        if any(kind is Path for kind in kinds) or name in ("url", "uri", "mlflow", "host"):
            yield name
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _paths_and_addresses(kind)


def test_every_key_that_holds_a_path_or_an_address_is_found(tmp_path: Path) -> None:
    everything = {
        "table": {"path": "q.sql", "url": "postgresql://db.example/bank"},
        "secret": "keys/bank.key",
        "log": {"mlflow": "https://mlflow.example", "tensorboard": "curves"},
        "tls": {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem", "crl": "crl.pem"},
        "serve": {
            "table": "rows.csv",
            "runs": "runs",
            "http": {"certificate": "c.pem", "key": "k.pem", "callers_ca": "a.pem"},
        },
    }
    found = [*reaches(validated(PrivateFile, everything, "", tmp_path))]
    assert {reach.where.rpartition(".")[2] for reach in found} == {*_paths_and_addresses(PrivateFile)}
    assert all(reach.scope.startswith(str(tmp_path)) for reach in found if reach.kind is Kind.PATH)
    assert {reach.scope for reach in found if reach.kind is Kind.HOST} == {"db.example", "mlflow.example"}


def test_what_is_in_the_folder_needs_no_consent(tmp_path: Path) -> None:
    job = load_job(job_in(tmp_path, "secret: sub/../keys/bank.key, log: {mlflow: runs, tensorboard: curves}"))
    assert job.parties["bank"].table == TableConfig(path=tmp_path / "bank.csv")
    log = job.parties["bank"].log
    assert log is not None
    assert log.mlflow == str(tmp_path / "runs")


@pytest.mark.parametrize(
    ("party", "table", "act", "option"),
    [
        ("", "../bank.csv", "parties.bank.table.path:~ reads", "--allow-path"),
        (
            "",
            "/etc/passwd",
            "parties.bank.table.path:~ reads /etc/passwd",
            "--allow-path /etc/passwd",
        ),
        ("", "link/bank.csv", "parties.bank.table.path:~ reads", "--allow-path"),
        ("secret: ../x.key", "b.csv", "parties.bank.secret:~ writes", "--allow-path"),
        (
            "log: {tensorboard: /var/curves}",
            "b.csv",
            "parties.bank.log.tensorboard:~ writes /var/curves",
            "/var/curves",
        ),
        (
            "log: {mlflow: 'sqlite:////var/m.db'}",
            "b.csv",
            "parties.bank.log.mlflow:~ sends",
            "--allow-path /var/m.db",
        ),
        (
            "log: {mlflow: 'file:///var/runs'}",
            "b.csv",
            "parties.bank.log.mlflow:~ sends",
            "--allow-path /var/runs",
        ),
        ("log: {mlflow: 'http://me.example:80/x'}", "b.csv", "curves and report to me.example:80", "me.example:80"),
        ("log: {mlflow: databricks}", "b.csv", "curves and report to databricks", "--allow-host databricks"),
        ("", "{path: q.sql, url: 'postgresql:///bank'}", "sends a query to localhost", "--allow-host localhost"),
        ("", "{path: q.sql, url: 'sqlite:////var/t.db'}", "sends a query to /var/t.db", "--allow-path /var/t.db"),
    ],
)
def test_what_is_elsewhere_needs_consent(tmp_path: Path, party: str, table: str, act: str, option: str) -> None:
    inner = tmp_path / "job"
    inner.mkdir()
    (inner / "link").symlink_to(tmp_path)
    file = job_in(inner, party, table)
    with pytest.raises(ConfigError) as refused:
        load_job(file)
    assert "expected consent before" in str(refused.value)
    assert act.replace("~", " expected consent before it") in str(refused.value)
    assert option in str(refused.value)
    with allowed(hosts=["me.example", "databricks", "localhost"], paths=[tmp_path, "/etc/passwd", "/var"]):
        load_job(file)


@pytest.mark.parametrize("name", ["runs", ".cutlayer", "runs/job", ".cutlayer/ledger.sqlite"])
def test_a_link_in_the_place_of_what_a_run_writes_needs_consent(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "job"
    (inner / name).parent.mkdir(parents=True)
    (inner / name).symlink_to(tmp_path / "elsewhere")
    file = job_in(inner)
    with pytest.raises(ConfigError, match=f"{name}: expected consent before it leads to {tmp_path}/elsewhere"):
        load_job(file)
    with allowed(paths=[tmp_path / "elsewhere"]):
        load_job(file)


def test_all_that_lacks_consent_is_in_one_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_job(job_in(tmp_path, "secret: /k/bank.key, log: {mlflow: 'http://me.example', tensorboard: /t}", "/a.csv"))
    lines = str(refused.value).splitlines()
    assert len(lines) == 4
    assert all(line.startswith(f"{tmp_path}/job.yaml:2: parties.bank.") for line in lines)


@pytest.mark.parametrize("host", ["mlflow.example:5000", "MLFLOW.example", "mlflow.example"])
def test_consent_is_for_a_host_or_one_of_its_ports(tmp_path: Path, host: str) -> None:
    file = job_in(tmp_path, "log: {mlflow: 'http://mlflow.example:5000'}")
    with allowed(hosts=[host]):
        load_job(file)
    for other in ("mlflow.example:5001", "example", "mlflow.example.org", "ml"):
        with allowed(hosts=[other]), pytest.raises(ConfigError, match="sends curves and report"):
            load_job(file)


@pytest.mark.parametrize("wrong", ["http://mlflow.example", "a b", "", "host:port", "*"])
def test_consent_is_by_the_name_of_a_host(wrong: str) -> None:
    with pytest.raises(ConfigError, match="expected a host as HOST or HOST:PORT"), allowed(hosts=[wrong]):
        pass


@pytest.mark.parametrize("secret", ["MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_USERNAME"])
def test_credentials_go_to_the_host_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.delenv(MLFLOW, raising=False)
    monkeypatch.setenv(secret, "of-the-bank")
    file = job_in(tmp_path, "log: {mlflow: 'http://me.example:5000'}")
    with allowed(hosts=["me.example"]):
        for other in ("", "https://mlflow.bank.example", "https://me.example:5001"):
            monkeypatch.setenv(MLFLOW, other)
            with pytest.raises(ConfigError, match=rf"expected {MLFLOW} to name me\.example:5000, where .* {secret}"):
                load_job(file)
        monkeypatch.setenv(MLFLOW, "https://me.example:5000")
        load_job(file)


def test_a_password_of_the_environment_is_for_its_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "of-the-bank")
    monkeypatch.setenv("PGHOST", "db.bank.example")
    file = job_in(tmp_path, table="{path: q.sql, url: 'postgresql://reader@me.example:5432/bank'}")
    with allowed(hosts=["me.example"]), pytest.raises(ConfigError, match="credentials of PGPASSWORD"):
        load_job(file)
    monkeypatch.setenv("PGHOST", "me.example")
    with allowed(hosts=["me.example"]):
        load_job(file)


def test_the_private_file_is_its_owners_word(tmp_path: Path) -> None:
    path = tmp_path / "bank.yaml"
    path.write_text("table: /elsewhere/bank.csv\nsecret: /keys/bank.key\nlog: {mlflow: 'http://me.example'}\n")
    assert load_private_part(path).table == TableConfig(path=Path("/elsewhere/bank.csv"))


def test_the_job_of_a_run_folder_is_shut(tmp_path: Path) -> None:
    party = "secret: /k/bank.key, log: {mlflow: 'http://me.example'}"
    table = "{path: /data/bank.sql, url: 'postgresql://db.example/bank', format: sql}"
    file = job_in(tmp_path, party, table)
    bank = load_closed_job(file).parties["bank"]
    assert (bank.secret, bank.log) == (None, None)
    assert bank.table is not None
    assert (bank.table.url, bank.table.format) == (None, "sql")
    with pytest.raises(ConfigError, match=r"consent to read the table of bank .* --allow-path /data/bank\.sql"):
        open_source(bank.table, "bank")
    assert not bank.table.path.exists()
    with allowed(hosts=["db.example"], paths=["/data"]):
        opened = load_closed_job(file).parties["bank"].table
    assert opened is not None
    assert (opened.url, opened.path) == ("postgresql://db.example/bank", Path("/data/bank.sql"))


def test_a_job_of_python_is_its_callers_word(tmp_path: Path) -> None:
    parties = {"bank": {"role": "active", "table": "/data/b.csv"}, "telco": {"role": "passive"}}
    assert validated(Job, {"parties": parties}, "").parties["bank"].table == TableConfig(path=Path("/data/b.csv"))


def test_a_class_is_checked_by_the_same_gate() -> None:
    with pytest.raises(ConfigError, match=r"model\.top: expected consent before it imports a\.b:C, got none"):
        check_allowed("a.b:C", "model.top")
    with allowed("a"):
        check_allowed("a.b:C", "model.top")
