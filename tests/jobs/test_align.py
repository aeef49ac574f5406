"""`cutlayer align` in processes of the parties: what each side gets, in files and on the screen."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from cutlayer.data.align import intersect
from cutlayer.data.party_data import PartyTable
from tests.parties.processes import Site, fork, lay_out
from tests.parties.runs import ACTIVE, PASSIVES, raw_job, tables

NAMES = (ACTIVE, PASSIVES[0])


class Asked(Site):
    """A site that aligns instead of training."""

    def arguments(self, *more: str, tls: bool = False) -> list[str]:
        named = ["--as", self.name, "--local", "party.yaml", "--out", "aligned.csv", "--timeout", "60", "--json"]
        named += [] if tls else ["--plaintext"]
        return ["align", "job.yaml", *named, *more]


@pytest.fixture
def sites(tmp_path: Path) -> dict[str, Asked]:
    laid = lay_out(tmp_path, raw_job(), tables())
    return {name: Asked(site.name, site.folder) for name, site in laid.items()}


def all_of(sites: Mapping[str, Asked], *more: str, codes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Run the command at all parties; what each prints."""
    processes = {name: fork(site, *more) for name, site in sites.items()}
    ended = {name: process.wait() for name, process in processes.items()}
    printed = {name: json.loads((site.folder / "output.json").read_text()) for name, site in sites.items()}
    assert ended == (codes or dict.fromkeys(sites, 0)), printed
    return printed


def rows_of(site: Asked) -> list[tuple[int, str]]:
    with (site.folder / "aligned.csv").open() as file:
        head, *lines = csv.reader(file)
    assert head == ["row", "id"]
    return [(int(row), name) for row, name in lines]


def test_both_sides_get_the_rows_in_one_order(sites: dict[str, Asked]) -> None:
    printed = all_of(sites)
    given = tables()
    plain = intersect({name: PartyTable(name, table, "id").digests for name, table in given.items()})
    for name, site in sites.items():
        rows = rows_of(site)
        assert [row for row, _ in rows] == plain[name].tolist()
        assert [int(text) for _, text in rows] == given[name]["id"].take(pa.array(plain[name])).to_pylist()
        assert printed[name]["common"] == len(rows)
        assert (site.folder / "aligned.csv").stat().st_mode & 0o777 == 0o600
        assert not list(site.folder.glob("*.progress"))
    shared = {name: len({*given[ACTIVE]["id"].to_pylist()} & {*given[name]["id"].to_pylist()}) for name in NAMES[1:]}
    assert printed[ACTIVE]["shared"] == shared
    again = fork(sites[ACTIVE])
    assert again.wait() == 2
    assert "aligned.csv, got one; choose another with --out" in (sites[ACTIVE].folder / "output.json").read_text()


def test_a_dry_run_gives_numbers_alone(sites: dict[str, Asked]) -> None:
    printed = all_of(sites, "--dry-run")
    for name, site in sites.items():
        assert not (site.folder / "aligned.csv").exists()
        assert printed[name]["common"] is None
        for peer, count in printed[name]["shared"].items():
            assert count == printed[peer]["shared"][name] > 200


def test_the_rows_for_the_active_party_alone(sites: dict[str, Asked]) -> None:
    printed = all_of(sites, "--reveal", "active")
    assert len(rows_of(sites[ACTIVE])) == printed[ACTIVE]["common"] > 200
    for name in NAMES[1:]:
        assert (printed[name]["common"], printed[name]["shared"]) == (None, {})
        assert not (sites[name].folder / "aligned.csv").exists()


def test_nothing_in_common_is_known_to_the_active_party_alone(sites: dict[str, Asked]) -> None:
    for name in NAMES[1:]:
        own = sites[name].folder / "own.parquet"
        table = pa.parquet.read_table(own)
        ids = pa.array([f"9{number}" for number in range(len(table))]).cast(table["id"].type)
        pa.parquet.write_table(table.set_column(table.schema.get_field_index("id"), "id", ids), own)
    printed = all_of(sites, "--reveal", "active", codes={ACTIVE: 2} | dict.fromkeys(NAMES[1:], 0))
    assert "rows that all parties have, got none of" in printed[ACTIVE]["error"]
    assert [(printed[name]["common"], printed[name]["shared"]) for name in NAMES[1:]] == [(None, {})]
    assert not [site for site in sites.values() if (site.folder / "aligned.csv").exists()]


def test_the_parties_must_align_for_the_same(sites: dict[str, Asked]) -> None:
    processes = {name: fork(site, *(["--dry-run"] if name == ACTIVE else [])) for name, site in sites.items()}
    assert {process.wait() for process in processes.values()} == {2}
    printed = json.loads((sites[ACTIVE].folder / "output.json").read_text())
    assert "the same command at telco, to size, got to align" in printed["error"]
    assert not [site for site in sites.values() if (site.folder / "aligned.csv").exists()]


def test_another_rule_for_the_ids_is_refused(sites: dict[str, Asked]) -> None:
    path = sites[NAMES[1]].folder / "party.yaml"
    path.write_text(path.read_text().replace("id: id", "id: {column: id, normalise: lower}"))
    all_of(sites, codes=dict.fromkeys(sites, 2))
    printed = json.loads((sites[ACTIVE].folder / "output.json").read_text())
    assert "one normal form at all parties, got strip at bank, lower at telco" in printed["error"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--dry-run",), "expected alignment: psi in the job, to size, got plain"),
        (("--reveal", "active"), "expected alignment: psi in the job, to align active, got plain"),
        (("--dry-run", "--reveal", "both"), "expected no --reveal with --dry-run"),
    ],
)
def test_what_is_wrong_before_a_link_is_made(sites: dict[str, Asked], more: tuple[str, ...], message: str) -> None:
    path = sites[ACTIVE].folder / "job.yaml"
    path.write_text(path.read_text() + "alignment: plain\n")
    assert fork(sites[ACTIVE], *more).wait() == 2
    assert message in json.loads((sites[ACTIVE].folder / "output.json").read_text())["error"]
