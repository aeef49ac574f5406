"""Parties in processes of their own, linked by TLS as on several machines: the same bits as all parties in one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from cutlayer.channel.trail import verify_trail
from cutlayer.config import Job, validated
from tests.channel.certificates import FEDERATION, Federation
from tests.parties.interruptions import losses
from tests.parties.processes import Site, fork, lay_out
from tests.parties.runs import ACTIVE, DROPOUT, KEY, PASSIVES, raw_job, run, tables
from tools.faults.proxy import Proxy

OPTIONS: dict[str, Any] = {
    "passives": 2,
    "bottom": DROPOUT,
    "privacy": {"label_dp": {"eps": 2.0}, "max_norm": {}},
    "audit": {"rows": 64, "attacks": ["norm"]},
    "epochs": 4,
}
MORE: dict[str, Any] = {"federation": FEDERATION, "channel": {"compress": "int8"}}
NAMES = (ACTIVE, *PASSIVES[:2])


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same job with all parties in this process."""
    folder = tmp_path_factory.mktemp("together")
    run(validated(Job, raw_job(**OPTIONS) | MORE, ""), tables(passives=2), folder, key=KEY)
    return folder


def lay_out_with_keys(folder: Path) -> dict[str, Site]:
    """Every party's folder, with its certificate and without `--plaintext`."""
    sites = lay_out(folder / "sites", raw_job(**OPTIONS) | MORE, tables(passives=2))
    made = Federation(folder / "keys", *PASSIVES[:2])
    for name, site in sites.items():
        shutil.copytree(made.base / name, site.folder / "keys")
    return sites


def address_in(site: Site, address: str | None = None) -> str:
    """The address of the active party in a site's copy of the job, after it was changed."""
    yaml = YAML()
    job = yaml.load(site.folder / "job.yaml")
    if address is not None:
        job["parties"][ACTIVE]["address"] = address
        yaml.dump(job, site.folder / "job.yaml")
    return str(job["parties"][ACTIVE]["address"])


class CutAfter:
    """Cuts the connection that carries the byte after each of some numbers of bytes."""

    def __init__(self, *bytes_: int) -> None:
        self.left, self.seen, self.cuts = list(bytes_), 0, 0

    def __call__(self, piece: bytes) -> bytes | None:
        self.seen += len(piece)
        if self.left and self.seen > self.left[0]:
            self.left.pop(0)
            self.cuts += 1
            return None
        return piece


@pytest.fixture(scope="module")
def healed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Site]:
    """A run whose connections were cut again and again, from the first handshake to the middle of the training."""
    sites = lay_out_with_keys(tmp_path_factory.mktemp("healed"))
    harm = CutAfter(500, 3_000, 12_000, 20_000, 28_000, 34_000)
    with Proxy(address_in(sites[ACTIVE]), harm) as proxy:
        for name in PASSIVES[:2]:
            address_in(sites[name], proxy.address)
        processes = {name: fork(site, tls=True) for name, site in sites.items()}
        assert {name: process.wait() for name, process in processes.items()} == dict.fromkeys(NAMES, 0)
    assert harm.cuts == 6
    return sites


def test_three_processes_with_tls_equal_one_to_the_last_bit(healed: dict[str, Site], together: Path) -> None:
    """The losses are those of a quiet network."""
    assert losses(healed[ACTIVE].run) == losses(together)
    assert len(losses(together)) == 4
    assert not [name for name, site in healed.items() if "Traceback" in (site.folder / "errors.txt").read_text()]


def test_what_was_sent_is_on_the_trails_once(healed: dict[str, Site], together: Path) -> None:
    for name, site in healed.items():
        kept = verify_trail(site.folder / ".cutlayer" / f"{name}.key.trail")
        assert not kept.problems
        steps = len(losses(together)) * 4
        kind, peers = ("gradient", PASSIVES[:2]) if name == ACTIVE else ("embedding", (ACTIVE,))
        assert [kept.files[0].sent[peer, kind][0] for peer in peers] == [steps] * len(peers)


def test_the_preflight_of_all_parties_says_ready(tmp_path: Path) -> None:
    sites = lay_out_with_keys(tmp_path)
    processes = {name: fork(site, "--preflight", tls=True) for name, site in sites.items()}
    assert {name: process.wait() for name, process in processes.items()} == dict.fromkeys(NAMES, 0)
    for name, site in sites.items():
        answer = json.loads((site.folder / "output.json").read_text())
        assert answer["ready"]
        names = [check["name"] for check in answer["checks"]]
        assert names[:4] == ["job", "table", "certificate", "address"]
        assert set(names[4:]) == ({*PASSIVES[:2]} if name == ACTIVE else {ACTIVE})
        assert not site.run.exists()
