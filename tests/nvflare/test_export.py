"""The job folder: nothing private, no code, and only what every site can run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cutlayer.config import Job, validated
from cutlayer.config.load import load_closed_job
from cutlayer.errors import ConfigError
from cutlayer_nvflare.export import export_job
from cutlayer_nvflare.route import Route
from cutlayer_nvflare.site import agreed_job
from tests.cli.jobs import JOB, changed

SITES = {"bank": "site-1", "telco": "site-2"}


def job(**changes: Any) -> Job:
    return validated(Job, changed(JOB, {key.replace("__", "."): value for key, value in changes.items()}), "")


def test_the_folder_names_two_classes_and_holds_nothing_private(tmp_path: Path) -> None:
    secret = {"parties.bank.privacy": {"label_dp": {"eps": 1.0}}, "compare": ["alone"]}
    whole = validated(Job, changed(JOB, secret), "")
    made = export_job(whole, tmp_path / "out", SITES, route=Route.HUB)
    found = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert found == sorted(made.files)
    meta = json.loads((tmp_path / "out" / "meta.json").read_text())
    assert meta["deploy_map"] == {"app": ["server", "site-1", "site-2"]}
    assert (meta["min_clients"], meta["mandatory_clients"]) == (2, ["site-1", "site-2"])
    config = tmp_path / "out" / "app" / "config"
    server = json.loads((config / "config_fed_server.json").read_text())["workflows"]
    assert [each["path"] for each in server] == ["cutlayer_nvflare.controller.CutlayerController"]
    assert server[0]["args"] == {"active": "site-1", "passives": ["site-2"], "may_leave": []}
    (client,) = json.loads((config / "config_fed_client.json").read_text())["executors"]
    assert client["executor"]["path"] == "cutlayer_nvflare.executor.CutlayerExecutor"
    assert client["executor"]["args"] == {"job": made.name, "route": "hub", "resume": ""}
    text = (config / "job.yaml").read_text()
    for private in ("bank.csv", "telco.csv", "default:", "label", "eps", "customer", str(tmp_path)):
        assert private not in text
    shared = load_closed_job(config / "job.yaml")
    assert shared.digest() == whole.digest()
    assert shared.identities == {"bank": "cn:site-1", "telco": "cn:site-2"}
    assert {"parties.bank.table", "parties.bank.label", "parties.bank.privacy", "compare"} <= {*made.left_out}


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"sites": {"shop": "site-3"}}, r"--site with a party of the job \(bank, telco\), got shop"),
        ({}, {"sites": {"bank": "x", "telco": "x"}}, "a site of its own for each party"),
        ({}, {"sites": {"bank": "../x"}}, "the name of an NVFlare site"),
        ({}, {"sites": {"bank": "server"}}, "that is not the server's"),
        ({}, {"route": Route.DIRECT}, "parties.bank.address with --route direct, got none"),
        ({}, {"resume": "../../etc"}, "the id of an NVFlare job"),
        ({"parties__telco__on_absent": "wait"}, {}, "stop or continue under NVFlare, got wait"),
        ({"name": "..."}, {}, "a job name with letters or digits"),
        ({"model__top": {"kind": "nope"}}, {}, "nope"),
    ],
)
def test_what_no_site_could_run_is_refused(
    tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        export_job(job(**changes), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_party_that_may_leave_is_named_to_the_server(tmp_path: Path) -> None:
    export_job(job(parties__telco__on_absent="continue"), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "app" / "config" / "config_fed_server.json").read_text())
    assert config["workflows"][0]["args"]["may_leave"] == ["telco"]


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """The folder `local` of a site that has agreed to the job in the folder `out`."""
    made = export_job(job(), tmp_path / "out", SITES)
    own = tmp_path / "local" / "cutlayer" / made.name
    own.mkdir(parents=True)
    (own / "job.yaml").write_bytes((tmp_path / "out" / "app" / "config" / "job.yaml").read_bytes())
    (own / "party.yaml").write_text("table: telco.csv\nid: customer\n")
    return tmp_path / "local"


def agreed(local: Path, submitted: Path, site: str = "site-2", name: str = ""):
    name = name or next((local / "cutlayer").iterdir()).name
    return agreed_job(local, local / "startup", name, submitted / "app" / "config" / "job.yaml", site)


def test_a_site_runs_what_it_agreed_to(local: Path, tmp_path: Path) -> None:
    found = agreed(local, tmp_path / "out")
    assert (found.party, found.is_active, found.site_of("bank")) == ("telco", False, "site-1")
    assert "--key" not in found.arguments(found.run_folder("0" * 8), resume=False, address=None, reconnect=1)
    (found.folder / "noise.key").write_bytes(bytes(32))
    words = found.arguments(found.run_folder("0" * 8), resume=True, address="127.0.0.1:7", reconnect=10.0)
    assert words[:2] == ["party", str(found.folder / "job.yaml")]  # its own copy, not the submitted one
    assert dict(zip(words[2::2], words[3::2], strict=False))["--local"] == str(found.folder / "party.yaml")
    assert {"--resume", "--key"} <= {*words}


@pytest.mark.parametrize(
    ("changes", "sites", "message"),
    [
        ({"train__epochs": 50}, SITES, "train.epochs: 2 here, 50 there"),
        ({"model__bottom": {"kind": "mlp", "hidden": [4]}}, SITES, "model.bottom.hidden"),
        ({}, {"bank": "evil", "telco": "site-2"}, "identities.bank: 'cn:site-1' here, 'cn:evil' there"),
    ],
)
def test_a_site_refuses_any_other_job(
    local: Path, tmp_path: Path, changes: dict[str, Any], sites: dict[str, str], message: str
) -> None:
    """Whoever submits, or the hub on the way, cannot change the schedule, a model, or who is a party.

    Nor do they learn by wrong guesses what the parties agreed to: values are for the site's own log.
    """
    export_job(job(**changes), tmp_path / "other", sites)
    with pytest.raises(ConfigError, match="other job than the one site-2 agreed to, which differs in") as refused:
        agreed(local, tmp_path / "other")
    assert message in refused.value.__notes__[0]
    for value in ("here", "there", "site-1", "bank", "50"):
        assert value not in str(refused.value)


def test_a_site_without_the_files_or_without_a_party_refuses(local: Path, tmp_path: Path) -> None:
    for name, site, message in (
        ("unknown", "site-2", "cutlayer/unknown/job.yaml in the site's folder local, got none"),
        ("../../etc", "site-2", "the name of a job"),
        ("", "site-9", "a party with identity cn:site-9"),
    ):
        with pytest.raises(ConfigError, match=message):
            agreed(local, tmp_path / "out", site, name)
