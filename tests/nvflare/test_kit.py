"""`cutlayer party --kit`: the certificates of a startup kit, and their common names as identities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cutlayer.cli.app import _run
from cutlayer.config.identities import valid_identity
from tests.cli.jobs import JOB, as_yaml, changed, write_tables


def preflight(folder: Path, party: str, kit: Path, capsys: pytest.CaptureFixture[str], *more: str, **job: Any) -> Any:
    import json

    write_tables(folder)
    identities = {f"parties.{name}.identity": f"cn:{site}" for name, site in (("bank", "site-1"), ("telco", "site-2"))}
    (folder / "job.yaml").write_text(as_yaml(changed(JOB, identities | job)))
    label = "label: default\n" if party == "bank" else ""
    (folder / "party.yaml").write_text(f"table: {party}.csv\nid: id\n{label}")
    files = ["party", str(folder / "job.yaml"), "--as", party, "--local", str(folder / "party.yaml")]
    code = _run([*files, "--kit", str(kit), "--preflight", "--timeout", "0.3", "--json", *more])
    return code, json.loads(capsys.readouterr().out)


def test_a_site_is_the_party_that_the_job_names_by_its_common_name(
    kits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = preflight(tmp_path, "telco", kits / "site-2" / "startup", capsys, "--address", "127.0.0.1:1")
    checks = {check["name"]: check for check in found["checks"]}
    assert code == 2  # nobody listens
    assert checks["certificate"]["problem"] == ""
    assert checks["certificate"]["result"].startswith("cn:site-2, ")
    assert "127.0.0.1:1" in checks["address"]["result"]
    code, found = preflight(tmp_path, "telco", kits / "site-1" / "startup", capsys, "--address", "127.0.0.1:1")
    assert (code, "got that of cn:site-1" in found["error"]) == (2, True)


def test_an_address_that_cannot_be_is_refused(kits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for address in ("127.0.0.1:0", "nowhere"):
        code, found = preflight(tmp_path, "telco", kits / "site-2" / "startup", capsys, "--address", address)
        assert code == 2
        assert "expected an address" in found["error"]


@pytest.mark.parametrize("wrong", ["cn:", "cn:a b", "cn:../x", "cn:a/b", "CN:x"])
def test_a_common_name_that_no_site_has_is_no_identity(wrong: str) -> None:
    with pytest.raises(ValueError, match="or cn:NAME"):
        valid_identity(wrong)
